//! `headroom optimize -- python train.py …`: applies remedies to a PyTorch script from outside, predicts, measures and
//! verifies each, and writes the equivalent patch.

mod arguments;
mod conducting;
mod telling;

use crate::analyze::{self, thresholds};
use crate::failure::RunFailed;
use crate::output;
use crate::registry::{About, Entry};
use crate::signals;
use crate::train::folder::{make_folders, remove_folders};
use anyhow::{Context, Result, bail};
pub use arguments::ScriptArguments;
use arguments::{main_script, notebook, results_folder};
use headroom_diagnosis::Analysis;
use headroom_record::atomic::FileError;
use headroom_record::validation::VALIDATION_FILE;
use headroom_report::lint::difference as unified;
use headroom_scripts::candidates::{Candidate, candidates};
use headroom_scripts::isolation::Isolation;
use headroom_scripts::measurements::Measurements;
pub use headroom_scripts::measurements::PRINTED_FILE;
use headroom_scripts::note::Note;
use headroom_scripts::outcome::{Outcome, Row};
use headroom_scripts::patch::Changed;
use headroom_scripts::processes::{Measuring, Processes, Surroundings};
use headroom_scripts::proposal::Proposal;
use headroom_scripts::search::{NotMeasured, Repeats, Search};
use headroom_scripts::stored_patch::StoredPatch;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use telling::{OfferedPatch, RecordContext, counted, headline, milliseconds, row_in_words, shown, verdict};

/// Options that the command shares with the optimization of our own model.
pub struct Shared {
    pub rounds: Option<u16>,
    pub seed: u64,
    pub output_dir: Option<PathBuf>,
    pub json: bool,
    pub undecided_fails: bool,
}

/// Numbers of processes: of the unchanged script including the recorded one, of each remedy, and of the final turns.
const REPEATS: Repeats = Repeats { originals: 2, most: 4, finals: 4 };

pub fn run(arguments: ScriptArguments, shared: Shared, entry: &mut Entry) -> Result<ExitCode> {
    if arguments.in_place {
        bail!(
            "--in-place is gone: a search runs the script many times, and never on your own files\n  help: --allow-write PATH \
             lets it write to a folder of yours"
        );
    }
    if let Some(notebook) = notebook(&arguments.command) {
        bail!(
            "{} is a notebook, and only a script can be run again and again\n  help: `jupyter nbconvert --to script` makes one",
            notebook.display()
        );
    }
    let results = shared.output_dir.clone().unwrap_or_else(|| results_folder(&arguments.command));
    let results = std::path::absolute(results)?;
    let made = make_folders(&results)?;
    let done = run_into(&results, &arguments, &shared, entry);
    if !results.join(VALIDATION_FILE).exists() {
        // Removes folders that were created for nothing, if they are empty or ours.
        let recording = results.join(RECORDING);
        let _ = match is_ours(&recording) {
            true => std::fs::remove_dir_all(&recording),
            false => std::fs::remove_dir(&recording),
        };
        Measurements::take_back(&results);
        remove_folders(&made);
    }
    done
}

/// The recording's folder inside the results folder.
const RECORDING: &str = "recording";
/// Marker written at the start, so that a later run recognises the folder even if this one is interrupted.
const OURS: &str = "made-by-headroom-optimize.txt";
const OURS_SAYS: &str = "This folder is replaced by the next `headroom optimize` of the same script.\n";

fn run_into(results: &Path, arguments: &ScriptArguments, shared: &Shared, entry: &mut Entry) -> Result<ExitCode> {
    let began = Instant::now();
    let interrupt = signals::listen_for_two(|| {})?;
    let folder = std::env::current_dir().context("cannot find the working folder")?;
    let isolation = Isolation::begin(&folder, &[results.to_path_buf()], &(&arguments.isolation).into())?;
    isolation.remarks.iter().for_each(|remark| output::note(remark));
    let measuring = Measuring { warmup: arguments.warmup_steps, timed: arguments.steps, seed: shared.seed };
    let command = arguments.command.clone();
    let kept = Measurements::in_folder(results)?;
    let is_asked_to_end = || interrupt.is_asked();
    let surroundings = Surroundings { is_asked_to_end: &is_asked_to_end, tell: &|text| output::note(text) };
    let mut processes = Processes::new(command, isolation, measuring, arguments.time_limit, (surroundings, kept))?;
    begin_row(entry, results, arguments);
    let tell = |text: &str| output::note(&format!("[{:5.1} s] {text}", began.elapsed().as_secs_f64()));

    tell("timing and recording the unchanged script");
    let recording = results.join(RECORDING);
    let analysis = recorded(&mut processes, &recording, &tell);
    if interrupt.signal() != 0 {
        return interrupted(entry, &interrupt, &processes);
    }
    let (analysis, measured) = analysis?;
    if !arguments.dry_run {
        tell("running the unchanged script without a profiler");
    }
    let limit = arguments.time_limit.as_secs_f64();
    let mut told = |row: &Row| {
        let left = (limit - began.elapsed().as_secs_f64()).max(0.0);
        output::note(&format!("[{:5.1} s] {}; {left:.0} s left", began.elapsed().as_secs_f64(), row_in_words(row)));
    };
    let repeats = Repeats {
        finals: shared.rounds.map_or(REPEATS.finals, usize::from),
        originals: if arguments.dry_run { 1 } else { REPEATS.originals },
        ..REPEATS
    };
    let begun = Search::begin(&mut processes, repeats, measured, &mut told);
    if interrupt.signal() != 0 {
        return interrupted(entry, &interrupt, &processes);
    }
    let mut search = begun.map_err(|why| not_measured(why, arguments.warmup_steps + arguments.steps))?;
    let first = search.originals()[0].clone();
    tell(&format!("the unchanged script takes {} per step", milliseconds(first.seconds())));
    if let Some(why) = unfit(&first) {
        bail!("{why}");
    }
    let offered = first.offered.clone().context("the hook did not say which remedies apply")?;
    let (tried, left) = candidates(&offered, &expected(&analysis), &arguments.wanted());
    let about = RecordContext { arguments, analysis: &analysis, began };
    if arguments.dry_run {
        let record = about.script_record(search.originals(), &dry(tried), left, None);
        return shown(&record, shared, results, None).map(|()| ExitCode::SUCCESS);
    }
    tell(&format!("trying {}", counted(tried.len(), "remedy", "remedies")));
    let rows = conducting::try_candidates(&mut search, tried, &tell);
    let script = main_script(&arguments.command).unwrap_or_default();
    let mut proposal = Proposal::of(search.kept(), search.kept_note(), &folder, &script);
    if !search.kept().is_empty() {
        tell("proving what was kept: fresh processes of the unchanged script and of a patched copy, in turns");
    }
    let found = search.finish(rows, proposal.files());
    if interrupt.signal() != 0 {
        return interrupted(entry, &interrupt, &processes);
    }
    let found = found.map_err(|why| not_measured(why, arguments.warmup_steps + arguments.steps))?;
    let mut record = about.script_record(&found.originals, &found.rows, left, Some(&found));
    proposal.ran(&found);
    if arguments.apply && verdict(&record, shared.undecided_fails) == ExitCode::SUCCESS {
        proposal.apply(&folder)?;
    }
    record.patch = proposal.patch_record();
    record.seconds = began.elapsed().as_secs_f64();
    let record = record.with_provenance();
    entry.figures(headline(&record));
    entry.version(&if record.kept.is_empty() { "unchanged".to_string() } else { record.kept.join("+") });
    let run = entry.id();
    let patch = (!proposal.is_empty()).then(|| OfferedPatch {
        difference: difference(proposal.changed()),
        stored: StoredPatch::of(proposal.changed(), &folder, run),
        command: match run {
            Some(run) => format!("headroom apply {run}"),
            None => format!("headroom apply {}", results.display()),
        },
    });
    shown(&record, shared, results, patch.as_ref())?;
    Ok(verdict(&record, shared.undecided_fails))
}

