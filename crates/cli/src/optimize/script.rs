//! `headroom optimize -- python train.py …`: remedies for a PyTorch script from outside, each predicted, measured and verified,
//! and the patch that does the same.

mod processes;
mod proposal;
mod scratch;

use super::record::gate;
use crate::analyze::{self, thresholds};
use crate::failure::RunFailed;
use crate::output;
use crate::registry::{About, Entry, Headline};
use crate::signals;
use crate::train::folder::{make_folders, remove_folders};
use anyhow::{Context, Result, bail};
use headroom_diagnosis::Analysis;
use headroom_diagnosis::trace_rules::TraceFinding;
use headroom_experiments::remedies::{REMEDIES, named};
use headroom_experiments::script::gates::{gates, spread};
use headroom_experiments::script::note::Note;
use headroom_experiments::script::search::{
    Candidate, Found, NotMeasured, Outcome, Repeats, Row, Search, Wanted, candidates, class_of,
};
use headroom_record::SCHEMA_VERSION;
use headroom_record::atomic::{FileError, write_atomically, write_json};
use headroom_record::provenance::Provenance;
use headroom_record::script::{RemedyPrediction, RemedyRow, ScriptFinding, ScriptRecord};
use headroom_record::timestamp::utc_iso;
use headroom_record::validation::VALIDATION_FILE;
use headroom_report::script::{gate_figure, html, markdown, terminal};
use processes::{Measuring, Processes};
use proposal::Proposal;
use scratch::Original;
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

/// Options of a script that is given after `--`.
#[derive(clap::Args)]
#[command(next_help_heading = "For a PyTorch script (after --)")]
pub struct ScriptArguments {
    /// Also try remedies of this class: `precision` (bf16) moves losses by more than rounding does
    #[arg(long, value_name = "CLASS", value_parser = ["precision"], requires = "command")]
    allow: Option<String>,
    /// Try these remedies alone
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "command", value_parser = remedy_name)]
    only: Vec<String>,
    /// Leave these remedies out
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "command", value_parser = remedy_name)]
    skip: Vec<String>,
    /// Steps that are timed in each process
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(4..))]
    steps: u32,
    /// Steps before them; more while something is being compiled
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    warmup_steps: u32,
    /// For everything, in seconds or as `5m`: remedies that no time is left for are not tried
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = duration)]
    time_limit: Duration,
    /// Show remedies and predictions, and try none
    #[arg(long, requires = "command")]
    dry_run: bool,
    /// Write the patch into the script's files, if every gate passed
    #[arg(long, requires = "command", conflicts_with = "dry_run")]
    apply: bool,
    /// Run in the working folder itself, not in copies of it: whatever the script writes lands there, many times
    #[arg(long, requires = "command")]
    in_place: bool,
    /// The script's command: python train.py …, accelerate launch …, torchrun …
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl ScriptArguments {
    pub fn is_given(&self) -> bool {
        !self.command.is_empty()
    }
}

/// Options that the command shares with the optimisation of our own model.
pub struct Shared {
    pub rounds: Option<u16>,
    pub seed: u64,
    pub output_dir: Option<PathBuf>,
    pub json: bool,
    pub undecided_fails: bool,
}

fn remedy_name(name: &str) -> Result<String, String> {
    if named(name).is_some() {
        return Ok(name.to_string());
    }
    let names: Vec<&str> = REMEDIES.iter().map(|remedy| remedy.name).collect();
    Err(format!("there is no such remedy; there are {}", names.join(", ")))
}

