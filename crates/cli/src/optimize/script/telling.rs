//! Writes the result as a record and in every human-readable form.

use super::Shared;
use super::arguments::ScriptArguments;
use crate::optimize::validation_record::gate;
use crate::output;
use crate::registry::Headline;
use anyhow::Result;
use headroom_diagnosis::Analysis;
use headroom_diagnosis::trace_rules::TraceFinding;
use headroom_record::SCHEMA_VERSION;
use headroom_record::atomic::{FileError, write_atomically, write_json};
use headroom_record::provenance::Provenance;
use headroom_record::script::{
    RemedyPrediction, RemedyRow, RoundBlock, RoundRow, ScriptFinding, ScriptRecord, SwitchRow, SwitchSearch,
};
use headroom_record::timestamp::utc_iso;
use headroom_record::validation::VALIDATION_FILE;
use headroom_report::script::{gate_figure, html, markdown, terminal};
use headroom_scripts::candidates::Wanted;
use headroom_scripts::conductor::messages::SwitchOffer;
use headroom_scripts::conductor::search::{CHANCE, Conducted, LoggedRound, Verdict};
use headroom_scripts::gates::{gates, spread};
use headroom_scripts::note::Note;
use headroom_scripts::outcome::Row;
use headroom_scripts::printed::without_output;
use headroom_scripts::search::Found;
use headroom_scripts::stored_patch::{PATCH_FILE, StoredPatch};
use headroom_scripts::variation::sources;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Instant, SystemTime};

/// The inputs of a record besides the measurements.
#[derive(Clone, Copy)]
pub(super) struct RecordContext<'a> {
    pub arguments: &'a ScriptArguments,
    pub wanted: &'a Wanted,
    pub analysis: &'a Analysis,
    pub began: Instant,
}

/// The results at a moment of the search.
#[derive(Default)]
pub(super) struct Known {
    pub originals: Vec<Note>,
    pub rows: Vec<Row>,
    /// Remedies that do not apply.
    pub left: Vec<Row>,
    pub conducted: Option<Conducted>,
    pub found: Option<Found>,
}

/// How the search ended.
pub(super) enum End {
    Finished,
    Interrupted,
    Failed(String),
}

impl RecordContext<'_> {
    pub(super) fn script_record(&self, known: &Known, end: End) -> ScriptRecord {
        let originals = &known.originals;
        let machine = originals.first().map(|first| &first.machine);
        let logs: Vec<f64> = originals.iter().filter_map(Note::seconds).map(f64::ln).collect();
        let baseline = match logs.len() {
            0 => self.analysis.true_step.seconds,
            count => (logs.iter().sum::<f64>() / count as f64).exp(),
        };
        let rows = known.rows.iter().map(|row| remedy_row(row, true));
        let remedies: Vec<RemedyRow> = rows.chain(known.left.iter().map(|row| remedy_row(row, false))).collect();
        let found = known.found.as_ref();
        let kept = found.map_or(vec![], |found| found.kept.names());
        let class = found.map_or("same", |found| found.kept.class().name());
        let all = found.filter(|found| !found.kept.is_empty());
        let gates = all.map_or_else(BTreeMap::new, |found| {
            let of_patch = found.patched.iter().flat_map(|patched| &patched.gates);
            let of_kept = gates(&found.originals, &found.finals, &found.links, found.speedup);
            of_kept.iter().chain(of_patch).map(gate).collect()
        });
        let speedup = found.map(|found| found.speedup);
        let in_process = known.conducted.as_ref().map_or(0, |conducted| conducted.processes);
        let (ended, failure) = match end {
            End::Finished => ("finished", None),
            End::Interrupted => ("interrupted", None),
            End::Failed(why) => ("failed", Some(why)),
        };
        ScriptRecord {
            schema_version: SCHEMA_VERSION,
            kind: "script".into(),
            timestamp: utc_iso(SystemTime::now()),
            command: self.arguments.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            device: machine
                .map_or(String::new(), |machine| machine.device_name.clone().unwrap_or(machine.device.clone())),
            torch: machine.and_then(|machine| machine.torch.clone()).unwrap_or_default(),
            measured_on: originals.first().and_then(|first| first.measured_on.clone()).unwrap_or_default(),
            baseline_step_seconds: baseline,
            timed_steps: originals.first().map_or(0, |first| first.step_seconds.len()) as u64,
            baseline_memory_mb: originals.iter().filter_map(Note::memory).max().map(mebibytes),
            own_loss_spread: finite(spread(originals)),
            own_loss_sources: if spread(originals) > 0.0 { sources(originals) } else { vec![] },
            findings: self.analysis.findings.iter().map(finding).collect(),
            prediction: RemedyPrediction::of(&remedies),
            remedies,
            kept: kept.into_iter().map(String::from).collect(),
            class: class.into(),
            speedup: speedup.map_or(1.0, |speedup| speedup.ratio),
            ci95_low: speedup.map_or(1.0, |speedup| speedup.low),
            ci95_high: speedup.map_or(1.0, |speedup| speedup.high),
            rounds: speedup.map_or(0, |speedup| speedup.rounds as u64),
            proved_as: all.map(|found| found.proved_as.name().into()),
            gates,
            patch: None,
            dry_run: self.arguments.dry_run,
            ended: ended.into(),
            failure,
            search: known.conducted.as_ref().map(switch_search),
            processes: (found.map_or(originals.len(), |found| found.processes) + in_process) as u64,
            seconds: self.began.elapsed().as_secs_f64(),
            provenance: Provenance::default(),
        }
        .with_provenance()
    }
}

