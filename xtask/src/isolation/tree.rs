//! Everything in a folder, for comparing it before and after: content and kind of each entry, and what is known about it
//! beside that (mode, owner, extended attributes, and of a file its time).

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Entries by their path relative to the folder.
#[derive(PartialEq)]
pub struct Tree(BTreeMap<PathBuf, Entry>);

#[derive(Clone, PartialEq)]
struct Entry {
    content: Content,
    mode: u32,
    owner: (u32, u32),
    /// Only of files: a folder's changes with its entries.
    modified: Option<(i64, i64)>,
    attributes: Vec<(String, Vec<u8>)>,
}

#[derive(Clone, PartialEq)]
enum Content {
    Folder,
    File(Vec<u8>),
    Link(PathBuf),
    /// A FIFO, a socket or a device.
    Other,
    /// This user may not read it.
    Closed,
}

/// A difference between two moments.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub path: PathBuf,
    pub aspect: Aspect,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aspect {
    /// It is new, gone or another.
    Content,
    /// Mode, owner, attributes or time.
    About,
}

impl std::fmt::Display for Change {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.aspect {
            Aspect::Content => "content",
            Aspect::About => "mode, owner, attributes or time",
        };
        write!(formatter, "{} ({what})", self.path.display())
    }
}

impl Tree {
    pub fn read(folder: &Path) -> Result<Tree> {
        let mut found = BTreeMap::new();
        let mut open = vec![PathBuf::new()];
        while let Some(path) = open.pop() {
            let full = folder.join(&path);
            let about = fs::symlink_metadata(&full).with_context(|| format!("cannot look at {}", full.display()))?;
            let content = content_of(&full, &about);
            if content == Content::Folder {
                let entries = fs::read_dir(&full).with_context(|| format!("cannot read {}", full.display()))?;
                open.extend(entries.flatten().map(|entry| path.join(entry.file_name())));
            }
            let modified = about.is_file().then(|| (about.mtime(), about.mtime_nsec()));
            let attributes = attributes_of(&full);
            let owner = (about.uid(), about.gid());
            found.insert(path, Entry { content, mode: about.mode(), owner, modified, attributes });
        }
        Ok(Tree(found))
    }

    /// Everything that is different afterwards, by path.
    pub fn changes(&self, after: &Tree) -> Vec<Change> {
        let mut paths: Vec<&PathBuf> = self.0.keys().chain(after.0.keys()).collect();
        paths.sort();
        paths.dedup();
        let change = |path: &PathBuf| {
            let aspect = match (self.0.get(path), after.0.get(path)) {
                (Some(before), Some(after)) if before == after => return None,
                (Some(before), Some(after)) if before.content == after.content => Aspect::About,
                _ => Aspect::Content,
            };
            Some(Change { path: path.clone(), aspect })
        };
        paths.into_iter().filter_map(change).collect()
    }
}

fn content_of(path: &Path, about: &Metadata) -> Content {
    let content = if about.is_symlink() {
        fs::read_link(path).map(Content::Link)
    } else if about.is_dir() {
        fs::read_dir(path).map(|_| Content::Folder)
    } else if about.is_file() {
        fs::read(path).map(Content::File)
    } else {
        Ok(Content::Other)
    };
    content.unwrap_or(Content::Closed)
}

/// The attributes that a user may set. A file system without any has none.
fn attributes_of(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut names = vec![0; 4096];
    let length = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    let names = String::from_utf8_lossy(&names[..length]).into_owned();
    let value = |name: &str| {
        let mut value = vec![0; 4096];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap_or(0);
        value.truncate(length);
        (name.to_string(), value)
    };
    names.split('\0').filter(|name| name.starts_with("user.")).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn every_kind_of_change_is_noticed_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("headroom-tree-test-{}", std::process::id()));
        fs::create_dir_all(folder.join("deep")).unwrap();
        fs::write(folder.join("deep/file"), "one").unwrap();
        fs::write(folder.join("gone"), "").unwrap();
        symlink("deep", folder.join("link")).unwrap();
        let before = Tree::read(&folder).unwrap();
        assert!(before.changes(&Tree::read(&folder).unwrap()).is_empty());
        let aspect_of = |path: &str| {
            let changes = before.changes(&Tree::read(&folder).unwrap());
            changes.into_iter().find(|change| change.path == Path::new(path)).map(|change| change.aspect)
        };
        fs::set_permissions(folder.join("deep/file"), fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(aspect_of("deep/file"), Some(Aspect::About));
        fs::write(folder.join("deep/file"), "two").unwrap();
        fs::remove_file(folder.join("gone")).unwrap();
        fs::write(folder.join("new"), "").unwrap();
        fs::remove_file(folder.join("link")).unwrap();
        symlink("new", folder.join("link")).unwrap();
        for path in ["deep/file", "gone", "new", "link"] {
            assert_eq!(aspect_of(path), Some(Aspect::Content), "{path}");
        }
        assert_eq!(aspect_of("deep"), None, "the time of a folder does not count");
        fs::remove_dir_all(folder).unwrap();
    }
}
