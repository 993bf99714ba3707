//! Copies the working folder for every process: small files are copied, large ones and crowded folders are symbolic
//! links, and everything the script writes goes to the copy.
//!
//! A link leads to the user's own file. The hook replaces a link before the script opens it for writing. Every linked
//! file is still checked after each process, and a changed one stops everything.

use anyhow::{Context, Result, bail};
use headroom_record::atomic::FileError;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Larger files are linked.
const SMALL: u64 = 8 << 20;
/// Small files beyond this total are linked too.
const MOST_BYTES: u64 = 256 << 20;
/// A folder with more entries than this holds data, and is linked as a whole.
const CROWDED: usize = 1000;
/// Tool folders, to which no script writes its results; each is linked as a whole.
const LINKED_WHOLE: [&str; 6] = [".git", ".hg", ".venv", "venv", "node_modules", ".tox"];
/// Folders that no script reads.
const LEFT_OUT: [&str; 3] = ["__pycache__", ".mypy_cache", ".ruff_cache"];

/// A large file or folder of the user's that a copy links to.
#[derive(Debug, PartialEq)]
struct Linked {
    path: PathBuf,
    size: u64,
    changed: Option<SystemTime>,
}

/// The working folder to copy.
pub struct Original {
    folder: PathBuf,
    /// Left out of copies: this command's own results.
    results: PathBuf,
}

/// One process's folder; removed on drop.
pub struct Scratch {
    root: tempfile::TempDir,
    /// Stands in for the working folder.
    pub folder: PathBuf,
    linked: Vec<Linked>,
}

impl Original {
    pub fn new(folder: PathBuf, results: &Path) -> Result<Original> {
        Ok(Original { folder, results: std::path::absolute(results)? })
    }

    /// Makes a copy under `home`. Siblings of the working folder are links, so that `../data` leads to the same place.
    pub fn copy(&self, home: &Path) -> Result<Scratch> {
        let root =
            tempfile::Builder::new().prefix("run-").tempdir_in(home).context("cannot make a folder for a copy")?;
        let name = self.folder.file_name().unwrap_or(OsStr::new("folder"));
        let folder = root.path().join("beside").join(name);
        fs::create_dir_all(&folder).map_err(FileError::new("make the folder", &folder))?;
        let mut copying = Copying { left_out: [&self.results, home], bytes: 0, linked: vec![] };
        copying.folder(&self.folder, &folder)?;
        if let Some(parent) = self.folder.parent() {
            let entries = entries_of(parent).unwrap_or_default();
            for entry in entries.iter().take(CROWDED).filter(|entry| **entry != self.folder && !home.starts_with(entry))
            {
                // Most scripts do not need siblings; those that cannot be linked are left out.
                let _ = link(entry, &folder.with_file_name(entry.file_name().unwrap_or_default()));
            }
        }
        Ok(Scratch { folder, linked: copying.linked, root })
    }
}

impl Scratch {
    /// The folder for the process's hook, notes and logs: outside the copy of the user's folder.
    pub fn aside(&self) -> &Path {
        self.root.path()
    }

    /// Fails if a large file of the user's was changed despite all precautions.
    pub fn check(&self) -> Result<()> {
        for linked in &self.linked {
            if Linked::of(&linked.path) != *linked {
                bail!(
                    "the script wrote to {}, a large file of yours that its copy links to: nothing more is run\n  help: move it \
                     away, or make the script write elsewhere",
                    linked.path.display()
                );
            }
        }
        Ok(())
    }

    /// The path in the copy for a user's path, if it is in the working folder.
    pub fn place_of(&self, original: &Original, path: &Path) -> Option<PathBuf> {
        path.strip_prefix(&original.folder).ok().map(|rest| self.folder.join(rest))
    }
}

impl Linked {
    fn of(path: &Path) -> Linked {
        let about = fs::metadata(path).ok();
        Linked {
            path: path.to_path_buf(),
            size: about.as_ref().map_or(0, fs::Metadata::len),
            changed: about.filter(fs::Metadata::is_file).and_then(|about| about.modified().ok()),
        }
    }
}

struct Copying<'a> {
    /// This command's own results, and the folder of copies if it is in the working folder.
    left_out: [&'a Path; 2],
    bytes: u64,
    linked: Vec<Linked>,
}

