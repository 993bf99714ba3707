//! Reads a run's folder for the dashboard.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use headroom_record::config::CONFIG_FILE;
use headroom_record::flops::FLOPS_FILE;
use headroom_record::intensity::INTENSITY_FILE;
use headroom_record::memory::MEMORY_FILE;
use headroom_record::operators::OPERATORS_FILE;
use headroom_record::performance::PERFORMANCE_FILE;
use headroom_record::reading;
use headroom_record::roofline::ROOFLINE_FILE;
use headroom_record::timeline::TIMELINE_FILE;
use headroom_report::dashboard::RunRecords;
use headroom_report::dashboard::runs::Status;
use headroom_trace::{GzipRatio, ReadError, Trace};
use serde::de::DeserializeOwned;

/// Our files are far smaller; larger ones are not read into memory for a page.
const MOST_BYTES: u64 = 64 << 20;

pub fn records(folder: &Path) -> RunRecords {
    let mut unreadable = Vec::new();
    let mut records = RunRecords {
        config: read(folder, CONFIG_FILE, &mut unreadable),
        performance: read(folder, PERFORMANCE_FILE, &mut unreadable),
        flops: read(folder, FLOPS_FILE, &mut unreadable),
        intensity: read(folder, INTENSITY_FILE, &mut unreadable),
        roofline: read(folder, ROOFLINE_FILE, &mut unreadable),
        operators: read(folder, OPERATORS_FILE, &mut unreadable),
        memory: read(folder, MEMORY_FILE, &mut unreadable),
        timeline: read(folder, TIMELINE_FILE, &mut unreadable),
        unreadable: vec![],
    };
    records.unreadable = unreadable;
    records
}

/// The records that the list of runs shows; large files are not read.
pub fn summary_records(folder: &Path) -> RunRecords {
    let mut unreadable = Vec::new();
    RunRecords {
        config: read(folder, CONFIG_FILE, &mut unreadable),
        performance: read(folder, PERFORMANCE_FILE, &mut unreadable),
        flops: read(folder, FLOPS_FILE, &mut unreadable),
        intensity: read(folder, INTENSITY_FILE, &mut unreadable),
        ..RunRecords::default()
    }
}

fn read<T: DeserializeOwned>(folder: &Path, name: &str, unreadable: &mut Vec<String>) -> Option<T> {
    match read_plain_file(&folder.join(name)) {
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(record) => Some(record),
            Err(error) => {
                unreadable.push(format!("{name} could not be read: {error}"));
                None
            }
        },
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => {
            unreadable.push(format!("{name} could not be read: {error}"));
            None
        }
    }
}

/// Opens a plain file. Links are not followed, so that a folder shows only its own files.
pub fn open_plain_file(path: &Path) -> std::io::Result<File> {
    check_is_plain(path)?;
    reading::open(path)
}

/// Reads a plain file of bounded size.
pub fn read_plain_file(path: &Path) -> std::io::Result<Vec<u8>> {
    check_is_plain(path)?;
    reading::read(path, MOST_BYTES)
}

fn check_is_plain(path: &Path) -> std::io::Result<()> {
    match fs::symlink_metadata(path)?.is_file() {
        true => Ok(()),
        false => Err(std::io::Error::new(ErrorKind::NotFound, "not a plain file")),
    }
}

/// The run's status: a run holds a lock on its folder while it lives.
pub fn status(folder: &Path) -> Status {
    if folder.join(PERFORMANCE_FILE).is_file() {
        return Status::Finished;
    }
    // A shared lock, released at once: two dashboards do not mistake each other for a run.
    match File::open(folder).map(|folder| folder.try_lock_shared()) {
        Ok(Err(TryLockError::WouldBlock)) => Status::Running,
        _ => Status::Stopped,
    }
}

pub fn is_trace_name(name: &str) -> bool {
    [".trace.json", ".trace.json.gz"].iter().any(|ending| name.ends_with(ending))
}