fn finding(finding: &TraceFinding) -> ScriptFinding {
    ScriptFinding {
        code: finding.code.to_string(),
        name: finding.name.to_string(),
        message: finding.message.clone(),
        percent_of_step: finding.share_of_step.map(|share| 100.0 * share),
        expected_saving_percent: 100.0 * finding.saving_expected_share,
    }
}

fn switch_search(conducted: &Conducted) -> SwitchSearch {
    let row = |offer: &SwitchOffer| {
        let shadow = conducted.shadows.iter().rev().find(|shadow| shadow.switch == offer.name);
        let verdict = conducted.verdicts.iter().find(|(remedy, ..)| remedy.name == offer.name);
        let (verdict, reason) = verdict.map_or(("untried", None), |(_, verdict, _)| match verdict {
            Verdict::Kept => ("kept", None),
            Verdict::NoGain => ("no gain", None),
            Verdict::Replaced(by) => ("replaced", Some(format!("by {by}"))),
            Verdict::Slower => ("slower", None),
            Verdict::Differs(which) => ("differs", Some(which.clone())),
            Verdict::Failed(why) => ("failed", Some(without_output(why).to_string())),
            Verdict::Void(why) => ("void", Some(why.clone())),
            Verdict::Superfluous(why) => ("untried", Some(why.clone())),
            Verdict::Late => ("untried", Some("too little time was left for it".into())),
            Verdict::Untried(why) => ("untried", Some(why.clone())),
        });
        SwitchRow {
            name: offer.name.clone(),
            place: offer.place.clone(),
            settle_steps: offer.settle,
            obstacle: offer.obstacle.clone(),
            shadow: shadow.map(|shadow| shadow.verdict.clone()),
            shadow_reason: shadow.and_then(|shadow| shadow.reason.clone()),
            shadow_seconds: shadow.map(|shadow| shadow.seconds),
            verdict: verdict.into(),
            reason,
        }
    };
    let round = |round: &LoggedRound| RoundRow {
        race: round.race,
        stage: round.stage.into(),
        round: round.round,
        seconds_left: round.seconds_left,
        blocks: round
            .blocks
            .iter()
            .map(|(on, seconds)| RoundBlock { on: on.clone(), step_seconds: *seconds })
            .collect(),
    };
    SwitchSearch {
        processes: conducted.processes as u64,
        blocks: conducted.blocks,
        chance: CHANCE,
        switches: conducted.offers.iter().map(row).collect(),
        rounds: conducted.rounds.iter().map(round).collect(),
    }
}

fn remedy_row(row: &Row, applies: bool) -> RemedyRow {
    let remedy = row.candidate.remedy;
    RemedyRow {
        name: remedy.name.into(),
        class: remedy.class.name().into(),
        about: remedy.about.into(),
        answers: row.candidate.answers.clone(),
        predicted_saving_percent: row.candidate.predicted.map(|share| 100.0 * share),
        saving_percent: row.saved.map(|share| 100.0 * share),
        speedup: row.speedup.map(|speedup| finite(speedup.ratio)),
        ci95_low: row.speedup.map(|speedup| finite(speedup.low)),
        ci95_high: row.speedup.map(|speedup| finite(speedup.high)),
        rounds: row.speedup.map(|speedup| speedup.rounds as u64),
        memory_before_mb: row.memory.map(|(before, _)| mebibytes(before)),
        memory_after_mb: row.memory.map(|(_, after)| mebibytes(after)),
        warmup_seconds: row.warmup_seconds,
        compile_seconds: row.compile_seconds,
        kept: row.outcome.is_kept(),
        applies,
        was_tried: row.outcome.has_run(),
        outcome: row.outcome.words(),
        did: row.did.clone(),
        gates: row.gates.iter().map(gate).collect(),
    }
}

/// Findings that are printed as soon as they are known; the report has all.
const FINDINGS: usize = 5;

