//! `headroom runs delete`: forgets runs; with `--with-folder` also removes the files they wrote, and nothing else.

use crate::k1::MARKDOWN_FILE;
use crate::k1::speed::SPEED_MARKDOWN_FILE;
use crate::k1::tree::TREE_MARKDOWN_FILE;
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
use serde_json::json;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

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
const MORE_FILES: [&str; 17] = [
    VALIDATION_FILE,
    "optimize.md",
    "optimize.html",
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

fn remove_files(registry: &Registry, run: &RunRow) -> anyhow::Result<()> {
    let Some(folder) = run.start.folder.as_deref().map(Path::new).filter(|folder| folder.is_dir()) else {
        return Ok(());
    };
    // `--overwrite` gives a later run the folder of an earlier one.
    let shared = registry.list(&Filter::default())?;
    let later = shared.iter().find(|other| other.id > run.id && other.start.folder == run.start.folder);
    if let Some(later) = later {
        output::note(&format!("{} stays: run {} has been written there since", folder.display(), later.id));
        return Ok(());
    }
    files::clear(folder)?;
    for name in FILES.iter().chain(&MORE_FILES) {
        let path = folder.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(FileError::new("remove", &path)(error).into());
            }
            _ => {}
        }
    }
    match fs::remove_dir(folder) {
        Ok(()) => output::note(&format!("{} is removed", folder.display())),
        Err(_) => output::note(&format!("{} stays: it holds other files too", folder.display())),
    }
    Ok(())
}
