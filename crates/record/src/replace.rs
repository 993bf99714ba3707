//! Replaces a file that belongs to the user: links still lead to it, owner and mode stay, and a kill loses nothing.
//!
//! A new file is renamed over the old one. Two kinds of file are written in place instead: one with several hard links,
//! whose other names would keep the old text, and one whose owner a new file could not have. For those, the old text is
//! first synced to a copy beside the file and removed afterwards. A kill in between leaves that copy. `recover` removes
//! it if the write finished or never began, and reports it if only a person can decide.

use std::fs::{self, File, Metadata};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::atomic::{FileError, sync_directory_of, write_through};
use crate::reading;
use crate::temporary::{Temporary, is_abandoned, sweep, with_random_name};

const OLD_ENDING: &str = ".headroom.old";

/// Replaces the content of `path`, or leaves it as it was.
pub fn replace_file(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let failed = |error| FileError::new("write", path)(error);
    let target = fs::canonicalize(path).map_err(failed)?;
    // Opened for writing, so that a read-only file stays as it is, whatever its folder allows.
    let current = File::options().read(true).write(true).open(&target).map_err(failed)?;
    let about = current.metadata().map_err(failed)?;
    if !about.is_file() {
        return Err(failed(io::Error::other("it is not a plain file")));
    }
    if has_other_names(&about) {
        return write_in_place(&target, current, bytes).map_err(failed);
    }
    let temporary = Temporary::beside(&target).map_err(failed)?;
    if keep_owner(&temporary.file, &about).is_err() {
        drop(temporary);
        return write_in_place(&target, current, bytes).map_err(failed);
    }
    write_through(&temporary.file, |writer| writer.write_all(bytes)).map_err(failed)?;
    // After the owner: changing the owner clears bits of the mode.
    temporary.file.set_permissions(about.permissions()).map_err(failed)?;
    keep_attributes(&current, &temporary.file);
    temporary.file.sync_all().map_err(failed)?;
    temporary.rename_over(&target).map_err(failed)?;
    sync_directory_of(&target)
}

/// Removes what killed replacements left in `folder`. Returns the copies that a person has to look at, because the file
/// beside them is neither the old text nor the new one.
pub fn recover(folder: &Path) -> Vec<PathBuf> {
    sweep(folder);
    let Ok(entries) = fs::read_dir(folder) else { return vec![] };
    let mut unclear: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| is_old_copy(path) && is_abandoned(path) && !settle(path))
        .collect();
    unclear.sort();
    unclear
}

/// `.NAME.RANDOM.HASH-OF-NEW.headroom.old`: which file the copy belongs to, and the hash of the text that was being
/// written.
fn is_old_copy(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    name.starts_with(b".") && name.ends_with(OLD_ENDING.as_bytes())
}

/// Removes a copy that is not needed; false if it may be all that is left of the old text.
fn settle(copy: &Path) -> bool {
    let (Ok(old), Some((target, hash))) = (reading::read(copy, reading::RECORD), target_of(copy)) else { return false };
    let Ok(current) = reading::read(&target, reading::RECORD) else { return false };
    (current == old || digits(&current) == hash) && fs::remove_file(copy).is_ok()
}

#[cfg(unix)]
fn target_of(copy: &Path) -> Option<(PathBuf, String)> {
    use std::os::unix::ffi::OsStrExt;
    let name = copy.file_name()?.as_bytes().strip_prefix(b".")?.strip_suffix(OLD_ENDING.as_bytes())?;
    // A random number and the hash, each sixteen digits after a dot.
    let (name, tail) = name.split_at_checked(name.len().checked_sub(34)?)?;
    let hash = std::str::from_utf8(tail.get(18..34)?).ok()?;
    Some((copy.with_file_name(std::ffi::OsStr::from_bytes(name)), hash.to_string()))
}

#[cfg(not(unix))]
fn target_of(_copy: &Path) -> Option<(PathBuf, String)> {
    None
}

fn write_in_place(target: &Path, mut current: File, bytes: &[u8]) -> io::Result<()> {
    let old = reading::read(target, reading::RECORD)?;
    let ending = format!(".{}{OLD_ENDING}", digits(bytes));
    let mut copy = with_random_name(target, &ending, OldCopy::create)?;
    copy.file.write_all(&old)?;
    copy.file.sync_all()?;
    sync_directory_of(target).map_err(|error| error.source)?;
    if let Err(error) = overwrite(&mut current, bytes) {
        // The old text still has its blocks, even on a full disk.
        copy.needed = overwrite(&mut current, &old).is_err();
        return Err(match copy.needed {
            true => io::Error::new(error.kind(), format!("{error}; its old text is in {}", copy.path.display())),
            false => error,
        });
    }
    Ok(())
}

fn overwrite(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_all()
}

/// A copy of the old text while the file is written; removed on drop.
struct OldCopy {
    file: File,
    path: PathBuf,
    needed: bool,
}

