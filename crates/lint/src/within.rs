//! The folders that this process may search on its own: configurations and projects above them are not read.
//!
//! `headroom mcp` starts every command with them (`--within`). Requested paths are checked there (`mcp::folders`); this
//! limits files that nobody named.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

static FOLDERS: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Limits all later searches to these folders; no folder means no limit.
pub fn stay(folders: Vec<PathBuf>) {
    if !folders.is_empty() {
        let whole = |folder: PathBuf| std::fs::canonicalize(&folder).unwrap_or(folder);
        let _ = FOLDERS.set(folders.into_iter().map(whole).collect());
    }
}

/// Whether a file or folder may be read. Symbolic links are resolved first.
pub fn allows(path: &Path) -> bool {
    FOLDERS.get().is_none_or(|folders| holds(folders, path))
}

fn holds(folders: &[PathBuf], path: &Path) -> bool {
    std::fs::canonicalize(path).is_ok_and(|whole| folders.iter().any(|folder| whole.starts_with(folder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_held_by_where_it_leads() {
        let place = tempfile::tempdir().unwrap();
        let top = std::fs::canonicalize(place.path()).unwrap();
        let (inside, outside) = (top.join("inside"), top.join("inside-not"));
        for folder in [&inside, &outside] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("pyproject.toml"), "").unwrap();
        }
        let folders = [inside.clone()];
        assert!(holds(&folders, &inside) && holds(&folders, &inside.join("pyproject.toml")));
        assert!(!holds(&folders, &outside.join("pyproject.toml")), "a name that begins alike");
        assert!(!holds(&folders, &top) && !holds(&folders, &inside.join("../inside-not")));
        assert!(!holds(&folders, &inside.join("missing")));
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
            assert!(!holds(&folders, &inside.join("link/pyproject.toml")), "a link that leads out");
        }
    }
}
