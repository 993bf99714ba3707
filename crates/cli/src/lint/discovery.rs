//! Which files to read: those named, and the Python files of folders.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use headroom_diagnosis::source::{Input, matches_path};

/// Folders that hold no source of the project.
const SKIPPED: &[&str] = &["__pycache__", "node_modules", "venv", "site-packages"];

/// Scripts, and beside each the place it was read from: what findings show of a path that is not UTF-8 leads elsewhere.
pub struct Scripts {
    pub files: Vec<PathBuf>,
    pub inputs: Vec<Input>,
}

pub fn read(paths: &[PathBuf], exclude: &[String]) -> Result<Scripts> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            walk(path, exclude, &mut files)?;
        } else {
            files.push(path.clone());
        }
    }
    files.sort();
    files.dedup();
    let input = |file: &PathBuf| {
        let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(Input { path: file.to_string_lossy().into_owned(), bytes })
    };
    let inputs = files.iter().map(input).collect::<Result<_>>()?;
    Ok(Scripts { files, inputs })
}

fn walk(folder: &Path, exclude: &[String], files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read {}", folder.display()))?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let shown = path.to_string_lossy();
        if exclude.iter().any(|pattern| matches_path(pattern, &shown)) {
            continue;
        }
        // Links are not followed: they may lead round in circles.
        let kind = entry.file_type().with_context(|| format!("cannot read {shown}"))?;
        if kind.is_dir() && !name.starts_with('.') && !SKIPPED.contains(&name.as_ref()) {
            walk(&path, exclude, files)?;
        } else if kind.is_file() && name.ends_with(".py") {
            files.push(path);
        }
    }
    Ok(())
}
