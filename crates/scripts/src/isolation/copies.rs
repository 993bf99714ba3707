//! Copies of the working folder, for systems without layers: a process writes to its copy.
//!
//! Where writing elsewhere is denied, large files and crowded folders are symbolic links to the user's own: reading them
//! costs nothing, and the hook replaces a link before Python writes to it. Where nothing is denied, links would lead out:
//! everything is copied as far as that is affordable, and the rest is told beforehand.

use headroom_record::atomic::FileError;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Folders that no script reads.
const LEFT_OUT: [&str; 3] = ["__pycache__", ".mypy_cache", ".ruff_cache"];
/// Siblings beyond this number are not linked.
const MOST_SIBLINGS: usize = 1000;
/// Rates of copying on a common disk, for the time that is told beforehand.
const BYTES_PER_SECOND: f64 = 400e6;
const SECONDS_PER_FILE: f64 = 1e-4;

/// Limits beyond which a file or a folder is linked instead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    pub file_bytes: u64,
    pub bytes: u64,
    /// A folder with more entries holds data.
    pub entries: usize,
    /// Folders of tools, to which no script writes its results.
    linked_whole: &'static [&'static str],
}

impl Limits {
    /// Where a link cannot be written through.
    pub const DENIED: Limits = Limits {
        file_bytes: 8 << 20,
        bytes: 256 << 20,
        entries: 1000,
        linked_whole: &[".git", ".hg", ".venv", "venv", "node_modules", ".tox"],
    };
    /// Where it can.
    pub const NOT_DENIED: Limits =
        Limits { file_bytes: 256 << 20, bytes: 2 << 30, entries: usize::MAX, linked_whole: &[] };
    /// Where the file system shares blocks between copies.
    pub const SHARED_BLOCKS: Limits = Limits { file_bytes: u64::MAX, bytes: u64::MAX, ..Limits::NOT_DENIED };
}

/// The work of one copy, known before anything is copied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extent {
    pub files: u64,
    pub bytes: u64,
    /// The user's own files and folders that the copy links to.
    pub linked: Vec<PathBuf>,
}

impl Extent {
    pub fn seconds(&self) -> f64 {
        self.bytes as f64 / BYTES_PER_SECOND + self.files as f64 * SECONDS_PER_FILE
    }
}

/// The working folder to copy.
pub struct Original {
    folder: PathBuf,
    /// Folders of this command: its results, and the home of copies if it is in the working folder.
    left_out: Vec<PathBuf>,
    limits: Limits,
}

impl Original {
    pub fn new(folder: &Path, left_out: Vec<PathBuf>, limits: Limits) -> Original {
        Original { folder: folder.to_path_buf(), left_out, limits }
    }

    /// Files and bytes of a copy.
    pub fn extent(&self) -> Result<Extent, FileError> {
        let mut copying = Copying { original: self, extent: Extent::default() };
        copying.folder(&self.folder, None)?;
        Ok(copying.extent)
    }

    /// Makes a copy in `root`, and returns its folder. Siblings of the working folder are links, so that `../data` leads
    /// to the same place.
    pub fn copy(&self, root: &Path) -> Result<PathBuf, FileError> {
        let name = self.folder.file_name().unwrap_or(OsStr::new("folder"));
        let folder = root.join("beside").join(name);
        self.copy_to(&folder)?;
        for entry in self.siblings() {
            // Most scripts do not need siblings; those that cannot be linked are left out.
            let _ = link(&entry, &folder.with_file_name(entry.file_name().unwrap_or_default()));
        }
        Ok(folder)
    }

    pub fn copy_to(&self, folder: &Path) -> Result<(), FileError> {
        fs::create_dir_all(folder).map_err(FileError::new("make the folder", folder))?;
        Copying { original: self, extent: Extent::default() }.folder(&self.folder, Some(folder))
    }

    /// Folders and files beside the working folder.
    pub fn siblings(&self) -> Vec<PathBuf> {
        let Some(parent) = self.folder.parent() else { return vec![] };
        let mut entries = entries_of(parent).unwrap_or_default();
        entries.truncate(MOST_SIBLINGS);
        entries.retain(|entry| *entry != self.folder && !self.left_out.iter().any(|own| own.starts_with(entry)));
        entries
    }
}

struct Copying<'a> {
    original: &'a Original,
    extent: Extent,
}

