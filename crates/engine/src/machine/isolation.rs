//! System calls for processes that must not harm anything: new namespaces, and writing denied by Landlock.
//!
//! They have no safe interface elsewhere. Everything that mounts and waits is in `scripts::isolation`.

#[cfg(target_os = "linux")]
use std::io;
#[cfg(target_os = "linux")]
use std::path::Path;

/// Whether a hangup is ignored, as under `nohup`: whoever starts a program so wants it to outlive its terminal.
#[cfg(unix)]
pub fn hangup_is_ignored() -> bool {
    // SAFETY: `sigaction` is a plain structure for which all zeros is a valid value.
    let mut current: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: with a null second argument the call only writes the current action, to a place that lives through it.
    let done = unsafe { libc::sigaction(libc::SIGHUP, std::ptr::null(), &raw mut current) };
    done == 0 && current.sa_sigaction == libc::SIG_IGN
}

/// Namespaces that a process leaves for new ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Namespaces {
    /// Mounts and processes; needs the right to mount.
    MountsAndProcesses,
    /// The same with a new user namespace, in which an ordinary user may mount.
    UserToo,
}

/// Gives this process mounts of its own, and its next child a process namespace of its own.
///
/// The process must have a single thread: the kernel refuses a new user namespace otherwise, and other threads would keep
/// the old mounts.
#[cfg(target_os = "linux")]
pub fn leave_for(namespaces: Namespaces) -> io::Result<()> {
    let flags = libc::CLONE_NEWNS | libc::CLONE_NEWPID;
    let flags = match namespaces {
        Namespaces::MountsAndProcesses => flags,
        Namespaces::UserToo => flags | libc::CLONE_NEWUSER,
    };
    // SAFETY: no flag gives this thread file descriptors or memory of its own, so nothing that Rust shares between
    // threads comes apart.
    match unsafe { libc::unshare(flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Landlock: the rights to write that are taken away, and given back beneath some paths.
#[cfg(target_os = "linux")]
mod landlock {
    pub const WRITE_FILE: u64 = 1 << 1;
    pub const TRUNCATE: u64 = 1 << 14;
    const REMOVE_DIR: u64 = 1 << 4;
    const REMOVE_FILE: u64 = 1 << 5;
    /// Devices, folders, files, sockets, pipes and links: bits 6 to 12.
    const MAKE_ANYTHING: u64 = 0b111_1111 << 6;
    /// Renaming and linking from one folder into another.
    const REFER: u64 = 1 << 13;
    pub const IN_A_FOLDER: u64 = WRITE_FILE | TRUNCATE | REMOVE_DIR | REMOVE_FILE | MAKE_ANYTHING | REFER;
    /// The kernel's number for a rule about a path and everything beneath it.
    pub const PATH_BENEATH: libc::c_int = 1;
    /// Asks for the version of the interface.
    pub const VERSION: libc::c_uint = 1;
    /// The first version that knows truncation.
    pub const ENOUGH: i64 = 3;

    #[repr(C)]
    pub struct Ruleset {
        pub handled_access_fs: u64,
    }

    #[repr(C, packed)]
    pub struct PathBeneath {
        pub allowed_access: u64,
        pub parent_fd: i32,
    }
}

/// Denies this process and its descendants every writing except beneath these paths; those that do not exist are left
/// out. Reading and running stay as they are, and so do modes and times of files, which Landlock does not know.
#[cfg(target_os = "linux")]
pub fn deny_writing_except(allowed: &[impl AsRef<Path>]) -> io::Result<()> {
    use landlock::{ENOUGH, IN_A_FOLDER, PATH_BENEATH, PathBeneath, Ruleset, TRUNCATE, VERSION, WRITE_FILE};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::os::unix::fs::OpenOptionsExt;

    // SAFETY: without attributes and with this flag the call only returns a number.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<Ruleset>(), 0_usize, VERSION) };
    if version < 0 {
        return Err(io::Error::last_os_error());
    }
    if version < ENOUGH {
        let text = format!("the kernel has version {version} of Landlock, and {ENOUGH} is needed");
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let handled = Ruleset { handled_access_fs: IN_A_FOLDER };
    // SAFETY: the structure lives through the call, and its size is the one given.
    let ruleset = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, &raw const handled, size_of::<Ruleset>(), 0 as libc::c_uint)
    };
    let ruleset = i32::try_from(ruleset).ok().filter(|ruleset| *ruleset >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the call above made this descriptor, and nothing else owns it.
    let ruleset = unsafe { OwnedFd::from_raw_fd(ruleset) };
    for path in allowed {
        let path = path.as_ref();
        let Ok(place) = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path) else { continue };
        let is_folder = place.metadata()?.is_dir();
        let rule = PathBeneath {
            allowed_access: if is_folder { IN_A_FOLDER } else { WRITE_FILE | TRUNCATE },
            parent_fd: place.as_raw_fd(),
        };
        // SAFETY: both descriptors are open, and the structure lives through the call.
        let added = unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                ruleset.as_raw_fd(),
                PATH_BENEATH,
                &raw const rule,
                0 as libc::c_uint,
            )
        };
        if added != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: the call takes plain numbers. Without it the kernel refuses the next one to an ordinary user.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is a ruleset that is open.
    match unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0 as libc::c_uint) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn landlock_takes_writing_away_but_not_reading() {
        let folder = tempfile::tempdir().unwrap();
        let (own, other) = (folder.path().join("own"), folder.path().join("other"));
        std::fs::create_dir(&own).unwrap();
        std::fs::write(&other, "kept").unwrap();
        // A thread restricts only itself.
        let done = std::thread::scope(|scope| {
            let restricted = || {
                deny_writing_except(&[&own]).map(|()| {
                    let wrote = std::fs::write(own.join("new"), "x").is_ok();
                    (wrote, std::fs::write(&other, "x").is_ok(), std::fs::read(&other).is_ok())
                })
            };
            scope.spawn(restricted).join().unwrap()
        });
        match done {
            Ok(done) => assert_eq!(done, (true, false, true)),
            // A kernel without Landlock says so, and denies nothing.
            Err(error) => assert!(error.raw_os_error().is_some() || error.kind() == io::ErrorKind::Unsupported),
        }
        assert_eq!(std::fs::read(&other).unwrap(), b"kept");
    }
}
