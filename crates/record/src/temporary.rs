//! A file that gets its name only when it is complete, so that a kill leaves nothing to clean up.
//!
//! Where the system allows it, the file has no name while it is written. It then gets a random name, holds a lock on
//! itself, and is renamed over its target. A kill between those two steps leaves it behind, unlocked; `sweep` removes
//! such files.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::reading;

const ENDING: &str = ".headroom.tmp";
const RANDOM_DIGITS: usize = 16;

#[derive(Debug)]
pub struct Temporary {
    pub file: File,
    /// Removed on drop; `None` while the file has no name.
    name: Option<PathBuf>,
}

impl Temporary {
    /// Creates the file in the target's folder: a rename cannot cross file systems.
    pub fn beside(target: &Path) -> io::Result<Temporary> {
        if let Some(file) = unnamed(folder_of(target)) {
            return Ok(Temporary { file, name: None });
        }
        with_random_name(target, ENDING, |name| {
            let file = File::options().read(true).write(true).create_new(true).open(name)?;
            let temporary = Temporary { file, name: Some(name.to_path_buf()) };
            temporary.hold();
            Ok(temporary)
        })
    }

    /// Replaces the target. The content should be synced before.
    pub fn rename_over(mut self, target: &Path) -> io::Result<()> {
        let named = match self.name.clone() {
            Some(name) => name,
            None => {
                self.hold();
                self.take_name(target)?
            }
        };
        fs::rename(named, target)?;
        self.name = None;
        Ok(())
    }

    fn take_name(&mut self, target: &Path) -> io::Result<PathBuf> {
        let linked = with_random_name(target, ENDING, |name| {
            link(&self.file, name)?;
            Ok(name.to_path_buf())
        });
        let name = match linked {
            Ok(name) => name,
            // Without /proc an open file cannot be linked, so its content is copied into a file with a name.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let copy = with_random_name(target, ENDING, |name| {
                    let file = File::options().read(true).write(true).create_new(true).open(name)?;
                    Ok(Temporary { file, name: Some(name.to_path_buf()) })
                })?;
                copy.hold();
                io::Seek::rewind(&mut self.file)?;
                io::copy(&mut self.file, &mut &copy.file)?;
                copy.file.set_permissions(self.file.metadata()?.permissions())?;
                copy.file.sync_all()?;
                *self = copy;
                return self.name.clone().ok_or_else(|| ErrorKind::NotFound.into());
            }
            Err(error) => return Err(error),
        };
        self.name = Some(name.clone());
        Ok(name)
    }

    /// Signals to `sweep` that the writer is alive. On a file system without locks nothing is swept either.
    fn hold(&self) {
        let _ = self.file.try_lock();
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // The caller already has an error to report.
            let _ = fs::remove_file(name);
        }
    }
}

/// Removes our files that a killed process left in `folder`. A file still being written is locked, and stays.
pub fn sweep(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| is_ours(&entry.file_name())) {
        if is_abandoned(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether no live process holds a lock on it.
pub(crate) fn is_abandoned(path: &Path) -> bool {
    match reading::open(path).map(|file| file.try_lock()) {
        Ok(Ok(())) => true,
        Ok(Err(TryLockError::WouldBlock | TryLockError::Error(_))) | Err(_) => false,
    }
}

fn is_ours(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    let Some(rest) = bytes.strip_prefix(b".").and_then(|rest| rest.strip_suffix(ENDING.as_bytes())) else {
        return false;
    };
    let (name, random) = rest.split_at(rest.len().saturating_sub(RANDOM_DIGITS));
    name.ends_with(b".") && random.iter().all(u8::is_ascii_hexdigit)
}

/// Tries random names until one is free. The bytes of the target's name are kept, UTF-8 or not.
pub(crate) fn with_random_name<T>(
    target: &Path,
    ending: &str,
    mut make: impl FnMut(&Path) -> io::Result<T>,
) -> io::Result<T> {
    loop {
        let mut name = OsString::from(".");
        name.push(shortened(target.file_name().unwrap_or_default()));
        name.push(format!(".{:016x}{ending}", RandomState::new().build_hasher().finish()));
        match make(&folder_of(target).join(name)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return made,
        }
    }
}

/// A name may have 255 bytes, and ours adds to the target's.
fn shortened(name: &OsStr) -> OsString {
    const MOST: usize = 180;
    match name.len() {
        0..=MOST => name.to_os_string(),
        _ => name.to_string_lossy().chars().take(MOST / 4).collect::<String>().into(),
    }
}

pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Opens a file without a name; `None` if the file system or the operating system does not support it.
#[cfg(target_os = "linux")]
fn unnamed(folder: &Path) -> Option<File> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    open(folder, flags, Mode::from_raw_mode(0o666)).ok().map(File::from)
}

#[cfg(target_os = "linux")]
fn link(file: &File, name: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, linkat};
    use std::os::fd::AsRawFd;
    let open_file = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(CWD, open_file, CWD, name, AtFlags::SYMLINK_FOLLOW)?)
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_folder: &Path) -> Option<File> {
    None
}

#[cfg(not(target_os = "linux"))]
fn link(_file: &File, _name: &Path) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_that_a_killed_writer_left_is_swept_and_one_being_written_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (left, held) = (at(".a.py.0123456789abcdef.headroom.tmp"), at(".b.py.0123456789abcdef.headroom.tmp"));
        let others = [at(".a.py.tmp"), at("a.py.0123456789abcdef.headroom.tmp"), at(".x.0123.headroom.tmp")];
        for path in others.iter().chain([&left, &held]) {
            fs::write(path, "x").unwrap();
        }
        let lock = File::open(&held).unwrap();
        lock.lock().unwrap();
        sweep(folder.path());
        assert!(!left.exists() && held.exists());
        assert!(others.iter().all(|path| path.exists()), "what is not ours stays");
    }

    #[test]
    fn a_name_that_is_not_utf8_and_one_as_long_as_names_may_be_are_written() {
        use std::os::unix::ffi::OsStrExt;
        let folder = tempfile::tempdir().unwrap();
        for name in [OsStr::from_bytes(b"a\xff.py"), OsStr::new(&"n".repeat(255))] {
            let target = folder.path().join(name);
            let mut temporary = Temporary::beside(&target).unwrap();
            temporary.file.write_all(b"whole").unwrap();
            temporary.rename_over(&target).unwrap();
            assert_eq!(fs::read(&target).unwrap(), b"whole");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
