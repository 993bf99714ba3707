//! Chooses the way that holds on this system, by trying: a process inside writes files, and none may appear outside.

use super::caches::{caches, redirected, resolved, seed};
use super::copies::{Extent, Limits, Original, Snapshot, shares_blocks};
use super::{CACHES, HOOK, Home, Isolation, Options, SHARED, Way, listed};
use crate::error::{ScriptError, cannot};
use headroom_record::atomic::FileError;
use headroom_record::numbers::bytes as in_bytes;
use std::env::home_dir;
use std::fs;
use std::path::{Path, PathBuf};

/// A layer in memory needs at least this much room.
const ROOM_IN_MEMORY: u64 = 1 << 30;
/// Number of paths told among those that could be written.
const MOST_TOLD: usize = 8;

impl Isolation {
    /// Chooses a way for scripts in `folder`. `shown` are folders of the command itself, which exist.
    pub fn begin(folder: &Path, shown: &[PathBuf], options: &Options) -> Result<Isolation, ScriptError> {
        let allowed = options.allow_write.iter().map(|path| {
            path.canonicalize().map_err(|source| ScriptError::System {
                what: format!(
                    "--allow-write {}: there is no such folder or file\n  help: make it first",
                    path.display()
                ),
                source,
            })
        });
        let allowed: Vec<PathBuf> = allowed.collect::<Result<_, _>>()?;
        let shown: Vec<PathBuf> = shown.iter().map(|path| resolved(path)).collect();
        let ways = match options.way {
            Some(way) => vec![way],
            None => vec![Way::Overlay, Way::Landlock, Way::Copy],
        };
        let mut reasons: Vec<String> = vec![];
        for way in ways {
            for parent in parents(way, folder) {
                let home = match Home::new(&parent) {
                    Ok(home) => home,
                    Err(error) => {
                        reasons.push(format!("{}: {}", way.name(), error.words()));
                        continue;
                    }
                };
                let mut isolation = Isolation {
                    home,
                    way,
                    folder: folder.to_path_buf(),
                    shown: shown.clone(),
                    allowed: allowed.clone(),
                    caches: vec![],
                    variables: vec![],
                    original: None,
                    snapshot: None,
                    remarks: vec![],
                };
                match isolation.prepare().and_then(|()| isolation.holds()) {
                    Ok(()) => {
                        isolation.tell(&reasons)?;
                        return Ok(isolation);
                    }
                    Err(error) => reasons.push(format!("{}: {}", way.name(), error.words())),
                }
            }
        }
        reasons.dedup();
        Err(ScriptError::Refused(format!("the script cannot be kept from your files here\n  {}", reasons.join("\n  "))))
    }

    fn prepare(&mut self) -> Result<(), ScriptError> {
        let home = self.home.path().to_path_buf();
        for name in [HOOK, SHARED, CACHES] {
            fs::create_dir_all(home.join(name)).map_err(FileError::new("make the folder", &home.join(name)))?;
        }
        let variable = |name: &str| std::env::var_os(name);
        self.caches = caches(variable, home_dir().as_deref(), &self.folder, &home.join(CACHES));
        if self.way == Way::Overlay {
            return Ok(());
        }
        let left_out: Vec<PathBuf> = self.shown.iter().cloned().chain([home.clone()]).collect();
        let limits = match self.way {
            Way::Copy if shares_blocks(&self.folder, &home) => Limits::SHARED_BLOCKS,
            Way::Copy => Limits::NOT_DENIED,
            _ => Limits::DENIED,
        };
        if self.way == Way::Copy {
            self.snapshot = Some(Snapshot::of(&self.folder, left_out.clone()));
        }
        self.original = Some(Original::new(&self.folder, left_out, limits));
        Ok(())
    }

