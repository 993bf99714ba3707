//! The order that the launcher is given, and its answer: two JSON files beside the process's notes.

use headroom_record::reading;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

#[derive(Debug, Deserialize, Serialize)]
pub struct Spec {
    /// The process that must be alive.
    pub command: u32,
    pub report: PathBuf,
    /// The script's working folder.
    pub folder: PathBuf,
    pub means: Means,
}

#[derive(Debug, Deserialize, Serialize)]
pub enum Means {
    /// A user's real run: it ends with its command and is not shielded.
    Nothing,
    Layers(Layers),
    /// Writing is denied except beneath these paths.
    Landlock {
        writable: Vec<PathBuf>,
    },
    /// The folder is a copy, and nothing is denied.
    Copy,
}

#[derive(Debug, Deserialize, Serialize)]
pub struct Layers {
    /// The folder of a search, which the script sees only in part.
    pub home: PathBuf,
    /// The folder of this process's layers, in `home`.
    pub hidden: PathBuf,
    /// The working folder and the home folder: the script writes there at least.
    pub written: Vec<PathBuf>,
    /// Folders and files that are let through: what is written there stays.
    pub shown: Vec<PathBuf>,
    pub caches: Vec<Cache>,
    /// Texts in the first file that replace the second one.
    pub replaced: Vec<(PathBuf, PathBuf)>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Cache {
    pub folder: PathBuf,
    pub layer: PathBuf,
}

#[derive(Debug, Deserialize, Serialize)]
pub enum Report {
    /// The script's own end, as the system reports it, and what it saw differently.
    Ended { status: i32, remarks: Vec<String> },
    /// The script could not be started.
    NotStarted(String),
    /// The system refused the isolation; the script was not started.
    Refused(String),
}

/// The launcher's answer, if it gave one.
pub fn report_at(path: &Path) -> Option<Report> {
    serde_json::from_slice(&reading::read(path, reading::RECORD).ok()?).ok()
}
