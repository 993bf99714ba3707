//! Runs a script so that it harms nothing: whatever it writes is thrown away, and nothing that it starts outlives it.
//!
//! Three ways, best first, chosen by trying each ([`Isolation::begin`]): layers over all file systems in namespaces of its
//! own, a copy of the working folder with all other writing denied, and a mere copy. A user's real run has none of them,
//! and still ends with its command ([`unshielded`]).

mod caches;
mod choosing;
mod copies;
mod home;
#[cfg(target_os = "linux")]
mod launcher;
#[cfg(target_os = "linux")]
mod layers;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "other systems have no launcher to be given orders"))]
mod spec;
#[cfg(target_os = "linux")]
mod tree;

use crate::error::{ScriptError, cannot};
use caches::resolved;
use copies::{Original, Snapshot};
use headroom_record::atomic::FileError;
pub use home::Home;
#[cfg(target_os = "linux")]
pub use launcher::launched;
#[cfg(target_os = "linux")]
use spec::Spec;
use spec::{Cache, Layers, Means, Report, report_at};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
#[cfg(target_os = "linux")]
use std::time::Duration;

/// The user's wishes about how a script is shielded.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Folders and files that the script may write to.
    pub allow_write: Vec<PathBuf>,
    /// The one way to try, in place of the first that works.
    pub way: Option<Way>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// Layers over all file systems, and processes in a namespace of their own.
    Overlay,
    /// A copy of the working folder; all other writing is denied.
    Landlock,
    /// A copy of the working folder; nothing else is kept from being written.
    Copy,
}

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Way::Overlay => "overlay",
            Way::Landlock => "landlock",
            Way::Copy => "copy",
        }
    }
}

/// The isolation of all processes of a search.
pub struct Isolation {
    home: Home,
    way: Way,
    /// The user's working folder.
    folder: PathBuf,
    /// Folders of the command itself: what is written there stays.
    shown: Vec<PathBuf>,
    /// The user's `--allow-write`.
    allowed: Vec<PathBuf>,
    caches: Vec<Cache>,
    /// Variables that lead caches to their layer where the user's own cannot be covered.
    variables: Vec<(&'static str, PathBuf)>,
    original: Option<Original>,
    snapshot: Option<Snapshot>,
    /// Sentences about this way for the user, before anything runs.
    pub remarks: Vec<String>,
}

/// Folders inside a search's home.
const HOOK: &str = "hook";
const SHARED: &str = "shared";
const CACHES: &str = "caches";
/// The launcher's answer.
const REPORT: &str = "launcher.report";

impl Isolation {
    /// The folder for the hook: the script reads it.
    pub fn hook(&self) -> PathBuf {
        self.home.path().join(HOOK)
    }

    /// A folder that all processes write to.
    pub fn shared(&self) -> PathBuf {
        self.home.path().join(SHARED)
    }

    /// A place for one process. Texts replace the user's files of these names in it.
    pub fn place(&self, changed: &[(PathBuf, String)]) -> Result<Place, ScriptError> {
        let root = tempfile::Builder::new().prefix("run-").tempdir_in(self.home.path());
        let root = root.map_err(cannot("make a folder for a process"))?.keep();
        let home = self.home.path().to_path_buf();
        let mut place = Place { folder: self.folder.clone(), way: self.way, home, root, replaced: vec![] };
        for folder in [place.aside(), place.temporary()] {
            fs::create_dir_all(&folder).map_err(FileError::new("make the folder", &folder))?;
        }
        if let Some(original) = &self.original {
            place.folder = original.copy(&place.root.join("copy"))?;
        }
        for (number, (path, text)) in changed.iter().enumerate() {
            let target = place.folder.join(path);
            let staged = match self.original.is_some() {
                true => {
                    // A link would lead to the user's own file.
                    let _ = fs::remove_file(&target);
                    target
                }
                false => {
                    let staged = place.root.join(format!("replaced-{number}"));
                    place.replaced.push((staged.clone(), resolved(&target)));
                    staged
                }
            };
            fs::write(&staged, text).map_err(FileError::new("write", &staged))?;
        }
        Ok(place)
    }