/// Records into a separate folder; returns the analysis of the step, and a measurement of the same process.
fn recorded(processes: &mut Processes, into: &Path, tell: &dyn Fn(&str)) -> Result<(Analysis, Option<Note>)> {
    if into.exists() && !is_ours(into) {
        bail!(
            "{} was not made by this command, and would be replaced\n  help: name another folder with --output-dir",
            into.display()
        );
    }
    match std::fs::remove_dir_all(into) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(FileError::new("remove the recording before this one", into)(error).into());
        }
        _ => {}
    }
    std::fs::create_dir_all(into).map_err(FileError::new("make the folder", into))?;
    let mark = into.join(OURS);
    std::fs::write(&mark, OURS_SAYS).map_err(FileError::new("write", &mark))?;
    let (traces, measured) =
        processes.record_trace(into).map_err(|why| RunFailed(format!("the script was not recorded: {why}")))?;
    let analysis = analyze::analysis_of(&traces, &[], thresholds(&[])?)?;
    if let Some(first) = analysis.findings.first() {
        tell(&format!("first finding: {}", first.message));
    }
    Ok((analysis, measured))
}

/// Whether this command made the folder. An earlier run may have been interrupted before it had a result.
fn is_ours(recording: &Path) -> bool {
    recording.join(OURS).exists() || recording.with_file_name(VALIDATION_FILE).exists()
}

fn interrupted(entry: &mut Entry, interrupt: &signals::Interrupt, processes: &Processes) -> Result<ExitCode> {
    entry.interrupted();
    output::note(&format!("interrupted; no process is left running, and {}", processes.claim()));
    Ok(interrupt.exit_code())
}

fn not_measured(NotMeasured(why): NotMeasured, steps: u32) -> anyhow::Error {
    RunFailed(format!(
        "the script cannot be measured: {why}\n  help: it must run on its own and take at least {steps} training steps; lower \
         --steps and --warmup-steps to need fewer"
    ))
    .into()
}

/// Why remedies cannot be verified on a script that does run.
fn unfit(note: &Note) -> Option<String> {
    let problem = note.problems.iter().find(|problem| problem.code == "no-loss" || problem.code == "no-module")?;
    Some(format!(
        "{}: no remedy could be proven\n  help: `headroom record` and `headroom analyze` say what holds it back",
        problem.text
    ))
}

/// The patch as a unified diff.
pub fn difference(files: &[Changed]) -> String {
    files.iter().map(|file| unified(&file.path.display().to_string(), &file.before, &file.after)).collect()
}

/// Savings that the roadmap expects, per rule, as shares of the step.
fn expected(analysis: &Analysis) -> Vec<(String, f64)> {
    let mut shares: BTreeMap<String, f64> = BTreeMap::new();
    for finding in &analysis.findings {
        *shares.entry(finding.name.to_string()).or_default() += finding.saving_expected_share;
    }
    shares.into_iter().collect()
}

fn dry(candidates: Vec<Candidate>) -> Vec<Row> {
    candidates.into_iter().map(|candidate| Row::of(candidate, Outcome::NotTried("a dry run".into()))).collect()
}

fn begin_row(entry: &mut Entry, results: &Path, arguments: &ScriptArguments) {
    let words: Vec<String> = arguments.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    entry.begin(&About {
        folder: Some(results),
        size: None,
        version: None,
        configuration: json!({ "script": words, "steps": arguments.steps }),
        device: "",
        machine: "",
        threads: 0,
        name: None,
    });
}
