//! `headroom record -- python train.py …`: traces some steps of an unmodified PyTorch script.

mod shield;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use headroom_record::atomic::FileError;
use headroom_record::timestamp::utc_iso;
use headroom_report::analyze::Invocation;
use headroom_scripts::hook;
use headroom_scripts::recording::{Note, read_notes};
use headroom_trace::GzipRatio;
use shield::{Asked, Shield};

use crate::analyze::{self, About, Format, SeveralRuns, read_traces};
use crate::failure::RunFailed;
use crate::isolation::IsolationArguments;
use crate::output;
use crate::serve::is_trace_name;
use crate::shown::Shown;
use crate::signals;
use crate::study::state::compact;
use crate::train::folder::{make_folders, remove_folders};

/// Run a PyTorch script unchanged: time some steps with nothing attached, record some more, and analyze them.
///
/// Three phases follow the warm-up: steps with no profiler (the true step time), steps with a light profiler (operators, runtime
/// calls and kernels) and steps with everything (shapes, stacks, memory). All shares refer to the true step time. A script that
/// ends earlier leaves the steps recorded until then. Needs 20 steps by default.
///
/// With any --format but text, standard output holds only the analysis: the script's own output goes to standard error.
#[derive(clap::Args)]
pub struct Arguments {
    /// Folder for the trace; made if missing, refused if it holds another trace [default: runs/TIME-recorded]
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Record into a folder that holds another recording, and remove the old traces afterwards
    #[arg(long, requires = "output_dir")]
    overwrite: bool,
    /// Steps before recording
    #[arg(long, default_value_t = 3, value_name = "N")]
    warmup_steps: u32,
    /// Steps to time with no profiler attached, before recording
    #[arg(long, default_value_t = 8, value_name = "N")]
    timed_steps: u32,
    /// Steps to record with the light profiler, and again with everything
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// End the script once the steps are timed and recorded; everything else that it writes is thrown away
    #[arg(long)]
    stop: bool,
    /// Throw away everything that the script writes, apart from the recording
    #[arg(long)]
    isolated: bool,
    #[command(flatten)]
    isolation: IsolationArguments,
    /// Scripts to join with the trace: findings then name source lines
    #[arg(long, value_name = "PATH")]
    source: Vec<PathBuf>,
    #[command(flatten)]
    shown: Shown<Format>,
    /// The command: python train.py …
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Messages of PyTorch's profiler below this level are not printed.
const PROFILER_LOG_LEVEL: &str = "KINETO_LOG_LEVEL";
/// Files that the drivers of NVIDIA's and AMD's GPUs make.
const GPU_FILES: [&str; 2] = ["/dev/nvidiactl", "/dev/kfd"];

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let interrupt = signals::listen_for_two(|_| {})?;
    let folder = Folder::claim(arguments.output_dir.as_deref(), arguments.overwrite)?;
    let asked = Asked { stop: arguments.stop, isolated: arguments.isolated };
    let shield = Shield::new(&asked, &arguments.isolation, &folder.path)?;
    let hooks = shield.hooks();
    hook::install_starter(&hooks)?;
    if shield.is_there() {
        hook::install_surroundings(&hooks)?;
    }
    // Not in the user's folder, where only traces are written.
    let notes = shield.notes();
    std::fs::create_dir_all(&notes).context("cannot make a temporary folder for the hook's notes")?;