impl OldCopy {
    fn create(path: &Path) -> io::Result<OldCopy> {
        let file = File::options().write(true).create_new(true).open(path)?;
        let _ = file.try_lock();
        Ok(OldCopy { file, path: path.to_path_buf(), needed: false })
    }
}

impl Drop for OldCopy {
    fn drop(&mut self) {
        if !self.needed {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Gives the same digits for the same bytes in every run of this program.
fn digits(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    format!("{:016x}", hasher.finish())
}

#[cfg(unix)]
fn has_other_names(about: &Metadata) -> bool {
    std::os::unix::fs::MetadataExt::nlink(about) > 1
}

#[cfg(unix)]
fn keep_owner(file: &File, about: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, fchown};
    let own = file.metadata()?;
    if (own.uid(), own.gid()) == (about.uid(), about.gid()) {
        return Ok(());
    }
    fchown(file, Some(about.uid()), Some(about.gid()))
}

#[cfg(not(unix))]
fn has_other_names(_about: &Metadata) -> bool {
    false
}

#[cfg(not(unix))]
fn keep_owner(_file: &File, _about: &Metadata) -> io::Result<()> {
    Ok(())
}

/// Copies access lists and extended attributes, as far as this user may set them.
#[cfg(target_os = "linux")]
fn keep_attributes(from: &File, to: &File) {
    use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fsetxattr};
    let mut names = vec![0u8; 1 << 16];
    let Ok(length) = flistxattr(from, &mut names[..]) else { return };
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0u8; 1 << 16];
        if let Ok(length) = fgetxattr(from, name, &mut value[..]) {
            let _ = fsetxattr(to, name, &value[..length], XattrFlags::empty());
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn keep_attributes(_from: &File, _to: &File) {}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn names_in(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn a_link_stays_a_link_and_the_file_behind_it_keeps_mode_and_owner() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("real.py"), folder.path().join("link.py"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o4750)).unwrap();
        let _ = std::os::unix::fs::chown(&file, Some(12345), Some(54321)); // an administrator's test shows more
        fs::set_permissions(&file, fs::Permissions::from_mode(0o4750)).unwrap();
        let before = fs::metadata(&file).unwrap();
        symlink("real.py", &link).unwrap();
        replace_file(&link, b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let after = fs::metadata(&file).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
        assert_eq!(names_in(folder.path()), ["link.py", "real.py"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn attributes_of_a_file_stay_with_it() {
        use rustix::fs::{XattrFlags, getxattr, setxattr};
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("script.py");
        fs::write(&file, "old").unwrap();
        setxattr(&file, "user.origin", b"downloaded", XattrFlags::empty()).expect("this file system keeps attributes");
        replace_file(&file, b"new").unwrap();
        let mut value = [0u8; 64];
        let length = getxattr(&file, "user.origin", &mut value[..]).unwrap();
        assert_eq!((fs::read(&file).unwrap(), &value[..length]), (b"new".to_vec(), &b"downloaded"[..]));
    }

    #[test]
    fn all_names_of_a_file_get_the_new_text() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one.py"), folder.path().join("two.py"));
        fs::write(&one, "a longer old text").unwrap();
        fs::hard_link(&one, &two).unwrap();
        replace_file(&one, b"new").unwrap();
        assert_eq!((fs::read(&one).unwrap(), fs::read(&two).unwrap()), (b"new".to_vec(), b"new".to_vec()));
        assert_eq!(fs::metadata(&one).unwrap().ino(), fs::metadata(&two).unwrap().ino());
        assert_eq!(names_in(folder.path()), ["one.py", "two.py"]);
    }

    #[test]
    fn a_cut_write_in_place_is_told_from_one_that_ended_or_never_began() {
        let folder = tempfile::tempdir().unwrap();
        let copy_of = |name: &str| {
            let path = folder.path().join(format!(".{name}.0123456789abcdef.{}{OLD_ENDING}", digits(b"new text")));
            fs::write(&path, "old text").unwrap();
            path
        };
        for (name, content) in [("before.py", "old text"), ("after.py", "new text"), ("cut.py", "new xt")] {
            fs::write(folder.path().join(name), content).unwrap();
            copy_of(name);
        }
        let unclear = recover(folder.path());
        assert_eq!(unclear.len(), 1);
        assert!(unclear[0].to_string_lossy().contains(".cut.py."), "{unclear:?}");
        assert_eq!(fs::read(&unclear[0]).unwrap(), b"old text", "the old text is never lost");
        assert_eq!(names_in(folder.path()).len(), 4);
    }

    #[test]
    fn a_full_disk_leaves_the_file_as_it_was() {
        let error = replace_file(Path::new("/dev/full"), b"new").unwrap_err();
        assert!(error.to_string().contains("not a plain file"), "{error}");
        let error = replace_file(Path::new("/absent/file.py"), b"new").unwrap_err();
        assert!(error.to_string().contains("/absent/file.py"), "{error}");
    }
}