    /// The command that runs these words in a place. Standard streams and variables are the caller's to set.
    pub fn command(&self, place: &Place, words: &[OsString]) -> Result<Command, ScriptError> {
        let words: Vec<OsString> = words.iter().map(|word| self.word(place, word)).collect();
        let mut command = ordered(&place.root, &place.report(), &place.folder, &words, self.means(place))?;
        if self.way != Way::Overlay {
            // An interrupted script leaves its temporary files in a folder that is removed.
            command.env("TMPDIR", place.temporary());
        }
        command.envs(self.variables.iter().map(|(name, path)| (name, path)));
        command.env("HEADROOM_SCRATCH", &place.root);
        // The user's shell set it to the folder that a copy stands in for.
        command.env("PWD", &place.folder);
        Ok(command)
    }

    fn means(&self, place: &Place) -> Means {
        let own = [place.aside(), place.temporary(), self.shared()];
        let through = self.shown.iter().chain(&self.allowed).cloned();
        match self.way {
            Way::Overlay => Means::Layers(Layers {
                home: self.home.path().to_path_buf(),
                hidden: place.root.join("layers"),
                written: [self.folder.clone()]
                    .into_iter()
                    .chain(std::env::home_dir())
                    .map(|path| resolved(&path))
                    .collect(),
                shown: own.into_iter().chain([self.hook()]).chain(through).collect(),
                caches: self.caches.clone(),
                replaced: place.replaced.clone(),
            }),
            Way::Landlock => Means::Landlock {
                writable: own
                    .into_iter()
                    .chain([place.root.join("copy"), self.home.path().join(CACHES)])
                    .chain(through)
                    .chain(choosing::devices())
                    .collect(),
            },
            Way::Copy => Means::Copy,
        }
    }

    /// A word of the command: a path in the working folder is mapped into the copy, if there is one.
    pub fn word(&self, place: &Place, word: &OsStr) -> OsString {
        let path = Path::new(word);
        let is_ours = path.starts_with(self.home.path());
        match path.strip_prefix(&self.folder) {
            Ok(rest) if !is_ours && place.folder != self.folder => place.folder.join(rest).into_os_string(),
            _ => word.to_os_string(),
        }
    }

    /// A sentence about a file of the working folder that was changed meanwhile, where nothing kept the script from it.
    pub fn warning(&self) -> Option<String> {
        let path = self.snapshot.as_ref()?.changed()?;
        Some(format!("{} was changed meanwhile: nothing keeps a script in a copy from absolute paths", path.display()))
    }

    /// States what is known about the user's files after processes have run: from the mechanism that was tried at the
    /// beginning, or else by comparing.
    pub fn claim(&self) -> String {
        let apart = match self.allowed.is_empty() {
            true => String::new(),
            false => format!(" apart from {} (--allow-write)", listed(&self.allowed)),
        };
        match (self.way, &self.snapshot) {
            (Way::Copy, Some(snapshot)) => match snapshot.changed() {
                Some(path) => format!("{} was changed meanwhile", path.display()),
                None => format!(
                    "none of the {} files in the working folder was changed; elsewhere nothing was checked",
                    snapshot.len()
                ),
            },
            (Way::Copy, None) => "your files were not checked".into(),
            // The kernel denies neither modes and times nor shared memory.
            (Way::Landlock, _) => format!("no content of your files was changed{apart}"),
            (Way::Overlay, _) => format!("none of your files was changed{apart}"),
        }
    }
}

/// Where one process runs; removed on drop.
pub struct Place {
    /// The script's working folder: the user's own path, or a copy.
    pub folder: PathBuf,
    way: Way,
    home: PathBuf,
    root: PathBuf,
    replaced: Vec<(PathBuf, PathBuf)>,
}

impl Place {
    /// A folder that the script and this command both see, for notes.
    pub fn aside(&self) -> PathBuf {
        self.root.join("aside")
    }

    fn temporary(&self) -> PathBuf {
        self.root.join("tmp")
    }

    fn report(&self) -> PathBuf {
        self.aside().join(REPORT)
    }

    /// The script's own end, from the launcher's.
    pub fn ended(&self, status: ExitStatus) -> Result<ExitStatus, ScriptError> {
        script_status(&self.report(), status)
    }