    let mut command = shield.command(&arguments.command)?;
    command.env("PYTHONPATH", hook::python_path(&hooks)?);
    command.env("HEADROOM_RECORD_FOLDER", &folder.path);
    command.env("HEADROOM_RECORD_NOTES", &notes);
    command.env("HEADROOM_RECORD_WARMUP", arguments.warmup_steps.to_string());
    command.env("HEADROOM_RECORD_TIMED", arguments.timed_steps.to_string());
    command.env("HEADROOM_RECORD_STEPS", arguments.steps.to_string());
    command.env("HEADROOM_RECORD_JOB", format!("{}-{}", utc_iso(SystemTime::now()), std::process::id()));
    if arguments.stop {
        command.env("HEADROOM_RECORD_STOP", "1");
    }
    // Without a GPU all that PyTorch's profiler logs is that there is none. With one, its errors are worth reading.
    if std::env::var_os(PROFILER_LOG_LEVEL).is_none() && !GPU_FILES.iter().any(|file| Path::new(file).exists()) {
        command.env(PROFILER_LOG_LEVEL, "99");
    }
    if arguments.shown.format() != Format::Text {
        command.stdout(std::io::stderr());
    }
    let program = arguments.command[0].to_string_lossy().into_owned();
    let mut child = command.spawn().with_context(|| format!("cannot start `{program}`"))?;
    let status = shield.wait(&mut child, &interrupt)?;
    let status = shield.ended(status).with_context(|| format!("cannot start `{program}`"))?;
    if let Some(warning) = shield.warning().filter(|_| interrupt.signal() == 0) {
        output::note(&warning);
    }
    let notes = read_notes(&notes)?;
    let traces: BTreeSet<PathBuf> = notes.iter().filter_map(|note| note.trace.clone()).collect();
    let traces: Vec<PathBuf> = traces.into_iter().collect();
    if interrupt.signal() != 0 {
        let left = match traces.first() {
            Some(trace) => format!("what was recorded before is in {}", trace.display()),
            None => "nothing was recorded".to_string(),
        };
        let claim = shield.claim().map_or(String::new(), |claim| format!("; {claim}"));
        output::note(&format!("interrupted; {left}{claim}"));
        folder.keep_if(!traces.is_empty(), &traces);
        return Ok(interrupt.exit_code());
    }
    if traces.is_empty() {
        return Err(no_trace(&notes, &arguments, &program, status));
    }
    let recorded = analyze::as_typed(std::slice::from_ref(&folder.path));
    folder.keep_if(true, &traces);
    for trace in &traces {
        output::note(&format!("recorded {}", trace.display()));
    }
    for line in left_out(&notes, &arguments) {
        output::note(&line);
    }
    // The traces' headers hold the true step time, so that `analyze` on the folder gives the same result.
    let runs = SeveralRuns::of(read_traces(&traces, GzipRatio::Usual)?)?;
    let analyses = runs.measured(&arguments.source, About::default(), &analyze::thresholds(&[])?)?;
    let typed = Invocation { traces: recorded, has_source: !arguments.source.is_empty(), is_verbose: false };
    analyze::print(&analyses, &runs.why, arguments.shown.format(), &typed)?;
    match status.success() {
        true => Ok(ExitCode::SUCCESS),
        false => Err(RunFailed(format!(
            "the script failed: `{program}` ended with {status}; the steps before that were recorded and are analyzed above"
        ))
        .into()),
    }
}

/// The folder of one recording, without other traces.
struct Folder {
    path: PathBuf,
    /// Traces of an earlier recording, which the new one replaces.
    replaced: Vec<PathBuf>,
    made: Vec<PathBuf>,
}

impl Folder {
    fn claim(asked: Option<&Path>, overwrite: bool) -> Result<Folder> {
        let Some(path) = asked else { return Folder::claim_new() };
        let made = make_folders(path)?;
        let path = std::path::absolute(path)?;
        let traces = traces_in(&path)?;
        if let (Some(trace), false) = (traces.first(), overwrite) {
            bail!(
                "{} holds another trace already ({})\n  help: name another folder, or add --overwrite",
                path.display(),
                trace.file_name().unwrap_or_default().display()
            );
        }
        let replaced = traces.into_iter().filter(|trace| is_a_recording(trace)).collect();
        Ok(Folder { path, replaced, made })
    }

    fn claim_new() -> Result<Folder> {
        let mut made = make_folders(Path::new("runs"))?;
        let stamp = compact(&utc_iso(SystemTime::now()), '-');
        for attempt in 1..1000 {
            let suffix = if attempt == 1 { String::new() } else { format!("-{attempt}") };
            let path = std::path::absolute(format!("runs/{stamp}-recorded{suffix}"))?;
            match std::fs::create_dir(&path) {
                Ok(()) => {
                    made.insert(0, path.clone());
                    return Ok(Folder { path, replaced: vec![], made });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(FileError::new("make the folder", &path)(error).into()),
            }
        }
        bail!("runs/ holds a thousand recordings from this very second\n  help: name one with --output-dir")
    }

    /// Keeps the new recording and removes the earlier one; without a new one, everything stays.
    fn keep_if(mut self, recorded: bool, traces: &[PathBuf]) {
        if recorded {
            self.made.clear();
            for old in self.replaced.drain(..).filter(|old| !traces.contains(old)) {
                let _ = std::fs::remove_file(&old);
                let _ = std::fs::remove_file(light_of(&old));
            }
        }
    }
}

/// The path of the light trace that belongs to a trace.
fn light_of(trace: &Path) -> PathBuf {
    let name = trace.file_name().unwrap_or_default();
    trace.with_file_name("light").join(name)
}

/// Removes folders that were created but stayed empty.
impl Drop for Folder {
    fn drop(&mut self) {
        remove_folders(&self.made);
    }
}

fn traces_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    files.retain(|path| path.file_name().is_some_and(|name| is_trace_name(&name.to_string_lossy())));
    files.sort();
    Ok(files)
}

