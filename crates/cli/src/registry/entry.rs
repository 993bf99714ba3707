//! A command's own row. Problems with the registry are only warnings here: they never fail the run.

use super::{Registry, RegistryError};
use crate::output;
use crate::output::colour::place_of_command;
use headroom_record::registry::{Headline, RunStart, RunStatus};
use headroom_record::timestamp::utc_iso;
use headroom_scripts::printed::without_output;
use headroom_scripts::secrets::Secrets;
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

/// Set for a process that a study starts: the id of the study's own run.
pub const PARENT_VARIABLE: &str = "HEADROOM_PARENT_RUN";

/// Empty until `begin`; then a row that `close` ends.
#[derive(Default)]
pub struct Entry {
    open: Option<Open>,
    figures: Headline,
    step_seconds: Vec<f64>,
    interrupted: bool,
}

/// A row in the registry, and everything needed to write it again.
struct Open {
    registry: Registry,
    id: i64,
    start: RunStart,
    name: Option<String>,
    /// The identity of the registry's file, which may be deleted or replaced during the run.
    file: Option<FileIdentity>,
}

/// A command's description of its run.
pub struct About<'a> {
    pub folder: Option<&'a Path>,
    pub size: Option<&'a str>,
    pub version: Option<&'a str>,
    pub configuration: Value,
    pub device: &'a str,
    pub machine: &'a str,
    pub threads: usize,
    /// A name to find the run by.
    pub name: Option<&'a str>,
}

/// More steps than any interval needs; longer runs keep their last steps.
const MOST_STEPS: usize = 10_000;

impl Entry {
    pub fn begin(&mut self, about: &About) {
        match write_row(about) {
            Ok(open) => self.open = Some(open),
            Err(error) => warn(&error),
        }
    }

    /// The run's id; `None` if it could not be recorded.
    pub fn id(&self) -> Option<i64> {
        self.open.as_ref().map(|open| open.id)
    }

    pub fn figures(&mut self, figures: Headline) {
        self.figures = figures;
    }

    /// Sets the pass list that the run ended up with, if it was unknown at the start.
    pub fn version(&mut self, label: &str) {
        if let Some(open) = &mut self.open {
            open.start.version = Some(label.into());
            if let Err(error) = open.registry.set_version(open.id, label) {
                warn(&error);
            }
        }
    }

    /// Changes figures that were set earlier.
    pub fn amend(&mut self, change: impl FnOnce(&mut Headline)) {
        change(&mut self.figures);
    }

    /// Seconds of the counted steps, without warm-up.
    pub fn step_seconds(&mut self, seconds: &[f64]) {
        self.step_seconds = seconds[seconds.len().saturating_sub(MOST_STEPS)..].to_vec();
    }

    pub fn interrupted(&mut self) {
        self.interrupted = true;
    }

    /// Ends the row according to how the command ended.
    pub fn close(&mut self, done: &anyhow::Result<ExitCode>) {
        let Some(mut open) = self.open.take() else { return };
        let (status, error) = match done {
            Ok(_) if self.interrupted => (RunStatus::Interrupted, None),
            Ok(_) => (RunStatus::Finished, None),
            Err(error) => (RunStatus::Failed, Some(without_output(&format!("{error:#}")).to_string())),
        };
        if open.file != identity(open.registry.path()) {
            match write_again(open) {
                Ok(again) => open = again,
                Err(error) => return warn(&error),
            }
        }
        match open.registry.end(open.id, status, &self.figures, &self.step_seconds, error.as_deref()) {
            Ok(true) => {}
            Ok(false) => output::note(&format!(
                "warning: run {} was deleted from the registry of runs while it was running; its files are there, its row is not",
                open.id
            )),
            Err(error) => warn(&error),
        }
    }
}

/// Writes the row into the registry that exists now.
fn write_again(lost: Open) -> Result<Open, RegistryError> {
    let path = lost.registry.path().to_path_buf();
    // Closing it would remove the log at that path, which may already be the new registry's.
    std::mem::forget(lost.registry);
    let again = insert(lost.start, lost.name)?;
    output::note(&format!(
        "warning: the registry of runs {} was deleted or replaced during the run, which is recorded again as run {}; its other \
         entries are lost",
        path.display(),
        again.id
    ));
    Ok(again)
}

fn insert(start: RunStart, name: Option<String>) -> Result<Open, RegistryError> {
    let registry = Registry::open()?;
    let id = registry.begin(&start)?;
    if let Some(name) = &name
        && let Err(error) = registry.name(id, Some(name))
    {
        warn(&error);
    }
    let file = identity(registry.path());
    Ok(Open { registry, id, start, name, file })
}

type FileIdentity = (u64, u64);

/// The file's identity; `None` if there is no such file, or the system does not provide one.
#[cfg(unix)]
fn identity(path: &Path) -> Option<FileIdentity> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|about| (about.dev(), about.ino()))
}

#[cfg(not(unix))]
fn identity(path: &Path) -> Option<FileIdentity> {
    path.exists().then_some((0, 0))
}

fn write_row(about: &About) -> Result<Open, RegistryError> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let secrets = Secrets::of_environment();
    let command_line: Vec<String> = words.iter().map(|word| secrets.masked(&word.to_string_lossy())).collect();
    let text = |path: &Path| std::path::absolute(path).unwrap_or(path.to_path_buf()).display().to_string();
    let start = RunStart {
        command: command_line.get(place_of_command(&words)).cloned().unwrap_or_default(),
        command_line,
        directory: std::env::current_dir().ok().map(|path| path.display().to_string()),
        folder: about.folder.map(text),
        size: about.size.map(String::from),
        version: about.version.map(String::from),
        configuration: about.configuration.clone(),
        device: about.device.into(),
        machine: about.machine.into(),
        threads: about.threads as u64,
        headroom_version: env!("CARGO_PKG_VERSION").into(),
        started: utc_iso(SystemTime::now()),
        parent: std::env::var(PARENT_VARIABLE).ok().and_then(|id| id.parse().ok()),
    };
    insert(start, about.name.map(String::from))
}

fn warn(error: &RegistryError) {
    output::note(&format!("warning: the run continues, but the registry of runs has no full record of it: {error}"));
}