/// `300`, `300s`, `5m` or `1h`.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|letter: char| letter.is_alphabetic()).unwrap_or(text.len()));
    let unit = match unit {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("a time is seconds, or a number with s, m or h".into()),
    };
    let seconds = number.parse::<f64>().map_err(|_| "a time is seconds, or a number with s, m or h")? * unit;
    if !(10.0..=24.0 * 3600.0).contains(&seconds) {
        return Err("between ten seconds and a day".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Optimizer steps: fewer leave nothing to time and to record.
const LEAST_STEPS: u32 = 20;

/// Processes of the script as it is before anything is tried, and of each remedy.
const REPEATS: Repeats = Repeats { originals: 3, least: 1, most: 4, finals: 4 };

pub fn run(arguments: ScriptArguments, shared: Shared, entry: &mut Entry) -> Result<ExitCode> {
    let results = shared.output_dir.clone().unwrap_or_else(|| results_folder(&arguments.command));
    let results = std::path::absolute(results)?;
    let made = make_folders(&results)?;
    let done = run_into(&results, &arguments, &shared, entry);
    if !results.join(VALIDATION_FILE).exists() {
        // Folders that were made for nothing, as far as they are empty.
        let _ = std::fs::remove_dir(results.join(RECORDING));
        remove_folders(&made);
    }
    done
}

/// Folder of the recording beneath that of the results.
const RECORDING: &str = "recording";

fn run_into(results: &Path, arguments: &ScriptArguments, shared: &Shared, entry: &mut Entry) -> Result<ExitCode> {
    let began = Instant::now();
    let interrupt = signals::listen_for_two(|| {})?;
    let folder = std::env::current_dir().context("cannot tell the working folder")?;
    let original = match arguments.in_place {
        true => None,
        false => Some(Original::new(folder.clone(), results)?),
    };
    let measuring = Measuring { warmup: arguments.warmup_steps, timed: arguments.steps, seed: shared.seed };
    let command = arguments.command.clone();
    let mut processes =
        Processes::new(command, (folder.clone(), original), measuring, arguments.time_limit, &interrupt)?;
    begin_row(entry, results, arguments);
    let tell = |text: &str| output::note(&format!("[{:5.1} s] {text}", began.elapsed().as_secs_f64()));

    tell("recording some steps of the script as it is");
    let recording = results.join(RECORDING);
    let analysis = recorded(&mut processes, &recording, &tell);
    if interrupt.signal() != 0 {
        return interrupted(entry, &interrupt);
    }
    let analysis = analysis?;
    tell("running the script as it is, without a profiler");
    let limit = arguments.time_limit.as_secs_f64();
    let mut told = |row: &Row| {
        let left = (limit - began.elapsed().as_secs_f64()).max(0.0);
        output::note(&format!("[{:5.1} s] {}; {left:.0} s are left", began.elapsed().as_secs_f64(), row_in_words(row)));
    };
    let repeats = Repeats {
        finals: shared.rounds.map_or(REPEATS.finals, usize::from),
        originals: if arguments.dry_run { 1 } else { REPEATS.originals },
        ..REPEATS
    };
    let begun = Search::begin(&mut processes, repeats, &mut told);
    if interrupt.signal() != 0 {
        return interrupted(entry, &interrupt);
    }
    let search = begun.map_err(not_measured)?;
    let first = search.originals()[0].clone();
    tell(&format!("{} per step as it is", milliseconds(first.seconds())));
    if let Some(why) = unfit(&first) {
        bail!("{why}");
    }
    let offered = first.offered.clone().context("the hook did not say which remedies apply")?;
    let wanted =
        Wanted { precision: arguments.allow.is_some(), only: arguments.only.clone(), skip: arguments.skip.clone() };
    let (tried, left) = candidates(&offered, &expected(&analysis), &wanted);
    let about = Told { arguments, analysis: &analysis, began };
    if arguments.dry_run {
        let record = about.record(search.originals(), &dry(tried), left, None);
        return shown(&record, shared, results, "").map(|()| ExitCode::SUCCESS);
    }
    tell(&format!("trying {}", counted(tried.len(), "remedy", "remedies")));
    let found = search.go(tried);
    if let Some(spoiled) = processes.spoiled() {
        bail!("{spoiled}");
    }
    if interrupt.signal() != 0 {
        return interrupted(entry, &interrupt);
    }
    let found = found.map_err(not_measured)?;
    let mut record = about.record(&found.originals, &found.rows, left, Some(&found));
    let mut proposal = Proposal::of(&found, &folder, &main_script(&arguments.command).unwrap_or_default());
    if !proposal.is_empty() && !arguments.in_place {
        tell("running a copy with the patch in it, without remedies from outside");
        proposal.measure(&mut processes, &found, repeats.finals);
    }
    if arguments.apply && verdict(&record, shared.undecided_fails) == ExitCode::SUCCESS {
        proposal.apply(&folder, &found.speedup)?;
    }
    record.patch = proposal.record();
    record.seconds = began.elapsed().as_secs_f64();
    let record = record.with_provenance();
    entry.figures(headline(&record));
    entry.version(&if record.kept.is_empty() { "as it is".to_string() } else { record.kept.join("+") });
    let difference = proposal.difference();
    if !difference.is_empty() {
        write_atomically(&results.join("optimize.patch"), difference.as_bytes())?;
    }
    shown(&record, shared, results, &difference)?;
    Ok(verdict(&record, shared.undecided_fails))
}

/// Into a folder of its own; what it says of the step.
fn recorded(processes: &mut Processes, into: &Path, tell: &dyn Fn(&str)) -> Result<Analysis> {
    if into.exists() && !into.with_file_name(VALIDATION_FILE).exists() {
        bail!("{} is not a recording of this command\n  help: name another folder with --output-dir", into.display());
    }
    match std::fs::remove_dir_all(into) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(FileError::new("remove the recording before this one", into)(error).into());
        }
        _ => {}
    }
    std::fs::create_dir_all(into).map_err(FileError::new("make the folder", into))?;
    let traces = processes.record(into).map_err(|why| RunFailed(format!("the script was not recorded: {why}")))?;
    let analysis = analyze::analysis_of(&traces, &[], thresholds(&[])?)?;
    if let Some(first) = analysis.findings.first() {
        tell(&format!("first finding: {}", first.message));
    }
    Ok(analysis)
}