impl Copying<'_> {
    fn folder(&mut self, from: &Path, to: &Path) -> Result<()> {
        for entry in entries_of(from)? {
            let name = entry.file_name().unwrap_or_default();
            let place = to.join(name);
            let about = match fs::symlink_metadata(&entry) {
                Ok(about) => about,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(FileError::new("look at", &entry)(error).into()),
            };
            let is_named = |names: &[&str]| names.iter().any(|one| name == *one);
            if about.is_symlink() {
                // A user's relative link keeps its meaning, since siblings are there too.
                let target = fs::read_link(&entry).map_err(FileError::new("read", &entry))?;
                link(&target, &place)?;
            } else if about.is_dir() {
                if self.left_out.contains(&entry.as_path()) || is_named(&LEFT_OUT) {
                    continue;
                }
                if is_named(&LINKED_WHOLE) || entries_of(&entry).is_ok_and(|entries| entries.len() > CROWDED) {
                    self.linked(&entry, &place)?;
                } else {
                    fs::create_dir(&place).map_err(FileError::new("make the folder", &place))?;
                    self.folder(&entry, &place)?;
                }
            } else if about.is_file() {
                match about.len() <= SMALL && self.bytes + about.len() <= MOST_BYTES {
                    true => {
                        self.bytes += about.len();
                        fs::copy(&entry, &place).map_err(FileError::new("copy", &entry))?;
                    }
                    false => self.linked(&entry, &place)?,
                }
            }
            // Sockets, pipes and devices are not data.
        }
        Ok(())
    }

    fn linked(&mut self, entry: &Path, place: &Path) -> Result<()> {
        self.linked.push(Linked::of(entry));
        link(entry, place)
    }
}

/// The entries of a folder, sorted by name.
fn entries_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(FileError::new("read the folder", folder))?;
    let mut entries: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    entries.sort();
    Ok(entries)
}

#[cfg(unix)]
fn link(target: &Path, place: &Path) -> Result<()> {
    std::os::unix::fs::symlink(target, place).map_err(FileError::new("link", place))?;
    Ok(())
}

#[cfg(not(unix))]
fn link(target: &Path, place: &Path) -> Result<()> {
    match target.is_dir() {
        true => std::os::windows::fs::symlink_dir(target, place).map_err(FileError::new("link", place))?,
        false => std::os::windows::fs::symlink_file(target, place).map_err(FileError::new("link", place))?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> (tempfile::TempDir, Original) {
        let root = tempfile::tempdir().unwrap();
        let work = root.path().join("work");
        fs::create_dir_all(work.join("package/__pycache__")).unwrap();
        fs::create_dir_all(work.join("runs/optimize-train")).unwrap();
        fs::create_dir_all(work.join("images")).unwrap();
        fs::create_dir_all(root.path().join("data")).unwrap();
        fs::write(root.path().join("data/words.txt"), "one two").unwrap();
        fs::write(work.join("train.py"), "print()").unwrap();
        fs::write(work.join("package/model.py"), "x = 1").unwrap();
        fs::write(work.join("runs/optimize-train/validation.json"), "{}").unwrap();
        fs::File::create(work.join("weights.pt")).unwrap().set_len(SMALL + 1).unwrap();
        for image in 0..=CROWDED {
            fs::write(work.join("images").join(format!("{image}.png")), "").unwrap();
        }
        let original = Original::new(work.clone(), &work.join("runs/optimize-train")).unwrap();
        (root, original)
    }

    #[test]
    fn small_files_are_copies_and_large_ones_are_links() {
        let (root, original) = made();
        let scratch = original.copy(root.path()).unwrap();
        let is_link = |name: &str| fs::symlink_metadata(scratch.folder.join(name)).unwrap().is_symlink();
        assert_eq!([is_link("train.py"), is_link("weights.pt"), is_link("images")], [false, true, true]);
        assert_eq!(fs::read_to_string(scratch.folder.join("package/model.py")).unwrap(), "x = 1");
        assert!(!scratch.folder.join("package/__pycache__").exists());
        assert!(!scratch.folder.join("runs/optimize-train").exists(), "its own results do not belong to the script");
        assert_eq!(fs::read_to_string(scratch.folder.join("../data/words.txt")).unwrap(), "one two");
        fs::write(scratch.folder.join("train.py"), "changed").unwrap();
        fs::write(scratch.folder.join("checkpoint.pt"), "new").unwrap();
        scratch.check().unwrap();
        let folder = scratch.folder.clone();
        drop(scratch);
        assert!(!folder.exists());
        assert_eq!(fs::read_to_string(original.folder.join("train.py")).unwrap(), "print()");
        assert!(!original.folder.join("checkpoint.pt").exists());
    }

    #[test]
    fn copies_that_lie_in_the_working_folder_are_not_copied() {
        let (_root, original) = made();
        let home = original.folder.join("home");
        fs::create_dir_all(&home).unwrap();
        let scratch = original.copy(&home).unwrap();
        assert!(scratch.folder.join("train.py").exists() && !scratch.folder.join("home").exists());
    }

    #[test]
    fn a_large_file_that_was_written_to_is_told() {
        let (root, original) = made();
        let scratch = original.copy(root.path()).unwrap();
        fs::write(scratch.folder.join("weights.pt"), "other").unwrap();
        let error = scratch.check().unwrap_err().to_string();
        assert!(error.contains("weights.pt") && error.contains("large file of yours"), "{error}");
    }

    #[test]
    fn a_path_in_the_folder_has_its_place_in_the_copy() {
        let (root, original) = made();
        let scratch = original.copy(root.path()).unwrap();
        let place = scratch.place_of(&original, &original.folder.join("package/model.py")).unwrap();
        assert_eq!(place, scratch.folder.join("package/model.py"));
        assert_eq!(scratch.place_of(&original, Path::new("/elsewhere/train.py")), None);
    }
}