    /// Advice for a script that ended because it could not write, from what it printed.
    pub fn advice(&self, printed: &str) -> Option<String> {
        let path = denied_path(printed).filter(|_| self.way != Way::Copy)?;
        Some(format!("writing to {path} is denied to the script: --allow-write {path} lets it"))
    }
}

/// The last path that Python's error messages name as one that may not be written.
fn denied_path(printed: &str) -> Option<&str> {
    let named = |line: &str| -> Option<std::ops::Range<usize>> {
        let why = ["Permission denied: '", "Read-only file system: '"];
        let begin = why.iter().find_map(|why| Some(line.find(why)? + why.len()))?;
        Some(begin..begin + line[begin..].find('\'')?)
    };
    printed.lines().rev().find_map(|line| named(line).map(|range| &line[range]))
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.root.starts_with(&self.home) {
            // Anything left is removed with the home.
            let _ = home::remove_tree(&self.root);
        }
    }
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The command for a user's real run: not shielded, and ended with this process whatever it has started.
pub fn unshielded(home: &Home, words: &[OsString]) -> Result<Command, ScriptError> {
    let folder = std::env::current_dir().map_err(cannot("find the working folder"))?;
    ordered(home.path(), &home.path().join(REPORT), &folder, words, Means::Nothing)
}

/// The script's own end, from that of an [`unshielded`] command.
pub fn unshielded_ended(home: &Home, status: ExitStatus) -> Result<ExitStatus, ScriptError> {
    script_status(&home.path().join(REPORT), status)
}

/// The signal by which an [`unshielded`] command is asked to hand on another one to its script. The script itself does not
/// get it from a terminal.
#[cfg(unix)]
pub fn request(signal: rustix::process::Signal) -> rustix::process::Signal {
    use rustix::process::Signal;
    match signal {
        _ if !cfg!(target_os = "linux") => signal,
        Signal::INT => Signal::USR1,
        _ => Signal::USR2,
    }
}

/// Puts a command at the head of a process group, which can be signalled as a whole.
#[cfg(unix)]
pub fn lead_a_group(command: &mut Command) {
    std::os::unix::process::CommandExt::process_group(command, 0);
}

#[cfg(not(unix))]
pub fn lead_a_group(_command: &mut Command) {}

#[cfg(target_os = "linux")]
fn ordered(
    root: &Path,
    report: &Path,
    folder: &Path,
    words: &[OsString],
    means: Means,
) -> Result<Command, ScriptError> {
    let (report, folder) = (report.to_path_buf(), folder.to_path_buf());
    let order = Spec { command: std::process::id(), report, folder, means };
    let file = root.join("order.json");
    let text = serde_json::to_vec(&order).map_err(|_| ScriptError::Refused("a folder's name is not text".into()))?;
    fs::write(&file, text).map_err(FileError::new("write", &file))?;
    Ok(launcher::command(&file, words))
}

/// Other systems have no launcher: the script is started as it is.
#[cfg(not(target_os = "linux"))]
fn ordered(
    _root: &Path,
    _report: &Path,
    folder: &Path,
    words: &[OsString],
    _means: Means,
) -> Result<Command, ScriptError> {
    let (program, arguments) =
        words.split_first().ok_or_else(|| ScriptError::Refused("the command is empty".into()))?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder);
    Ok(command)
}

/// The script's own end, from the launcher's report. Without one, the launcher's end is the script's.
fn script_status(report: &Path, status: ExitStatus) -> Result<ExitStatus, ScriptError> {
    match report_at(report) {
        Some(Report::Ended { status, .. }) => Ok(of_raw(status)),
        Some(Report::NotStarted(why)) => Err(ScriptError::Refused(why)),
        Some(Report::Refused(why)) => {
            Err(ScriptError::Refused(format!("the script was not started: its isolation was refused ({why})")))
        }
        None => Ok(status),
    }
}

#[cfg(unix)]
fn of_raw(status: i32) -> ExitStatus {
    std::os::unix::process::ExitStatusExt::from_raw(status)
}

#[cfg(not(unix))]
fn of_raw(status: i32) -> ExitStatus {
    std::os::windows::process::ExitStatusExt::from_raw(status as u32)
}

/// Ends a launcher's script and everything that it has started.
#[cfg(target_os = "linux")]
pub fn end_all(child: &mut Child) {
    tree::end_descendants(child.id(), Duration::from_secs(10));
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(not(target_os = "linux"))]
pub fn end_all(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_denied_path_is_found_in_an_error_message() {
        let error = "Traceback\nPermissionError: [Errno 13] Permission denied: '/data/a/x y.txt'\n";
        assert_eq!(denied_path(error), Some("/data/a/x y.txt"));
        assert_eq!(denied_path("OSError: [Errno 30] Read-only file system: '/data'"), Some("/data"));
        assert_eq!(denied_path("Permission denied: '"), None);
        assert_eq!(denied_path("no such thing"), None);
    }
}