impl Copying<'_> {
    /// Copies into a folder that exists; without one, only counts.
    fn folder(&mut self, from: &Path, to: Option<&Path>) -> Result<(), FileError> {
        let limits = self.original.limits;
        for entry in entries_of(from)? {
            let name = entry.file_name().unwrap_or_default();
            let place = to.map(|to| to.join(name));
            let about = match fs::symlink_metadata(&entry) {
                Ok(about) => about,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(FileError::new("look at", &entry)(error)),
            };
            let is_named = |names: &[&str]| names.iter().any(|one| name == *one);
            if about.is_symlink() {
                // A user's relative link keeps its meaning, since siblings are there too.
                let target = fs::read_link(&entry).map_err(FileError::new("read", &entry))?;
                if self.leads_out(&entry) {
                    self.extent.linked.push(entry);
                }
                place.map_or(Ok(()), |place| link(&target, &place))?;
            } else if about.is_dir() {
                if self.original.left_out.contains(&entry) || is_named(&LEFT_OUT) {
                    continue;
                }
                let is_crowded = || entries_of(&entry).is_ok_and(|entries| entries.len() > limits.entries);
                if is_named(limits.linked_whole) || is_crowded() {
                    self.linked(entry, place)?;
                    continue;
                }
                if let Some(place) = &place {
                    fs::create_dir(place).map_err(FileError::new("make the folder", place))?;
                }
                self.folder(&entry, place.as_deref())?;
            } else if about.is_file() {
                if about.len() > limits.file_bytes || self.extent.bytes + about.len() > limits.bytes {
                    self.linked(entry, place)?;
                    continue;
                }
                self.extent.bytes += about.len();
                self.extent.files += 1;
                if let Some(place) = &place {
                    // Shares blocks by itself where the file system can.
                    fs::copy(&entry, place).map_err(FileError::new("copy", &entry))?;
                }
            }
            // Sockets, pipes and devices are not data.
        }
        Ok(())
    }

    fn linked(&mut self, entry: PathBuf, place: Option<PathBuf>) -> Result<(), FileError> {
        place.map_or(Ok(()), |place| link(&entry, &place))?;
        self.extent.linked.push(entry);
        Ok(())
    }

    fn leads_out(&self, entry: &Path) -> bool {
        entry.canonicalize().is_ok_and(|target| !target.starts_with(&self.original.folder))
    }
}