pub(super) fn findings_in_words(analysis: &Analysis) -> String {
    let line = |finding: &TraceFinding| {
        let saving = 100.0 * finding.saving_expected_share;
        let saving = if saving >= 1.0 { format!("; about {saving:.0}% could be saved") } else { String::new() };
        format!("\n           {} {}: {}{saving}", finding.code, finding.name, finding.message)
    };
    match analysis.findings.len() {
        0 => "the recording shows nothing that holds the step back".into(),
        count => {
            let lines: String = analysis.findings.iter().take(FINDINGS).map(line).collect();
            let more =
                if count > FINDINGS { format!("\n           and {} more", count - FINDINGS) } else { String::new() };
            format!("what holds the step back, by the recording:{lines}{more}")
        }
    }
}

/// JSON has no infinity.
fn finite(figure: f64) -> f64 {
    figure.clamp(f64::MIN, f64::MAX)
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

pub(super) fn row_in_words(row: &Row) -> String {
    let mut text = row.candidate.remedy.name.to_string();
    if let Some(predicted) = row.candidate.predicted {
        let _ = write!(text, " (predicted to save {:.0}%)", 100.0 * predicted);
    }
    if let Some(speedup) = row.speedup {
        let _ = write!(text, ": {:.2}× ({:.2} to {:.2})", speedup.ratio, speedup.low, speedup.high.min(99.0));
    }
    let outcome = row.outcome.words();
    // The report has the full text.
    let _ = write!(text, ", {}", outcome.lines().next().unwrap_or_default());
    text
}

pub(super) fn milliseconds(seconds: Option<f64>) -> String {
    seconds.map_or("no time".into(), |seconds| format!("{:.1} ms", 1e3 * seconds))
}

pub(super) fn counted(count: usize, one: &str, several: &str) -> String {
    if count == 1 { format!("one {one}") } else { format!("{count} {several}") }
}

/// The patch that a run offers.
pub(super) struct OfferedPatch {
    pub difference: String,
    pub stored: StoredPatch,
    /// Applies it later.
    pub command: String,
}

/// The patch as text, beside the one that `apply` reads.
const DIFFERENCE_FILE: &str = "optimize.patch";

/// Writes the record in every form.
pub(super) fn written(record: &ScriptRecord, results: &Path, patch: Option<&OfferedPatch>) -> Result<()> {
    let difference = patch.map_or("", |patch| patch.difference.as_str());
    write_json(&results.join(VALIDATION_FILE), record)?;
    write_atomically(&results.join("optimize.md"), markdown(record, difference).as_bytes())?;
    write_atomically(&results.join("optimize.html"), html(record, difference).as_bytes())?;
    match patch {
        Some(patch) => {
            write_atomically(&results.join(DIFFERENCE_FILE), difference.as_bytes())?;
            patch.stored.write(results)?;
        }
        // Left by an earlier run, whose results these replace.
        None => [DIFFERENCE_FILE, PATCH_FILE].iter().try_for_each(|file| removed(&results.join(file)))?,
    }
    Ok(())
}

/// Writes the record and prints it.
pub(super) fn shown(
    record: &ScriptRecord,
    shared: &Shared,
    results: &Path,
    patch: Option<&OfferedPatch>,
) -> Result<()> {
    written(record, results, patch)?;
    let difference = patch.map_or("", |patch| patch.difference.as_str());
    if shared.json {
        output::result(&(serde_json::to_string_pretty(record)? + "\n"))?;
    } else {
        output::text(&terminal(record))?;
        if !difference.is_empty() {
            output::difference(&format!("\n{difference}"))?;
        }
    }
    output::note(&format!("validation.json, optimize.md and optimize.html in {}", results.display()));
    for (name, gate) in record.gates.iter().filter(|(_, gate)| gate.result != "pass") {
        let said = if gate.result == "fail" { "gate failed" } else { "gate not decided" };
        let (figure, limit) = (gate_figure(name, gate.figure), gate_figure(name, gate.limit));
        output::note(&format!("{said}: {name} is {figure}, the limit is {limit} ({})", gate.about));
    }
    let is_applied = record.patch.as_ref().is_some_and(|patch| patch.applied);
    if let Some(patch) = patch.filter(|_| !is_applied && !shared.json) {
        output::text(&format!("To apply the patch, without running again: {}\n", patch.command))?;
    }
    Ok(())
}

fn removed(file: &Path) -> Result<(), FileError> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(FileError::new("remove", file)(error)),
        _ => Ok(()),
    }
}

pub(super) fn verdict(record: &ScriptRecord, undecided_fails: bool) -> ExitCode {
    let is_failure = |result: &str| result == "fail" || result == "undecided" && undecided_fails;
    ExitCode::from(u8::from(record.gates.values().any(|gate| is_failure(&gate.result))))
}

pub(super) fn headline(record: &ScriptRecord) -> Headline {
    Headline {
        step_seconds: Some(record.kept_step_seconds()),
        speedup: Some(record.speedup),
        findings: Some(record.findings.len() as u64),
        measured: true,
        ..Headline::default()
    }
}
