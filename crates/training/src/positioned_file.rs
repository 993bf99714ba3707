//! A file read by position: of any size, shared by threads, not memory-mapped.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use headroom_record::atomic::FileError;
use headroom_record::reading;

#[derive(Debug)]
pub struct PositionedFile {
    path: PathBuf,
    bytes: u64,
    #[cfg(unix)]
    file: File,
    /// Outside Unix, seeking and reading are two calls, so they are done under a lock.
    #[cfg(not(unix))]
    file: std::sync::Mutex<File>,
}

impl PositionedFile {
    pub fn open(path: &Path) -> Result<PositionedFile, FileError> {
        let opened = reading::open(path).and_then(|file| {
            let bytes = file.metadata()?.len();
            Ok((file, bytes))
        });
        let (file, bytes) = opened.map_err(FileError::new("open", path))?;
        Ok(PositionedFile {
            path: path.to_path_buf(),
            bytes,
            #[cfg(unix)]
            file,
            #[cfg(not(unix))]
            file: std::sync::Mutex::new(file),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The size when it was opened.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills the buffer from `position` on; it is an error if the file ends before that.
    pub fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> Result<(), FileError> {
        self.read_whole(buffer, position).map_err(FileError::new("read", &self.path))
    }

    #[cfg(unix)]
    fn read_whole(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        read_exact_at(&self.file, buffer, position)
    }

    #[cfg(not(unix))]
    fn read_whole(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        let file = self.file.lock().unwrap_or_else(|broken| broken.into_inner());
        read_exact_at(&file, buffer, position)
    }
}

/// Fills the buffer from `position` on. Outside of Unix this moves the file's own position.
#[cfg(unix)]
pub(crate) fn read_exact_at(file: &File, buffer: &mut [u8], position: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buffer, position)
}

#[cfg(not(unix))]
pub(crate) fn read_exact_at(mut file: &File, buffer: &mut [u8], position: u64) -> io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    file.seek(SeekFrom::Start(position))?;
    file.read_exact(buffer)
}

/// Writes all of `bytes` from `position` on. Outside of Unix this moves the file's own position.
#[cfg(unix)]
pub(crate) fn write_all_at(file: &File, bytes: &[u8], position: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, position)
}

#[cfg(not(unix))]
pub(crate) fn write_all_at(mut file: &File, bytes: &[u8], position: u64) -> io::Result<()> {
    use std::io::{Seek, SeekFrom, Write};
    file.seek(SeekFrom::Start(position))?;
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_from_the_position_and_the_end_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ten.txt");
        std::fs::write(&path, "0123456789").unwrap();
        let file = PositionedFile::open(&path).unwrap();
        let mut buffer = [0; 3];
        file.read_exact_at(&mut buffer, 3).unwrap();
        assert_eq!((&buffer, file.bytes()), (b"345", 10));
        let error = file.read_exact_at(&mut buffer, 8).unwrap_err();
        assert!(error.to_string().contains("ten.txt"), "{error}");
    }

    #[test]
    fn a_folder_is_not_a_file() {
        let folder = tempfile::tempdir().unwrap();
        assert!(PositionedFile::open(folder.path()).is_err());
    }
}
