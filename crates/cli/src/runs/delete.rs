//! `headroom runs delete`: forgets runs; with `--with-folder` also removes the files they wrote, and nothing else.

use crate::k1::MARKDOWN_FILE;
use crate::k1::speed::SPEED_MARKDOWN_FILE;
use crate::k1::tree::TREE_MARKDOWN_FILE;
use crate::optimize::PRINTED_FILE;
use crate::output;
use crate::profile::files;
use crate::registry::{Filter, Registry, RegistryError};
use crate::shown::{Plain, Shown};
use crate::train::folder::FILES;
use anyhow::bail;
use headroom_record::atomic::FileError;
use headroom_record::k1::K1_FILE;
use headroom_record::k1_speed::K1_SPEED_FILE;
use headroom_record::k1_tree::K1_TREE_FILE;
use headroom_record::registry::{RunRow, RunStatus};
use headroom_record::validation::VALIDATION_FILE;
use headroom_scripts::stored_patch::PATCH_FILE;
use serde_json::json;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct Arguments {
    /// Numbers, names, or newest
    #[arg(required = true)]
    runs: Vec<String>,
    /// Also remove the files that the run wrote, and its folder if nothing else is in it
    #[arg(long)]
    with_folder: bool,
    #[command(flatten)]
    shown: Shown<Plain>,
}

/// Files that commands other than `train` and `profile` write.
const MORE_FILES: [&str; 20] = [
    PRINTED_FILE,
    VALIDATION_FILE,
    "optimize.md",
    "optimize.html",
    "optimize.patch",
    PATCH_FILE,
    "study.json",
    "study.md",
    "study.html",
    "scaling.json",
    "scaling.md",
    "scaling.html",
    K1_FILE,
    MARKDOWN_FILE,
    K1_TREE_FILE,
    TREE_MARKDOWN_FILE,
    K1_SPEED_FILE,
    SPEED_MARKDOWN_FILE,
    "prose.txt",
    "code.txt",
];

pub fn run(registry: &Registry, flags: &Arguments) -> anyhow::Result<()> {
    let mut runs = vec![];
    let mut unreadable = vec![];
    for which in &flags.runs {
        match registry.find(which) {
            Ok(run) => runs.push(run),
            Err(RegistryError::Row { id, .. }) => unreadable.push(id),
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(running) = runs.iter().find(|run| run.status == RunStatus::Running) {
        bail!("run {} is still running\n  help: end it first", running.id);
    }
    for &id in &unreadable {
        registry.delete(id)?;
        output::note(&format!("run {id}, which cannot be read, is forgotten; its files stay where they are"));
    }
    for run in &runs {
        forget_output(registry, run)?;
        if flags.with_folder {
            remove_files(registry, run)?;
        } else if let Some(folder) = run.start.folder.as_ref().filter(|folder| Path::new(folder).exists()) {
            output::note(&format!("{folder} stays; --with-folder would have removed the run's files there"));
        }
        registry.delete(run.id)?;
        output::note(&format!("run {} is forgotten", run.id));
    }
    if flags.shown.is_json() {
        let forgotten: Vec<i64> = unreadable.into_iter().chain(runs.iter().map(|run| run.id)).collect();
        output::result(&format!("{:#}\n", json!({ "forgotten": forgotten })))?;
    }
    Ok(())
}

/// Removes what a failing script printed: it may hold secrets that no mask recognised, so it goes with the run.
fn forget_output(registry: &Registry, run: &RunRow) -> anyhow::Result<()> {
    match folder_of(run) {
        Some(folder) if run.start.command == "optimize" && later_in(registry, run)?.is_none() => {
            Ok(remove_if_there(&folder.join(PRINTED_FILE))?)
        }
        _ => Ok(()),
    }
}

pub fn folder_of(run: &RunRow) -> Option<&Path> {
    run.start.folder.as_deref().map(Path::new).filter(|folder| folder.is_dir())
}

/// A later run in the same folder, if there is one: `--overwrite` gives it the folder of an earlier one.
pub fn later_in(registry: &Registry, run: &RunRow) -> anyhow::Result<Option<i64>> {
    let shared = registry.list(&Filter::default())?;
    let later = shared.iter().find(|other| other.id > run.id && other.start.folder == run.start.folder);
    Ok(later.map(|other| other.id))
}

/// Where the files of a run are in its folder, whether they exist or not.
pub fn places(folder: &Path) -> Result<Vec<PathBuf>, FileError> {
    let named = FILES.iter().chain(&MORE_FILES).map(|name| folder.join(name));
    Ok(files::places(folder)?.into_iter().chain(named).collect())
}

fn remove_if_there(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(FileError::new("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Removes the files of a run, and its folder if nothing else is in it.
pub fn remove_files(registry: &Registry, run: &RunRow) -> anyhow::Result<()> {
    let Some(folder) = folder_of(run) else { return Ok(()) };
    if let Some(later) = later_in(registry, run)? {
        output::note(&format!("{} stays: run {later} has been written there since", folder.display()));
        return Ok(());
    }
    files::clear(folder)?;
    for path in places(folder)? {
        remove_if_there(&path)?;
    }
    match fs::remove_dir(folder) {
        Ok(()) => output::note(&format!("{} is removed", folder.display())),
        Err(_) => output::note(&format!("{} stays: it holds other files too", folder.display())),
    }
    Ok(())
}
