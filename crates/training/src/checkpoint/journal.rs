//! Replaces several files as one: a journal that is rolled forward.
//!
//! New files are written and synced under `NAME.next`. Then `commit.json` appears through a single rename: from that
//! moment the new checkpoint is the valid one. Then the files are renamed to their final names and the journal is
//! removed. Whoever finds a journal finishes those renames; `.next` files without a journal belong to a save that never
//! committed, and are removed. So a kill at any moment leaves either the old checkpoint or the new one, whole.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use headroom_record::atomic::{FileError, sync_directory_of, write_atomically};
use headroom_record::reading;
use serde::{Deserialize, Serialize};

use super::companions::is_companion;
use super::{CONFIG_FILE, CheckpointError, MODEL_FILE, OPTIMIZER_FILE, STATE_FILE};

pub(super) const JOURNAL_FILE: &str = "commit.json";

/// The files of a checkpoint that every save replaces.
pub(super) const FILES: [&str; 4] = [MODEL_FILE, OPTIMIZER_FILE, CONFIG_FILE, STATE_FILE];

#[derive(Serialize, Deserialize)]
struct Journal {
    schema_version: u32,
    /// Files whose `NAME.next` replaces `NAME`.
    files: Vec<String>,
    /// Companions of the replaced checkpoint that the new one does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    removed: Vec<String>,
}

/// Counts the points at which a kill could strike, so that a test can stop at each of them.
#[derive(Debug, Default)]
pub(super) struct Moments {
    #[cfg(test)]
    pub left: Option<u64>,
}

impl Moments {
    pub fn pass(&mut self) -> Result<(), CheckpointError> {
        #[cfg(test)]
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1).ok_or(CheckpointError::Stopped)?;
        }
        Ok(())
    }
}

pub(super) fn next_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.next"))
}

pub(super) fn is_pending(folder: &Path) -> bool {
    folder.join(JOURNAL_FILE).exists()
}

/// Turns the `.next` files of `FILES` and of these companions, all written and synced, into the checkpoint.
pub(super) fn commit(
    folder: &Path,
    companions: &[&str],
    removed: Vec<String>,
    moments: &mut Moments,
) -> Result<(), CheckpointError> {
    let files = FILES.iter().chain(companions).map(|name| name.to_string()).collect();
    let journal = Journal { schema_version: 1, files, removed };
    let path = folder.join(JOURNAL_FILE);
    let text = serde_json::to_vec_pretty(&journal)
        .map_err(|error| CheckpointError::Unreadable { path: path.clone(), why: error.to_string() })?;
    moments.pass()?;
    // The `.next` names must be durable before the journal that relies on them.
    sync_directory_of(&path)?;
    write_atomically(&path, &text)?;
    moments.pass()?;
    roll_forward(folder, moments)
}

/// Finishes a commit that a kill cut short; does nothing without a journal.
pub(super) fn roll_forward(folder: &Path, moments: &mut Moments) -> Result<(), CheckpointError> {
    let path = folder.join(JOURNAL_FILE);
    let bytes = match reading::read(&path, reading::CHECKPOINT) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(FileError::new("read", &path)(error).into()),
    };
    let unreadable = |why: String| CheckpointError::Unreadable { path: path.clone(), why };
    let journal: Journal = serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
    for name in &journal.files {
        // Only our own files are ever renamed, whatever a damaged journal may say.
        if !is_checkpoint_file(name) {
            return Err(unreadable(format!("it names {name}, which is not a checkpoint file")));
        }
        let target = folder.join(name);
        moments.pass()?;
        match fs::rename(next_path(folder, name), &target) {
            Ok(()) => {}
            // Renamed before the kill.
            Err(error) if error.kind() == ErrorKind::NotFound && target.exists() => {}
            Err(error) => return Err(FileError::new("rename into", &target)(error).into()),
        }
    }
    for name in &journal.removed {
        if !is_companion(name) {
            return Err(unreadable(format!("it removes {name}, which does not come along with a checkpoint")));
        }
        let target = folder.join(name);
        moments.pass()?;
        match fs::remove_file(&target) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(FileError::new("remove", &target)(error).into());
            }
            _ => {}
        }
    }
    moments.pass()?;
    sync_directory_of(&path)?;
    moments.pass()?;
    fs::remove_file(&path).map_err(FileError::new("remove", &path))?;
    moments.pass()?;
    sync_directory_of(&path)?;
    Ok(())
}

/// Removes the files of a save that was cut short before its commit. Call it only after `roll_forward`, under the lock.
pub(super) fn remove_leftovers(folder: &Path) -> Result<(), CheckpointError> {
    let entries = fs::read_dir(folder).map_err(FileError::new("list", folder))?;
    for entry in entries {
        let entry = entry.map_err(FileError::new("list", folder))?;
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_string_lossy();
        let unfinished = name.strip_suffix(".next");
        let removed = if unfinished.is_some_and(is_checkpoint_file) || is_unfinished_journal(&name) {
            fs::remove_file(&path)
        } else if unfinished.is_some_and(|name| step_of(name).is_some()) {
            fs::remove_dir_all(&path)
        } else {
            continue;
        };
        removed.map_err(FileError::new("remove", &path))?;
    }
    Ok(())
}

fn is_checkpoint_file(name: &str) -> bool {
    FILES.contains(&name) || is_companion(name)
}

/// The step in the name of a kept checkpoint's folder.
pub(super) fn step_of(folder_name: &str) -> Option<u64> {
    let digits = folder_name.strip_prefix("step-")?;
    (digits.len() >= 8).then(|| digits.parse().ok())?
}

fn is_unfinished_journal(name: &str) -> bool {
    let rest = name.strip_prefix('.').and_then(|name| name.strip_prefix(JOURNAL_FILE));
    rest.is_some_and(|rest| rest.ends_with(".tmp"))
}
