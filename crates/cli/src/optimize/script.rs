//! `headroom optimize -- python train.py …`: applies remedies to a PyTorch script from outside, predicts, measures and
//! verifies each, and writes the equivalent patch.

mod arguments;
mod conducting;
mod telling;

use crate::analyze::{self, thresholds};
use crate::failure::{self, RunFailed};
use crate::output;
use crate::output::live::LiveLine;
use crate::registry::{About, Entry};
use crate::signals;
use crate::train::folder::{make_folders, remove_folders};
use anyhow::{Context, Result, bail};
pub use arguments::ScriptArguments;
use arguments::{main_script, notebook, results_folder};
use headroom_diagnosis::Analysis;
use headroom_record::atomic::FileError;
use headroom_record::script::ScriptRecord;
use headroom_record::validation::VALIDATION_FILE;
use headroom_report::lint::difference as unified;
use headroom_scripts::candidates::{Candidate, candidates};
use headroom_scripts::isolation::Isolation;
use headroom_scripts::measurements::Measurements;
pub use headroom_scripts::measurements::PRINTED_FILE;
use headroom_scripts::note::Note;
use headroom_scripts::outcome::{Outcome, Row};
use headroom_scripts::patch::Changed;
use headroom_scripts::printed::without_output;
use headroom_scripts::processes::{Measuring, Processes, Surroundings, TimeLimit};
use headroom_scripts::proposal::Proposal;
use headroom_scripts::search::{NotMeasured, Repeats, Search};
use headroom_scripts::stored_patch::StoredPatch;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use telling::{
    End, Known, OfferedPatch, RecordContext, counted, findings_in_words, headline, milliseconds, row_in_words, shown,
    verdict, written,
};

/// Options that the command shares with the optimization of our own model.
pub struct Shared {
    pub time_limit: Duration,
    pub allow_precision: bool,
    pub rounds: Option<u16>,
    pub seed: u64,
    pub output_dir: Option<PathBuf>,
    pub json: bool,
    pub undecided_fails: bool,
}

/// The least time limit of a script.
const LEAST_TIME: Duration = Duration::from_secs(10);

/// Numbers of processes: of the unchanged script including the recorded one, of each remedy, and of the final turns.
const REPEATS: Repeats = Repeats { originals: 2, most: 4, finals: 4 };

