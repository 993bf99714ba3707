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