/// The trace of a run folder, which is stored under two names; one is enough.
pub fn trace_of_run(folder: &Path) -> Option<PathBuf> {
    let mut names: Vec<PathBuf> = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    names.retain(|path| lies_inside(folder, path));
    names.sort();
    let named = |path: &&PathBuf| path.file_name().is_some_and(|name| is_trace_name(&name.to_string_lossy()));
    let ours = |path: &&PathBuf| {
        path.file_name().is_some_and(|name| {
            let name = name.to_string_lossy();
            name.starts_with("trace_step_") && name.ends_with(".json")
        })
    };
    names.iter().find(ours).or_else(|| names.iter().find(named)).cloned()
}

/// Whether it is a file in this folder, not a link that leads out of it. A folder shows only its own files.
pub fn lies_inside(folder: &Path, path: &Path) -> bool {
    let (Ok(folder), Ok(path)) = (folder.canonicalize(), path.canonicalize()) else { return false };
    path.starts_with(folder) && path.is_file()
}

/// The size on disk of a trace, or of a folder's traces.
pub fn bytes_of_traces(path: &Path) -> u64 {
    let length = |path: &Path| fs::metadata(path).map_or(0, |about| about.len());
    if !path.is_dir() {
        return length(path);
    }
    let Ok(children) = fs::read_dir(path) else { return 0 };
    let is_json = |path: &PathBuf| path.to_string_lossy().contains(".json");
    children.flatten().map(|child| child.path()).filter(is_json).map(|path| length(&path)).sum()
}

/// The traces of a folder, one per rank, as `headroom_trace::read` finds them, but only those inside.
pub fn own_traces(folder: &Path, ratio: GzipRatio) -> Result<Vec<Trace>, String> {
    let children = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files: Vec<PathBuf> = children.flatten().map(|child| child.path()).collect();
    let is_named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".json") || name.ends_with(".json.gz")
    };
    files.retain(|path| is_named(path) && lies_inside(folder, path));
    // A run's folder has JSON summaries next to the trace.
    let named = |path: &PathBuf| path.to_string_lossy().contains(".trace.json");
    if files.iter().any(named) {
        files.retain(named);
    }
    files.sort();
    let mut traces = Vec::new();
    let mut first_refusal = None;
    for file in &files {
        match headroom_trace::read_packed(file, ratio) {
            Ok(read) => traces.extend(read),
            // Other JSON may be next to the traces.
            Err(error @ ReadError::NotATrace { .. }) => first_refusal = first_refusal.or(Some(error.to_string())),
            Err(error) => return Err(error.to_string()),
        }
    }
    traces.sort_by_key(Trace::rank);
    match first_refusal {
        Some(refusal) if traces.is_empty() => Err(refusal),
        _ => Ok(traces),
    }
}

/// Files that a browser can show, by extension and content type.
const SHOWN: [(&str, &str); 4] = [
    (".json", "application/json"),
    (".log", "text/plain; charset=utf-8"),
    (".md", "text/plain; charset=utf-8"),
    (".jsonl", "text/plain; charset=utf-8"),
];
pub const REPORT: &str = "report.html";

/// Names in the folder that may be requested: only existing files.
pub fn shown_files(folder: &Path) -> Vec<String> {
    let Ok(children) = fs::read_dir(folder) else { return vec![] };
    let plain = children.flatten().filter(|child| child.file_type().is_ok_and(|kind| kind.is_file()));
    let mut names: Vec<String> = plain.filter_map(|child| child.file_name().into_string().ok()).collect();
    names.retain(|name| {
        name == REPORT || (content_type(name).is_some() && !is_trace_name(name) && !name.starts_with("trace_step_"))
    });
    names.sort();
    names
}

pub fn content_type(name: &str) -> Option<&'static str> {
    SHOWN.iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, content_type)| *content_type)
}