pub fn run(arguments: ScriptArguments, shared: Shared, entry: &mut Entry) -> Result<ExitCode> {
    if arguments.in_place {
        bail!(
            "--in-place is gone: a search runs the script many times, and never on your own files\n  help: --allow-write PATH \
             lets it write to a folder of yours"
        );
    }
    if shared.time_limit < LEAST_TIME {
        bail!(
            "--time-limit is {} s, too little for any script\n  help: ten seconds at the least; some minutes for most",
            shared.time_limit.as_secs_f64()
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

/// Said after the first Ctrl-C.
const ASKED: &str = "ending the search; what is kept so far is proved next (Ctrl-C again ends at once)";

fn run_into(results: &Path, arguments: &ScriptArguments, shared: &Shared, entry: &mut Entry) -> Result<ExitCode> {
    let began = Instant::now();
    let interrupt = signals::listen_for_two(|signal| {
        if signals::is_ctrl_c(signal) {
            output::note(ASKED);
        }
    })?;
    let folder = std::env::current_dir().context("cannot find the working folder")?;
    let isolation = Isolation::begin(&folder, &[results.to_path_buf()], &(&arguments.isolation).into())?;
    isolation.remarks.iter().for_each(|remark| output::note(remark));
    let measuring = Measuring { warmup: arguments.warmup_steps, timed: arguments.steps, seed: shared.seed };
    let live = LiveLine::until(began + shared.time_limit);
    let surroundings = Surroundings {
        is_asked_to_end: &|| interrupt.ends_at_once(),
        is_search_over: &|| interrupt.is_asked(),
        tell: &|text| output::note(text),
        show: &|moment| live.show(&moment.words()),
    };
    let with = (surroundings, Measurements::in_folder(results)?);
    let time = TimeLimit::of(began, shared.time_limit);
    let mut processes = Processes::new(arguments.command.clone(), isolation, measuring, time, with)?;
    begin_row(entry, results, arguments);
    let tell = |text: &str| output::note(&format!("[{:5.1} s] {text}", began.elapsed().as_secs_f64()));

    tell("timing and recording the unchanged script");
    let recorded = recorded(&mut processes, &results.join(RECORDING));
    if interrupt.is_asked() {
        live.end();
        return interrupted(entry, &interrupt, &processes);
    }
    let (analysis, measured) = recorded?;
    tell(&findings_in_words(&analysis));
    let wanted = arguments.wanted(shared.allow_precision);
    let about = RecordContext { arguments, wanted: &wanted, analysis: &analysis, began };
    let mut known = Known { originals: measured.into_iter().collect(), ..Known::default() };
    let done = searched(&about, (&mut processes, &folder), &mut known, shared, &tell);
    live.end();
    match done {
        Err(error) if !interrupt.is_asked() => {
            let why = failure::message(&error);
            let record = about.script_record(&known, End::Failed(without_output(&why).to_string()));
            written(&record, results, None)?;
            output::note(&format!("the findings of the recording are in {}", results.join(VALIDATION_FILE).display()));
            Err(error)
        }
        done if interrupt.is_asked() && (done.is_err() || interrupt.ends_at_once()) => {
            written(&about.script_record(&known, End::Interrupted), results, None)?;
            output::note(&format!("what is known so far is in {}", results.join(VALIDATION_FILE).display()));
            interrupted(entry, &interrupt, &processes)
        }
        done => {
            let end = if interrupt.is_asked() { End::Interrupted } else { End::Finished };
            let record = about.script_record(&known, end);
            let code = concluded(record, done?, &folder, (results, arguments, shared), entry)?;
            if interrupt.is_asked() {
                return interrupted(entry, &interrupt, &processes);
            }
            Ok(code)
        }
    }
}

/// The search after the recording, up to the proof; `known` has what is known by then, also where it fails. Without a
/// proposal it was a dry run.
fn searched(
    about: &RecordContext,
    (processes, folder): (&mut Processes, &Path),
    known: &mut Known,
    shared: &Shared,
    tell: &dyn Fn(&str),
) -> Result<Option<Proposal>> {
    let RecordContext { arguments, wanted, analysis, began } = *about;
    let measured = known.originals.first().cloned();
    let limit = shared.time_limit.as_secs_f64();
    let mut told = |row: &Row| {
        let left = (limit - began.elapsed().as_secs_f64()).max(0.0);
        output::note(&format!("[{:5.1} s] {}; {left:.0} s left", began.elapsed().as_secs_f64(), row_in_words(row)));
    };
    let repeats = Repeats {
        finals: shared.rounds.map_or(REPEATS.finals, usize::from),
        originals: if arguments.dry_run { 1 } else { REPEATS.originals },
        ..REPEATS
    };
    if !arguments.dry_run {
        tell("running the unchanged script without a profiler");
    }
    let steps = arguments.warmup_steps + arguments.steps;
    let mut search = Search::begin(processes, repeats, measured, &mut told).map_err(|why| not_measured(why, steps))?;
    known.originals = search.originals().to_vec();
    let first = known.originals[0].clone();
    tell(&format!("the unchanged script takes {} per step", milliseconds(first.seconds())));
    if let Some(why) = unfit(&first) {
        bail!("{why}");
    }
    let offered = first.offered.clone().context("the hook did not say which remedies apply")?;
    let (tried, left) = candidates(&offered, &expected(analysis), wanted);
    known.left = left;
    if arguments.dry_run {
        known.rows = dry(tried);
        return Ok(None);
    }
    tell(&format!("trying {}", counted(tried.len(), "remedy", "remedies")));
    let (rows, conducted) = conducting::try_candidates(&mut search, tried, tell);
    known.conducted = conducted;
    let script = main_script(&arguments.command).unwrap_or_default();
    let mut proposal = Proposal::of(search.kept(), search.kept_note(), folder, &script);
    if !search.kept().is_empty() {
        tell("proving what was kept: fresh processes of the unchanged script and of a patched copy, in turns");
    }
    let found = search.finish(rows, proposal.files()).map_err(|why| not_measured(why, steps))?;
    proposal.ran(&found);
    known.originals.clone_from(&found.originals);
    known.rows.clone_from(&found.rows);
    known.found = Some(found);
    Ok(Some(proposal))
}

/// Applies the patch if that was asked for, and writes and prints the result.
fn concluded(
    mut record: ScriptRecord,
    proposal: Option<Proposal>,
    folder: &Path,
    (results, arguments, shared): (&Path, &ScriptArguments, &Shared),
    entry: &mut Entry,
) -> Result<ExitCode> {
    let Some(mut proposal) = proposal else {
        return shown(&record, shared, results, None).map(|()| ExitCode::SUCCESS);
    };
    let code = verdict(&record, shared.undecided_fails);
    // A person who ends the search wants to read its result first.
    if arguments.apply && code == ExitCode::SUCCESS && record.ended == "finished" {
        proposal.apply(folder)?;
    }
    record.patch = proposal.patch_record();
    let record = record.with_provenance();
    entry.figures(headline(&record));
    entry.version(&if record.kept.is_empty() { "unchanged".to_string() } else { record.kept.join("+") });
    let run = entry.id();
    let patch = (!proposal.is_empty()).then(|| OfferedPatch {
        difference: difference(proposal.changed()),
        stored: StoredPatch::of(proposal.changed(), folder, run),
        command: match run {
            Some(run) => format!("headroom apply {run}"),
            None => format!("headroom apply {}", results.display()),
        },
    });
    shown(&record, shared, results, patch.as_ref())?;
    Ok(code)
}

/// Records into a separate folder; returns the analysis of the step, and a measurement of the same process.
fn recorded(processes: &mut Processes, into: &Path) -> Result<(Analysis, Option<Note>)> {
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
    Ok((analyze::analysis_of(&traces, &[], thresholds(&[])?)?, measured))
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