/// Whether the trace has the hook's name: `rank0.4711.pt.trace.json`.
fn is_a_recording(trace: &Path) -> bool {
    let name = trace.file_name().unwrap_or_default().to_string_lossy();
    let words = name.strip_prefix("rank").and_then(|name| name.strip_suffix(".pt.trace.json"));
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    words.and_then(|words| words.split_once('.')).is_some_and(|(rank, process)| is_number(rank) && is_number(process))
}

/// Why there is no trace, earliest failure first.
fn no_trace(notes: &[Note], arguments: &Arguments, program: &str, status: ExitStatus) -> anyhow::Error {
    let steps = notes.iter().map(|note| note.steps).max().unwrap_or(0);
    if !status.success() {
        let when = match steps {
            0 => "before its first training step".to_string(),
            steps => format!("after {steps} training steps, before enough were recorded"),
        };
        return RunFailed(format!(
            "the script failed: `{program}` ended with {status}, {when}\n  help: its own message is above; it must run without \
             `headroom record` first"
        ))
        .into();
    }
    if notes.iter().any(|note| note.own_profiler) {
        return anyhow::anyhow!(
            "the script uses torch.profiler itself, and two profilers cannot run at the same time: nothing was recorded\n  help: \
             `headroom analyze` reads the trace that the script exports, or switch its profiler off"
        );
    }
    if let Some(error) = notes.iter().find_map(|note| note.error.as_ref()) {
        return RunFailed(format!("recording failed inside the script: {error}")).into();
    }
    let needed = arguments.warmup_steps + arguments.timed_steps + 3;
    let message = if notes.is_empty() {
        format!(
            "`{program}` never loaded torch.optim: nothing was recorded\n  help: the command after `--` must start Python with a training script"
        )
    } else if steps == 0 {
        "the script never took a training step: nothing was recorded\n  help: start it so that it trains".to_string()
    } else {
        format!(
            "the script took {steps} training steps, and {needed} are needed: nothing was recorded\n  help: lower --warmup-steps or --timed-steps, or let it train longer"
        )
    };
    // The command has to change, not the run.
    anyhow::anyhow!(message)
}

/// Phases that the script did not reach, most valuable first.
fn left_out(notes: &[Note], arguments: &Arguments) -> Vec<String> {
    let mut lines = Vec::new();
    let recorded = notes.iter().filter(|note| note.trace.is_some());
    for note in recorded {
        let timed = note.seconds_without_profiler.len();
        if timed == 0 {
            lines.push("no step was timed without the profiler: shares refer to an estimated step".to_string());
        }
        if note.phase == "done" {
            continue;
        }
        let steps = note.steps;
        let missing = match note.light_trace {
            None => "shapes, stacks and memory were not recorded",
            Some(_) => "fewer steps than asked for were recorded with shapes, stacks and memory",
        };
        let needed = arguments.warmup_steps + arguments.timed_steps + 2 * (arguments.steps + 1);
        lines.push(format!("the script ended after {steps} of the {needed} steps that all phases take: {missing}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_ends_early_is_told_what_is_missing() {
        let arguments = Arguments {
            output_dir: None,
            overwrite: false,
            warmup_steps: 3,
            timed_steps: 8,
            steps: 3,
            stop: false,
            isolated: false,
            isolation: IsolationArguments::default(),
            source: vec![],
            shown: Format::Text.into(),
            command: vec![],
        };
        let note = |phase: &str, light: Option<&str>, times: &[f64]| Note {
            steps: 14,
            trace: Some("t".into()),
            light_trace: light.map(PathBuf::from),
            seconds_without_profiler: times.to_vec(),
            phase: phase.into(),
            error: None,
            own_profiler: false,
        };
        let said = |note: Note| left_out(&[note], &arguments).join("; ");
        assert_eq!(said(note("done", Some("l"), &[0.1])), "");
        assert!(said(note("light", None, &[0.1])).contains("14 of the 19 steps that all phases take: shapes, stacks"));
        assert!(said(note("full", Some("l"), &[0.1])).contains("fewer steps than asked for"));
        assert!(said(note("done", Some("l"), &[])).contains("to an estimated step"));
    }

    #[test]
    fn only_the_hooks_own_traces_are_replaced() {
        let is_one = |name: &str| is_a_recording(Path::new(name));
        assert!(is_one("runs/rank0.4711.pt.trace.json"));
        for other in ["rank0.pt.trace.json", "host.4711.pt.trace.json", "rank0.a.pt.trace.json", "rank0.1.json"] {
            assert!(!is_one(other), "{other}");
        }
    }
}