    /// Starts a process that writes, and looks outside for what it wrote.
    fn holds(&mut self) -> Result<(), ScriptError> {
        #[cfg(target_os = "linux")]
        self.probe()?;
        #[cfg(not(target_os = "linux"))]
        if self.way != Way::Copy {
            return Err(ScriptError::Refused("needs Linux".into()));
        }
        if self.way != Way::Overlay {
            seed(&self.caches)?;
            let variable = |name: &str| std::env::var_os(name);
            self.variables = redirected(variable, home_dir().as_deref(), &self.folder, &self.caches);
        }
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn probe(&mut self) -> Result<(), ScriptError> {
        use super::launcher::probing;
        use super::spec::{Report, report_at};
        use std::process::Stdio;

        // The copy is made once the way is known to hold.
        let original = self.original.take();
        let place = self.place(&[]);
        self.original = original;
        let mut place = place?;
        if self.original.is_some() {
            place.folder = place.root.join("copy");
            fs::create_dir_all(&place.folder).map_err(FileError::new("make the folder", &place.folder))?;
        }
        let name = format!(".headroom-probe-{}", place.root.file_name().unwrap_or_default().to_string_lossy());
        let outside: Vec<PathBuf> =
            [Some(self.folder.clone()), self.folder.parent().map(Path::to_path_buf), home_dir()]
                .into_iter()
                .flatten()
                .chain([std::env::temp_dir()])
                .collect();
        let mut folders = outside.clone();
        folders[0] = place.folder.clone();
        // Nothing denies a mere copy anything: there is nothing to try but whether a process starts.
        let tried = if self.way == Way::Copy { &folders[..1] } else { &folders[..] };
        let mut command =
            super::ordered(&place.root, &place.report(), &place.folder, &probing(&name, tried), self.means(&place))?;
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().map_err(cannot("start itself"))?;
        let mut reached = vec![];
        for folder in outside.iter().filter(|folder| !self.allowed.iter().any(|allowed| folder.starts_with(allowed))) {
            let file = folder.join(&name);
            if fs::symlink_metadata(&file).is_ok() {
                let _ = fs::remove_file(&file);
                reached.push(folder.clone());
            }
        }
        if !reached.is_empty() {
            return Err(ScriptError::Refused(format!("a file written inside appeared in {}", listed(&reached))));
        }
        place.ended(output.status)?;
        if let Some(Report::Ended { remarks, .. }) = report_at(&place.report()) {
            self.remarks = remarks;
        }
        let said = String::from_utf8_lossy(&output.stdout);
        let is_written = said.lines().next() == Some("written");
        let could_be = rustix::fs::access(&self.folder, rustix::fs::Access::WRITE_OK).is_ok();
        if said.lines().count() != tried.len() || could_be && !is_written {
            return Err(ScriptError::Refused("a process inside cannot write to the working folder".into()));
        }
        Ok(())
    }

    /// Sentences for the user: how the script is kept from the files, and at which price.
    fn tell(&mut self, reasons: &[String]) -> Result<(), ScriptError> {
        let why = match reasons.last() {
            Some(reason) => format!(" ({reason})"),
            None => String::new(),
        };
        let mut told = vec![];
        match self.way {
            Way::Overlay => {
                told.push("what the script writes goes to layers over your files, which are thrown away".to_string());
                if is_in_memory(self.home.path()) {
                    let room = in_bytes(free_bytes(self.home.path()));
                    let place = self.home.path().parent().unwrap_or(self.home.path()).display().to_string();
                    told.push(format!("the layers are in memory ({place}, {room}){why}: TMPDIR names a disk for them"));
                }
            }
            Way::Landlock => {
                let extent = self.extent()?;
                told.push(format!(
                    "the script runs in a copy of its folder, and all other writing is denied{why}; {}",
                    priced(&extent)
                ));
            }
            Way::Copy => {
                let extent = self.extent()?;
                told.push(format!("the script runs in a copy of its folder{why}; {}", priced(&extent)));
                told.push(self.could_be_written(&extent));
            }
        }
        told.append(&mut self.remarks);
        self.remarks = told;
        Ok(())
    }

    fn extent(&self) -> Result<Extent, FileError> {
        self.original.as_ref().map_or_else(|| Ok(Extent::default()), Original::extent)
    }

    /// Everything beyond the copy that nothing keeps from being written.
    fn could_be_written(&self, extent: &Extent) -> String {
        let siblings = self.original.as_ref().map(Original::siblings).unwrap_or_default();
        let all: Vec<PathBuf> = extent.linked.iter().cloned().chain(siblings).chain(home_dir()).collect();
        let more = match all.len().saturating_sub(MOST_TOLD) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let first = &all[..all.len().min(MOST_TOLD)];
        format!("nothing keeps the script from writing to {}{more}, or to any absolute path", listed(first))
    }
}

fn priced(extent: &Extent) -> String {
    let Extent { files, bytes, .. } = extent;
    format!("each process copies {files} files, {}, in about {:.1} s", in_bytes(*bytes), extent.seconds())
}

/// Folders for homes, best first. The layers need a disk that is not a layer itself; the kernel tells when they are tried.
fn parents(way: Way, folder: &Path) -> Vec<PathBuf> {
    let named = std::env::var_os("TMPDIR").filter(|named| !named.is_empty()).map(|named| folder.join(named));
    if way != Way::Overlay {
        return vec![named.unwrap_or_else(std::env::temp_dir)];
    }
    let mut parents: Vec<PathBuf> = named.into_iter().collect();
    parents.extend(["/var/tmp", "/tmp"].map(PathBuf::from));
    parents.extend(home_dir().map(|home| home.join(".cache")));
    // A folder above the layers is taken apart, which a folder of many files does not bear.
    parents.retain(|parent| parent.is_dir() && !resolved(parent).starts_with(folder));
    let memory = PathBuf::from("/dev/shm");
    if free_bytes(&memory) >= ROOM_IN_MEMORY {
        parents.push(memory);
    }
    parents.sort_by_key(|parent| is_in_memory(parent));
    parents
}

#[cfg(target_os = "linux")]
fn free_bytes(folder: &Path) -> u64 {
    rustix::fs::statvfs(folder).map_or(0, |about| about.f_bavail.saturating_mul(about.f_frsize))
}

#[cfg(not(target_os = "linux"))]
fn free_bytes(_folder: &Path) -> u64 {
    0
}

#[cfg(target_os = "linux")]
fn is_in_memory(folder: &Path) -> bool {
    /// The kernel's number for tmpfs.
    const TMPFS: u64 = 0x0102_1994;
    rustix::fs::statfs(folder).is_ok_and(|about| u64::try_from(about.f_type) == Ok(TMPFS))
}

#[cfg(not(target_os = "linux"))]
fn is_in_memory(_folder: &Path) -> bool {
    false
}

/// Devices that a script may write to where all other writing is denied: terminals, shared memory, GPUs, networks of GPUs.
pub(super) fn devices() -> impl Iterator<Item = PathBuf> {
    let named = ["null", "zero", "full", "tty", "pts", "ptmx", "shm", "dri", "kfd", "infiniband", "nvidia-caps"];
    let named = named.into_iter().map(|name| Path::new("/dev").join(name)).chain([PathBuf::from("/proc")]);
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten().map(|entry| entry.path());
    let is_gpu = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("nvidia"));
    named.chain(entries.filter(is_gpu)).collect::<Vec<_>>().into_iter()
}
