//! Atomic file writes: a file is either the old one or the new one, never something in between.
//!
//! The content is written to a temporary file beside the target, synced to disk, and then renamed over it.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::temporary::{Temporary, folder_of, sweep};

/// A failed file operation: the action, the file, and the system's reason.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct FileError {
    pub action: &'static str,
    pub path: PathBuf,
    pub source: io::Error,
}

impl FileError {
    /// Builds the error from action and path, for `map_err`.
    pub fn new(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
        move |source| FileError { action, path: path.to_path_buf(), source }
    }

    /// Whether space ran out (disk, quota or file size limit), as opposed to a bad request.
    pub fn is_disk_full(&self) -> bool {
        matches!(self.source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
    }
}

/// Replaces `path` with `bytes`, or leaves it as it was.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    write_atomically_with(path, |writer| writer.write_all(bytes))
}

/// Replaces `path` with what `fill` writes, or leaves it as it was if `fill` or the disk fails.
pub fn write_atomically_with(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), FileError> {
    sweep(folder_of(path));
    let temporary = Temporary::beside(path).map_err(FileError::new("write", path))?;
    write_through(&temporary.file, fill).map_err(FileError::new("write", path))?;
    temporary.rename_over(path).map_err(FileError::new("rename into", path))?;
    sync_directory_of(path)
}

/// `write_atomically` for a record: indented JSON with a newline at the end.
pub fn write_json(path: &Path, record: &impl Serialize) -> Result<(), FileError> {
    write_atomically_with(path, |writer| {
        serde_json::to_writer_pretty(&mut *writer, record)?;
        writer.write_all(b"\n")
    })
}

/// Makes a rename in `path`'s folder survive a power failure.
pub fn sync_directory_of(path: &Path) -> Result<(), FileError> {
    // Only Unix can open and sync a folder; elsewhere there is only the rename itself.
    if cfg!(unix) {
        let folder = folder_of(path);
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(FileError::new("sync the folder", folder))?;
    }
    Ok(())
}

/// Writes and syncs. After an error, the rest of the buffer is dropped instead of written again.
pub(crate) fn write_through(file: &File, fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let mut writer = BufWriter::new(file.try_clone()?);
    let filled = fill(&mut writer).and_then(|()| writer.flush());
    let (file, _) = writer.into_parts();
    filled?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn names_in(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_written_file_replaces_the_old_one_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.json");
        write_atomically(&path, b"old").unwrap();
        write_atomically(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names_in(folder.path()), ["record.json"]);
    }

    #[test]
    fn a_failed_write_keeps_the_old_file_and_removes_the_temporary_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.json");
        write_atomically(&path, b"old").unwrap();
        let error = write_atomically_with(&path, |writer| {
            writer.write_all(b"half of the ne")?;
            Err(io::Error::from(ErrorKind::StorageFull))
        })
        .unwrap_err();
        assert!(error.is_disk_full());
        assert!(error.to_string().contains("record.json"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names_in(folder.path()), ["record.json"]);
    }

    #[test]
    fn a_missing_folder_is_named_and_is_not_a_full_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("absent").join("record.json");
        let error = write_atomically(&path, b"x").unwrap_err();
        assert!(!error.is_disk_full());
        assert!(error.to_string().contains("absent"), "{error}");
    }

    #[test]
    fn a_device_without_room_reads_as_a_full_disk() {
        let full = Path::new("/dev/full");
        if !full.exists() {
            return; // only Linux has it
        }
        let source = File::options().write(true).open(full).unwrap().write_all(b"x").unwrap_err();
        assert!(FileError::new("write", full)(source).is_disk_full());
    }

    #[test]
    fn a_file_is_not_to_be_seen_before_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.json");
        write_atomically(&path, b"old").unwrap();
        let mut seen = vec![];
        write_atomically_with(&path, |writer| {
            seen = names_in(folder.path());
            writer.write_all(b"new")
        })
        .unwrap();
        // A file system without unnamed files also shows the temporary one.
        assert!(seen == ["record.json"] || seen.len() == 2, "{seen:?}");
        if cfg!(target_os = "linux") && Path::new("/proc/self/fd").exists() {
            assert_eq!(seen, ["record.json"], "killed now, nothing would be left behind");
        }
    }

    #[test]
    fn what_a_killed_writer_left_blocks_nobody_and_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.json");
        // Names that a process with the same id would have chosen, now and in earlier versions.
        let id = std::process::id();
        let older: Vec<String> = (0..64).map(|call| format!(".record.json.{id}.{call}.tmp")).collect();
        for name in &older {
            fs::write(folder.path().join(name), "half").unwrap();
        }
        fs::write(folder.path().join(".record.json.00112233aabbccdd.headroom.tmp"), "half").unwrap();
        write_atomically(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names_in(folder.path()).len(), 1 + older.len(), "ours is gone, what is not known to be ours stays");
    }
}