/// The files of a folder with their sizes, times and numbers: enough to notice a change.
pub struct Snapshot {
    folder: PathBuf,
    left_out: Vec<PathBuf>,
    files: Vec<(PathBuf, Stamp)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Stamp {
    bytes: u64,
    modified: Option<std::time::SystemTime>,
    mode: fs::Permissions,
    number: u64,
}

impl Snapshot {
    pub fn of(folder: &Path, left_out: Vec<PathBuf>) -> Snapshot {
        let files = stamps(folder, &left_out);
        Snapshot { folder: folder.to_path_buf(), left_out, files }
    }

    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// A file that was changed, removed or made since, if there is one.
    pub fn changed(&self) -> Option<PathBuf> {
        let now = stamps(&self.folder, &self.left_out);
        let pairs = self.files.iter().zip(&now).find(|(before, after)| before != after);
        let extra = || self.files.get(now.len()).or_else(|| now.get(self.files.len()));
        pairs.map(|(before, after)| before.0.clone().min(after.0.clone())).or_else(|| Some(extra()?.0.clone()))
    }
}

fn stamps(folder: &Path, left_out: &[PathBuf]) -> Vec<(PathBuf, Stamp)> {
    let mut found = vec![];
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in entries_of(&folder).unwrap_or_default() {
            let Ok(about) = fs::symlink_metadata(&entry) else { continue };
            if about.is_dir() {
                if !left_out.contains(&entry) {
                    open.push(entry);
                }
                continue;
            }
            let stamp = Stamp {
                bytes: about.len(),
                modified: about.modified().ok(),
                mode: about.permissions(),
                number: number_of(&about),
            };
            found.push((entry, stamp));
        }
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

#[cfg(unix)]
fn number_of(about: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(about)
}

#[cfg(not(unix))]
fn number_of(_about: &fs::Metadata) -> u64 {
    0
}

/// Whether copies from one folder to another share blocks.
#[cfg(target_os = "linux")]
pub fn shares_blocks(folder: &Path, home: &Path) -> bool {
    let is_file = |entry: &PathBuf| fs::metadata(entry).is_ok_and(|about| about.is_file() && about.len() > 0);
    let Some(file) = entries_of(folder).unwrap_or_default().into_iter().find(is_file) else { return false };
    let place = home.join("shares-blocks");
    let cloned = fs::File::open(file).and_then(|from| {
        let to = fs::File::create(&place)?;
        Ok(rustix::fs::ioctl_ficlone(to, from)?)
    });
    let _ = fs::remove_file(place);
    cloned.is_ok()
}

#[cfg(not(target_os = "linux"))]
pub fn shares_blocks(_folder: &Path, _home: &Path) -> bool {
    false
}

/// The entries of a folder, sorted by name.
fn entries_of(folder: &Path) -> Result<Vec<PathBuf>, FileError> {
    let entries = fs::read_dir(folder).map_err(FileError::new("read the folder", folder))?;
    let mut entries: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    entries.sort();
    Ok(entries)
}

#[cfg(unix)]
fn link(target: &Path, place: &Path) -> Result<(), FileError> {
    std::os::unix::fs::symlink(target, place).map_err(FileError::new("link", place))?;
    Ok(())
}

#[cfg(not(unix))]
fn link(target: &Path, place: &Path) -> Result<(), FileError> {
    match target.is_dir() {
        true => std::os::windows::fs::symlink_dir(target, place).map_err(FileError::new("link", place))?,
        false => std::os::windows::fs::symlink_file(target, place).map_err(FileError::new("link", place))?,
    }
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn made(limits: Limits) -> (tempfile::TempDir, Original) {
        let root = tempfile::tempdir().unwrap();
        let work = root.path().join("work");
        for folder in ["package/__pycache__", "runs/optimize-train", "images", ".git"] {
            fs::create_dir_all(work.join(folder)).unwrap();
        }
        fs::create_dir_all(root.path().join("data")).unwrap();
        fs::write(root.path().join("data/words.txt"), "one two").unwrap();
        link(Path::new("../data"), &work.join("out")).unwrap();
        fs::write(work.join("train.py"), "print()").unwrap();
        fs::write(work.join("package/model.py"), "x = 1").unwrap();
        fs::write(work.join("runs/optimize-train/validation.json"), "{}").unwrap();
        fs::File::create(work.join("weights.pt")).unwrap().set_len(Limits::DENIED.file_bytes + 1).unwrap();
        for image in 0..=Limits::DENIED.entries {
            fs::write(work.join("images").join(format!("{image}.png")), "").unwrap();
        }
        let original = Original::new(&work, vec![work.join("runs/optimize-train")], limits);
        (root, original)
    }

    fn are_links(folder: &Path) -> [bool; 5] {
        let is_link = |name: &str| fs::symlink_metadata(folder.join(name)).unwrap().is_symlink();
        ["train.py", "weights.pt", "images", ".git", "out"].map(is_link)
    }

    #[test]
    fn small_files_are_copies_and_large_ones_are_links() {
        let (root, original) = made(Limits::DENIED);
        let folder = original.copy(&root.path().join("home")).unwrap();
        assert_eq!(are_links(&folder), [false, true, true, true, true]);
        assert_eq!(fs::read_to_string(folder.join("package/model.py")).unwrap(), "x = 1");
        assert!(!folder.join("package/__pycache__").exists());
        assert!(!folder.join("runs/optimize-train").exists(), "its own results do not belong to the script");
        assert_eq!(fs::read_to_string(folder.join("../data/words.txt")).unwrap(), "one two");
        let extent = original.extent().unwrap();
        assert_eq!((extent.files, extent.bytes, extent.linked.len()), (2, 12, 4));
        fs::write(folder.join("train.py"), "changed").unwrap();
        assert_eq!(fs::read_to_string(original.folder.join("train.py")).unwrap(), "print()");
    }

    #[test]
    fn where_nothing_is_denied_only_links_that_lead_out_stay_links() {
        let (root, original) = made(Limits::NOT_DENIED);
        let folder = original.copy(&root.path().join("home")).unwrap();
        assert_eq!(are_links(&folder), [false, false, false, false, true]);
        assert_eq!(original.extent().unwrap().linked, [original.folder.join("out")]);
        assert_eq!(original.siblings().len(), 2, "data and home");
    }

    #[test]
    fn copies_that_lie_in_the_working_folder_are_not_copied() {
        let (_root, mut original) = made(Limits::DENIED);
        let home = original.folder.join("home");
        original.left_out.push(home.clone());
        let folder = original.copy(&home).unwrap();
        assert!(folder.join("train.py").exists() && !folder.join("home").exists());
    }

    #[test]
    fn a_snapshot_notices_what_was_changed_removed_or_made() {
        let (_root, original) = made(Limits::DENIED);
        let snapshot = Snapshot::of(&original.folder, original.left_out.clone());
        assert!(snapshot.len() > 1000 && snapshot.changed().is_none());
        fs::write(original.folder.join("runs/optimize-train/validation.json"), "{ }").unwrap();
        assert_eq!(snapshot.changed(), None, "its own results");
        let changed = |name: &str| assert_eq!(snapshot.changed(), Some(original.folder.join(name)));
        fs::write(original.folder.join("zebra"), "").unwrap();
        changed("zebra");
        fs::write(original.folder.join("train.py"), "longer").unwrap();
        changed("train.py");
        fs::remove_file(original.folder.join("images/5.png")).unwrap();
        changed("images/5.png");
    }
}
