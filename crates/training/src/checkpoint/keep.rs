//! Older checkpoints: `step-00000010/` beside the newest, each a whole checkpoint of its own.
//!
//! They are hard links to the files that the next save replaces, so keeping one costs disk space but no copying. Where
//! links are not possible, the files are copied.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use headroom_record::atomic::{FileError, sync_directory_of};

use super::companions::is_companion;
use super::journal::{FILES, Moments, next_path, step_of};
use super::state::StateFile;
use super::{CheckpointError, STATE_FILE};

/// Links the checkpoint in `folder`, if there is one, into `step-N/`. A `step-N/` that exists already is from an
/// earlier run and is replaced.
pub(super) fn keep_current(folder: &Path, moments: &mut Moments) -> Result<(), CheckpointError> {
    // A checkpoint that cannot be resumed is not worth keeping, and is not a reason to refuse the save that replaces
    // it.
    let Ok(Some(current)) = StateFile::read(folder) else { return Ok(()) };
    if !FILES.iter().all(|file| folder.join(file).exists()) {
        return Ok(());
    }
    let name = format!("step-{:08}", current.state.step);
    let (unfinished, kept) = (next_path(folder, &name), folder.join(&name));
    fs::create_dir(&unfinished).map_err(FileError::new("make the folder", &unfinished))?;
    let companions = current.companions.iter().map(String::as_str);
    let companions = companions.filter(|name| is_companion(name) && folder.join(name).is_file());
    for file in FILES.into_iter().chain(companions) {
        moments.pass()?;
        let (from, to) = (folder.join(file), unfinished.join(file));
        if fs::hard_link(&from, &to).is_err() {
            fs::copy(&from, &to).map_err(FileError::new("copy into", &to))?;
            let copied = fs::File::open(&to).and_then(|copied| copied.sync_all());
            copied.map_err(FileError::new("write", &to))?;
        }
    }
    moments.pass()?;
    if kept.exists() {
        fs::remove_dir_all(&kept).map_err(FileError::new("remove", &kept))?;
        moments.pass()?;
    }
    fs::rename(&unfinished, &kept).map_err(FileError::new("rename into", &kept))?;
    moments.pass()?;
    sync_directory_of(&kept)?;
    Ok(())
}

/// Removes all kept checkpoints except the `count` saved last.
pub(super) fn prune(folder: &Path, count: usize, moments: &mut Moments) -> Result<(), CheckpointError> {
    let mut kept: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder).map_err(FileError::new("list", folder))? {
        let entry = entry.map_err(FileError::new("list", folder))?;
        let Some(step) = step_of(&entry.file_name().to_string_lossy()) else { continue };
        // A hard link has the modification time of the save itself. A checkpoint without a readable time counts as the
        // oldest.
        let saved = fs::metadata(entry.path().join(STATE_FILE)).and_then(|about| about.modified());
        kept.push((saved.unwrap_or(SystemTime::UNIX_EPOCH), step, entry.path()));
    }
    kept.sort();
    let surplus = kept.len().saturating_sub(count);
    for (_, _, path) in kept.drain(..surplus) {
        moments.pass()?;
        remove_kept(folder, &path)?;
    }
    Ok(())
}

/// Renames the folder to an unfinished name first, so that a kill in the middle never leaves half a checkpoint under a
/// valid name.
fn remove_kept(folder: &Path, path: &Path) -> Result<(), CheckpointError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = next_path(folder, &name);
    fs::rename(path, &unfinished)
        .and_then(|()| fs::remove_dir_all(&unfinished))
        .map_err(FileError::new("remove", path))?;
    Ok(())
}
