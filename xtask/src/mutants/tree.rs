//! A copy of the workspace to plant faults in: a killed run leaves its fault there, and not in the developer's files.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::Hasher;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process::{capture, workspace_root};

pub struct Tree {
    pub folder: PathBuf,
    /// Digest over all files: outcomes for other contents say nothing about these.
    pub digest: u64,
}

/// Brings the copy up to date. Unchanged files keep their times, so that cargo builds only what changed.
pub fn brought_up_to_date(folder: &Path) -> Result<Tree> {
    let listed = capture("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    let mut names: Vec<&str> = listed.split('\0').filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    names.dedup();
    let digest = copy(&workspace_root(), &names, folder)?;
    Ok(Tree { folder: folder.to_path_buf(), digest })
}

/// Makes `to` contain the named files of `from` and no others.
fn copy(from: &Path, names: &[&str], to: &Path) -> Result<u64> {
    let mut digest = DefaultHasher::new();
    let mut kept = Vec::new();
    for name in names {
        let source = from.join(name);
        // A deleted file that is not yet committed is still listed.
        let Ok(content) = fs::read(&source) else { continue };
        digest.write(name.as_bytes());
        digest.write_usize(content.len());
        digest.write(&content);
        let place = to.join(name);
        kept.push(place.clone());
        if fs::read(&place).is_ok_and(|there| there == content) {
            continue;
        }
        let folder = place.parent().unwrap_or(to);
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        fs::write(&place, &content).with_context(|| format!("cannot write {}", place.display()))?;
        let permissions =
            fs::metadata(&source).with_context(|| format!("cannot read {}", source.display()))?.permissions();
        fs::set_permissions(&place, permissions).with_context(|| format!("cannot write {}", place.display()))?;
    }
    kept.sort_unstable();
    remove_others(to, &kept)?;
    Ok(digest.finish())
}

fn remove_others(folder: &Path, kept: &[PathBuf]) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", folder.display()))?.path();
        if path.is_dir() && !path.is_symlink() {
            remove_others(&path, kept)?;
        } else if kept.binary_search(&path).is_err() {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_follows_its_files_and_leaves_alone_what_did_not_change() {
        let folder = std::env::temp_dir().join(format!("headroom-mutants-tree-{}", std::process::id()));
        let (from, to) = (folder.join("from"), folder.join("to"));
        fs::create_dir_all(from.join("src")).expect("made");
        fs::write(from.join("src/a.rs"), "a").expect("written");
        fs::write(from.join("b.txt"), "b").expect("written");
        let first = copy(&from, &["b.txt", "src/a.rs"], &to).expect("copied");
        let time = |name: &str| fs::metadata(to.join(name)).and_then(|metadata| metadata.modified()).expect("is there");
        let untouched = time("b.txt");

        // A planted fault is undone, and a file that is not listed is removed.
        fs::write(to.join("src/a.rs"), "fault").expect("written");
        fs::write(to.join("src/old.rs"), "old").expect("written");
        assert_eq!(copy(&from, &["b.txt", "src/a.rs"], &to).expect("copied"), first);
        assert_eq!(fs::read_to_string(to.join("src/a.rs")).expect("read"), "a");
        assert!(!to.join("src/old.rs").exists());
        assert_eq!(time("b.txt"), untouched);

        // Changed content and one file fewer are different states.
        fs::write(from.join("src/a.rs"), "a2").expect("written");
        let second = copy(&from, &["b.txt", "src/a.rs"], &to).expect("copied");
        let third = copy(&from, &["src/a.rs"], &to).expect("copied");
        assert!(first != second && second != third && first != third);
        assert!(!to.join("b.txt").exists());
        fs::remove_dir_all(&folder).expect("removed");
    }
}