fn interrupted(entry: &mut Entry, interrupt: &signals::Interrupt) -> Result<ExitCode> {
    entry.interrupted();
    output::note("interrupted; no process is left running, and nothing of yours was changed");
    Ok(interrupt.exit_code())
}

fn not_measured(NotMeasured(why): NotMeasured) -> anyhow::Error {
    RunFailed(format!(
        "the script cannot be measured: {why}\n  help: it must run by itself first, and take at least {} optimizer steps; \
         --steps and --warmup-steps ask for fewer",
        LEAST_STEPS
    ))
    .into()
}

/// Why a script that runs gives nothing to hold remedies against.
fn unfit(note: &Note) -> Option<String> {
    let problem = note.problems.iter().find(|problem| problem.code == "no-loss" || problem.code == "no-module")?;
    Some(format!(
        "{}: nothing could be proved of a remedy\n  help: `headroom record` and `headroom analyze` say what holds it back",
        problem.text
    ))
}

/// Savings that the roadmap expects, by rule, as shares of the step.
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

/// Everything that a record is made of besides the measurements.
struct Told<'a> {
    arguments: &'a ScriptArguments,
    analysis: &'a Analysis,
    began: Instant,
}

impl Told<'_> {
    fn record(&self, originals: &[Note], tried: &[Row], left: Vec<Row>, found: Option<&Found>) -> ScriptRecord {
        let first = &originals[0];
        let logs: Vec<f64> = originals.iter().filter_map(Note::seconds).map(f64::ln).collect();
        let rows = tried.iter().map(|row| remedy_row(row, true));
        let remedies: Vec<RemedyRow> = rows.chain(left.iter().map(|row| remedy_row(row, false))).collect();
        let kept = found.map_or(vec![], |found| found.kept.names());
        let class = found.map_or("same", |found| class_of(&found.kept).name());
        let all = found.filter(|found| !found.kept.is_empty());
        let gates = all.map_or_else(BTreeMap::new, |found| {
            let class = class_of(&found.kept);
            gates(&found.originals, &found.finals, &found.proof, class, found.speedup).iter().map(gate).collect()
        });
        let speedup = found.map(|found| found.speedup);
        ScriptRecord {
            schema_version: SCHEMA_VERSION,
            kind: "script".into(),
            timestamp: utc_iso(SystemTime::now()),
            command: self.arguments.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            device: first.machine.device_name.clone().unwrap_or_else(|| first.machine.device.clone()),
            torch: first.machine.torch.clone().unwrap_or_default(),
            measured_on: first.measured_on.clone().unwrap_or_default(),
            baseline_step_seconds: (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp(),
            timed_steps: first.step_seconds.len() as u64,
            baseline_memory_mb: originals.iter().filter_map(Note::memory).max().map(mebibytes),
            own_loss_spread: finite(spread(originals)),
            findings: self.analysis.findings.iter().map(finding).collect(),
            prediction: RemedyPrediction::of(&remedies),
            remedies,
            kept: kept.into_iter().map(String::from).collect(),
            class: class.into(),
            speedup: speedup.map_or(1.0, |speedup| speedup.ratio),
            ci95_low: speedup.map_or(1.0, |speedup| speedup.low),
            ci95_high: speedup.map_or(1.0, |speedup| speedup.high),
            rounds: speedup.map_or(0, |speedup| speedup.rounds as u64),
            gates,
            patch: None,
            dry_run: self.arguments.dry_run,
            processes: found.map_or(originals.len(), |found| found.processes) as u64,
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

fn remedy_row(row: &Row, was_tried: bool) -> RemedyRow {
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
        kept: row.outcome == Outcome::Kept,
        was_tried,
        outcome: row.outcome.words(),
        did: row.did.clone(),
    }
}

/// JSON has no infinity.
fn finite(figure: f64) -> f64 {
    figure.clamp(f64::MIN, f64::MAX)
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

fn row_in_words(row: &Row) -> String {
    let mut text = row.candidate.remedy.name.to_string();
    if let Some(predicted) = row.candidate.predicted {
        let _ = write!(text, " (predicted to save {:.0}%)", 100.0 * predicted);
    }
    if let Some(speedup) = row.speedup {
        let _ = write!(text, ": {:.2}× ({:.2} to {:.2})", speedup.ratio, speedup.low, speedup.high.min(99.0));
    }
    let outcome = row.outcome.words();
    // The whole stands in the report.
    let _ = write!(text, ", {}", outcome.lines().next().unwrap_or_default());
    text
}

fn milliseconds(seconds: Option<f64>) -> String {
    seconds.map_or("no time".into(), |seconds| format!("{:.1} ms", 1e3 * seconds))
}

fn counted(count: usize, one: &str, several: &str) -> String {
    if count == 1 { format!("one {one}") } else { format!("{count} {several}") }
}

/// Every form of it.
fn shown(record: &ScriptRecord, shared: &Shared, results: &Path, difference: &str) -> Result<()> {
    write_json(&results.join(VALIDATION_FILE), record)?;
    write_atomically(&results.join("optimize.md"), markdown(record, difference).as_bytes())?;
    write_atomically(&results.join("optimize.html"), html(record, difference).as_bytes())?;
    match shared.json {
        true => output::result(&(serde_json::to_string_pretty(record)? + "\n"))?,
        false => output::result(&terminal(record))?,
    }
    output::note(&format!("validation.json, optimize.md and optimize.html in {}", results.display()));
    for (name, gate) in record.gates.iter().filter(|(_, gate)| gate.result != "pass") {
        let said = if gate.result == "fail" { "gate failed" } else { "gate not decided" };
        let (figure, limit) = (gate_figure(name, gate.figure), gate_figure(name, gate.limit));
        output::note(&format!("{said}: {name} is {figure}, the limit is {limit} ({})", gate.about));
    }
    Ok(())
}

fn verdict(record: &ScriptRecord, undecided_fails: bool) -> ExitCode {
    let is_no = |result: &str| result == "fail" || result == "undecided" && undecided_fails;
    ExitCode::from(u8::from(record.gates.values().any(|gate| is_no(&gate.result))))
}

fn headline(record: &ScriptRecord) -> Headline {
    Headline {
        step_seconds: Some(record.kept_step_seconds()),
        speedup: Some(record.speedup),
        findings: Some(record.findings.len() as u64),
        measured: true,
        ..Headline::default()
    }
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

/// `runs/optimize-train` for `python train.py`.
fn results_folder(command: &[OsString]) -> PathBuf {
    let script = main_script(command);
    let name = script.as_deref().or(command.first().map(Path::new)).and_then(Path::file_stem).unwrap_or_default();
    let mut folder = OsString::from("optimize-");
    folder.push(name);
    Path::new("runs").join(folder)
}

/// The first word that is a Python file, or the module of `-m`.
fn main_script(command: &[OsString]) -> Option<PathBuf> {
    let file = command.iter().skip(1).map(Path::new).find(|word| word.extension().is_some_and(|end| end == "py"));
    if let Some(file) = file {
        return Some(file.to_path_buf());
    }
    let at = command.iter().position(|word| word == "-m")?;
    let module = command.get(at + 1)?.to_str()?.replace('.', "/");
    let places = [format!("{module}.py"), format!("{module}/__main__.py")];
    places.into_iter().map(PathBuf::from).find(|place| place.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_given_in_seconds_minutes_or_hours() {
        let seconds = |text: &str| duration(text).map(|time| time.as_secs_f64());
        assert_eq!(seconds("300"), Ok(300.0));
        assert_eq!(seconds("90s"), Ok(90.0));
        assert_eq!(seconds("1.5m"), Ok(90.0));
        assert_eq!(seconds("1h"), Ok(3600.0));
        for wrong in ["5", "x", "5d", "-3m", "nan", "inf", "30h", ""] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_script_is_the_first_python_file_of_the_command() {
        let command = |text: &str| -> Vec<OsString> { text.split(' ').map(OsString::from).collect() };
        let of = |text: &str| main_script(&command(text));
        assert_eq!(of("python -u train.py --config other.py"), Some("train.py".into()));
        assert_eq!(of("torchrun --nproc_per_node 2 src/main.py"), Some("src/main.py".into()));
        assert_eq!(of("trainer --steps 3"), None);
        assert_eq!(results_folder(&command("python src/train.py")), Path::new("runs/optimize-train"));
        assert_eq!(results_folder(&command("litgpt pretrain")), Path::new("runs/optimize-litgpt"));
    }

    #[test]
    fn a_name_that_is_no_remedy_is_refused_with_those_there_are() {
        assert_eq!(remedy_name("tf32"), Ok("tf32".into()));
        assert!(remedy_name("tf33").unwrap_err().contains("compile-blocks"));
    }
}
