//! `headroom record -- python train.py …`: a trace of some steps of a PyTorch script, which is run as it is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::analyze::{self, Format};
use crate::failure::RunFailed;
use crate::output;

/// Run a PyTorch script unchanged, leave a trace of a few steps after warm-up, and analyze it.
#[derive(clap::Args)]
pub struct Arguments {
    /// Where the trace goes; made if missing
    #[arg(long, value_name = "DIR", default_value = "runs/recorded")]
    output_dir: PathBuf,
    /// Steps before recording
    #[arg(long, default_value_t = 3, value_name = "N")]
    warmup_steps: u32,
    /// Steps to record, and to time without the profiler afterwards
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// End the script once the steps are recorded and timed
    #[arg(long)]
    stop: bool,
    /// Scripts to join with the trace: findings get their lines
    #[arg(long, value_name = "PATH")]
    source: Vec<PathBuf>,
    /// How the analysis is shown
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The command: python train.py …
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What the interpreter's hook leaves behind, one file a process.
#[derive(Debug, Deserialize)]
struct Note {
    steps: u32,
    trace: Option<PathBuf>,
    seconds_without_profiler: Vec<f64>,
    error: Option<String>,
}

const HOOK: &str = include_str!("record/sitecustomize.py");

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    std::fs::create_dir_all(&arguments.output_dir)
        .with_context(|| format!("cannot make the folder {}", arguments.output_dir.display()))?;
    let folder = std::path::absolute(&arguments.output_dir)?;
    let hooks = tempfile::tempdir().context("cannot make a temporary folder for the hook")?;
    std::fs::write(hooks.path().join("sitecustomize.py"), HOOK).context("cannot write the hook")?;
    remove_old_notes(&folder)?;

    let mut command = Command::new(&arguments.command[0]);
    command.args(&arguments.command[1..]);
    command.env("PYTHONPATH", python_path(hooks.path())?);
    command.env("HEADROOM_RECORD_FOLDER", &folder);
    command.env("HEADROOM_RECORD_WARMUP", arguments.warmup_steps.to_string());
    command.env("HEADROOM_RECORD_STEPS", arguments.steps.to_string());
    if arguments.stop {
        command.env("HEADROOM_RECORD_STOP", "1");
    }
    let program = arguments.command[0].to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot start `{program}`"))?;
    let notes = read_notes(&folder)?;
    let traces: Vec<PathBuf> = notes.iter().filter_map(|note| note.trace.clone()).collect();
    if traces.is_empty() {
        return Err(no_trace(&notes, &arguments, &program, status));
    }
    for trace in &traces {
        output::note(&format!("recorded {}", trace.display()));
    }
    let milliseconds = median_milliseconds(&notes);
    match milliseconds {
        Some(milliseconds) => output::note(&format!("a step without the profiler takes {milliseconds:.2} ms (median)")),
        None => output::note("the script ended before a step without the profiler could be timed"),
    }
    let analysis = analyze::analysis_of(&traces, &arguments.source, milliseconds, analyze::thresholds(&[])?)?;
    output::result(&analyze::show(&analysis, arguments.format))?;
    match status.success() {
        true => Ok(ExitCode::SUCCESS),
        false => Err(RunFailed(format!(
            "the script failed: `{program}` ended with {status}; the steps before that were recorded and are analyzed above"
        ))
        .into()),
    }
}

/// The hook's folder first, so that the interpreter finds it; it runs the script's own `sitecustomize` afterwards.
fn python_path(hooks: &Path) -> Result<OsString> {
    let mut folders = vec![hooks.to_path_buf()];
    if let Some(existing) = std::env::var_os("PYTHONPATH").filter(|existing| !existing.is_empty()) {
        folders.extend(std::env::split_paths(&existing));
    }
    std::env::join_paths(folders).context("the temporary folder's name cannot stand in PYTHONPATH")
}

fn notes_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    files.retain(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.starts_with("record.") && name.ends_with(".json")
    });
    files.sort();
    Ok(files)
}

fn remove_old_notes(folder: &Path) -> Result<()> {
    for file in notes_in(folder)? {
        std::fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    }
    Ok(())
}

fn read_notes(folder: &Path) -> Result<Vec<Note>> {
    let mut notes = Vec::new();
    for file in notes_in(folder)? {
        let text = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        notes.push(
            serde_json::from_slice(&text).with_context(|| format!("{} is not what the hook writes", file.display()))?,
        );
    }
    Ok(notes)
}

/// Why there is no trace, in the order of what can go wrong.
fn no_trace(notes: &[Note], arguments: &Arguments, program: &str, status: ExitStatus) -> anyhow::Error {
    let steps = notes.iter().map(|note| note.steps).max().unwrap_or(0);
    if !status.success() {
        let when = match steps {
            0 => "before its first optimizer step".to_string(),
            steps => format!("after {steps} optimizer steps, before enough were recorded"),
        };
        return RunFailed(format!(
            "the script failed: `{program}` ended with {status}, {when}\n  help: what it said stands above; it must run without \
             `headroom record` first"
        ))
        .into();
    }
    if let Some(error) = notes.iter().find_map(|note| note.error.as_ref()) {
        return RunFailed(format!("recording failed inside the script: {error}")).into();
    }
    let needed = arguments.warmup_steps + arguments.steps + 1;
    let message = if notes.is_empty() {
        format!(
            "`{program}` never loaded torch.optim: nothing was recorded\n  help: the command after `--` must start Python with a training script"
        )
    } else if steps == 0 {
        "the script never took an optimizer step: nothing was recorded\n  help: give it a run that trains".to_string()
    } else {
        format!(
            "the script took {steps} optimizer steps, and {needed} are needed: nothing was recorded\n  help: lower --warmup-steps or --steps, or let it train longer"
        )
    };
    // The command, not the run, is what has to change.
    anyhow::anyhow!(message)
}

fn median_milliseconds(notes: &[Note]) -> Option<f64> {
    let mut seconds: Vec<f64> = notes.iter().flat_map(|note| note.seconds_without_profiler.iter().copied()).collect();
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).map(|seconds| 1e3 * seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_ranks_give_one_median() {
        let note =
            |times: &[f64]| Note { steps: 9, trace: None, seconds_without_profiler: times.to_vec(), error: None };
        assert_eq!(median_milliseconds(&[note(&[0.003, 0.001]), note(&[0.002])]), Some(2.0));
        assert_eq!(median_milliseconds(&[note(&[])]), None);
    }
}
