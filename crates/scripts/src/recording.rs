//! The notes that the hook leaves behind when it records, one file per process.

use crate::error::{ScriptError, cannot};
use headroom_record::reading;
use serde::Deserialize;
use std::path::{Path, PathBuf};

#[derive(Debug, Deserialize)]
pub struct Note {
    pub steps: u32,
    pub trace: Option<PathBuf>,
    #[serde(default)]
    pub light_trace: Option<PathBuf>,
    pub seconds_without_profiler: Vec<f64>,
    /// Where the script was when it ended: `warm-up`, `timed`, `light`, `full` or `done`.
    #[serde(default)]
    pub phase: String,
    pub error: Option<String>,
    /// The script has its own profiler, so the hook stepped aside.
    #[serde(default)]
    pub own_profiler: bool,
}

fn notes_in(folder: &Path) -> Result<Vec<PathBuf>, ScriptError> {
    let entries = std::fs::read_dir(folder).map_err(cannot(format!("read the folder {}", folder.display())))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    Ok(files)
}

pub fn read_notes(folder: &Path) -> Result<Vec<Note>, ScriptError> {
    let mut notes = Vec::new();
    for file in notes_in(folder)? {
        let text = reading::read(&file, reading::RECORD).map_err(cannot(format!("read {}", file.display())))?;
        let note = serde_json::from_slice(&text);
        notes.push(note.map_err(|source| ScriptError::Note { file: file.display().to_string(), source })?);
    }
    Ok(notes)
}
