//! The folder of one search or recording: hook, layers, copies and notes. It holds a lock while its command lives, so that
//! the next command can tell a folder in use from one that a kill left behind.

use crate::error::{ScriptError, cannot};
use headroom_record::atomic::FileError;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PREFIX: &str = "headroom-isolated-";
const LOCK: &str = "lock";
/// A folder without a lock is one whose command was killed in between, once it is this old.
const BETWEEN: Duration = Duration::from_secs(600);
/// Attempts to make a folder that a sweep does not take away again.
const ATTEMPTS: usize = 5;

pub struct Home {
    path: PathBuf,
    _lock: File,
}

impl Home {
    /// Makes a folder in `parent`, after removing those that ended commands have left there.
    pub fn new(parent: &Path) -> Result<Home, ScriptError> {
        let parent =
            parent.canonicalize().map_err(cannot(format!("find the temporary folder {}", parent.display())))?;
        sweep(&parent);
        for _ in 0..ATTEMPTS {
            let made = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&parent);
            let path = made.map_err(cannot(format!("make a folder in {}", parent.display())))?.keep();
            let place = path.join(LOCK);
            let lock = File::create(&place).map_err(FileError::new("write", &place))?;
            lock.lock().map_err(cannot(format!("lock {}", place.display())))?;
            // Another command's sweep may have been faster than the lock.
            if place.exists() {
                return Ok(Home { path, _lock: lock });
            }
        }
        Err(ScriptError::Refused(format!("folders made in {} disappear at once", parent.display())))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // The next command removes anything left.
        let _ = remove_tree(&self.path);
    }
}

/// Removes folders of this user whose command has ended. A link of such a name, which anybody may make in a shared folder,
/// leads elsewhere and stays; so does another user's folder, whose content that user could exchange meanwhile.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    let is_ours = |entry: &fs::DirEntry| {
        let has_name = entry.file_name().to_string_lossy().starts_with(PREFIX);
        has_name && entry.metadata().is_ok_and(|about| about.is_dir() && is_own(&about))
    };
    for entry in entries.flatten().filter(is_ours) {
        let path = entry.path();
        match File::options().write(true).open(path.join(LOCK)) {
            Ok(lock) if lock.try_lock().is_ok() => drop(remove_tree(&path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let age = entry.metadata().and_then(|about| about.modified()).map(|time| time.elapsed());
                if age.is_ok_and(|age| age.is_ok_and(|age| age > BETWEEN)) {
                    let _ = remove_tree(&path);
                }
            }
            _ => {}
        }
    }
}

#[cfg(unix)]
fn is_own(about: &fs::Metadata) -> bool {
    std::os::unix::fs::MetadataExt::uid(about) == rustix::process::geteuid().as_raw()
}

#[cfg(not(unix))]
fn is_own(_about: &fs::Metadata) -> bool {
    true
}

/// Removes a folder whatever the modes of folders in it: scripts and overlays make some that their owner may not enter.
/// The lock goes last, so that a removal that was cut short is taken up again.
pub fn remove_tree(folder: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    take_off_mounts(folder)?;
    empty(folder, Some(LOCK))?;
    fs::remove_dir_all(folder)
}

/// Takes off what root's script has mounted in a mere copy: emptying the folder would delete the user's files behind it.
#[cfg(target_os = "linux")]
fn take_off_mounts(folder: &Path) -> io::Result<()> {
    use super::mounts::Mounts;
    use headroom_record::reading;
    use rustix::mount::{UnmountFlags, unmount};

    let list = reading::read(Path::new("/proc/self/mountinfo"), reading::RECORD)?;
    let mounts = Mounts::parse(&list);
    let mut places: Vec<&Path> = mounts.all_beneath(folder).collect();
    // The innermost first.
    places.sort_by_key(|place| std::cmp::Reverse(place.components().count()));
    for place in places {
        unmount(place, UnmountFlags::DETACH)?;
    }
    Ok(())
}

fn empty(folder: &Path, last: Option<&str>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(folder)?;
            fs::read_dir(folder)?
        }
        entries => entries?,
    };
    let mut tried_again = false;
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if last.is_some_and(|last| entry.file_name() == last) {
            continue;
        }
        let remove = || match entry.file_type()?.is_dir() {
            true => {
                empty(&path, None)?;
                fs::remove_dir(&path)
            }
            false => fs::remove_file(&path),
        };
        match remove() {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !tried_again => {
                tried_again = true;
                open_up(folder)?;
                remove()?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    Ok(())
}

#[cfg(unix)]
fn open_up(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o700))
}

#[cfg(not(unix))]
fn open_up(_folder: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn folders_of_ended_commands_are_swept_and_those_in_use_stay() {
        let parent = tempfile::tempdir().unwrap();
        let in_use = Home::new(parent.path()).unwrap();
        let left = parent.path().join("headroom-isolated-left");
        let locked_out = left.join("run/layer-1/work/work");
        fs::create_dir_all(&locked_out).unwrap();
        fs::set_permissions(&locked_out, fs::Permissions::from_mode(0o0)).unwrap();
        fs::set_permissions(left.join("run"), fs::Permissions::from_mode(0o500)).unwrap();
        fs::write(left.join(LOCK), "").unwrap();
        let young = parent.path().join("headroom-isolated-young");
        fs::create_dir(&young).unwrap();
        let others = parent.path().join("headroom-data");
        fs::create_dir(&others).unwrap();
        let (far, link) = (tempfile::tempdir().unwrap(), parent.path().join("headroom-isolated-link"));
        fs::write(far.path().join(LOCK), "").unwrap();
        fs::write(far.path().join("data"), "kept").unwrap();
        std::os::unix::fs::symlink(far.path(), &link).unwrap();
        let new = Home::new(parent.path()).unwrap();
        assert!(far.path().join("data").exists(), "a link was followed");
        assert!(!left.exists() && young.exists() && others.exists());
        assert!(in_use.path().exists() && new.path() != in_use.path());
        let path = new.path().to_path_buf();
        drop(new);
        assert!(!path.exists());
    }
}
