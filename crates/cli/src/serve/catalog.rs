//! The catalog of runs and traces. Pages refer to them by an id derived from the path, so paths never come from
//! outside.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use headroom_record::config::CONFIG_FILE;
use headroom_record::performance::PERFORMANCE_FILE;
use headroom_report::dashboard::runs::Kind;

use super::folder::{self, is_trace_name};
use crate::registry::{self, Filter, REGISTRY_FILE, Registry, RegistryError};
use crate::train::folder::LOG_FILE;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub id: String,
    pub name: String,
    pub path: PathBuf,
    pub kind: Kind,
    /// Its ids in the registry, newest first: a folder may have been written more than once.
    pub registered: Vec<i64>,
    /// The rank to show from a multi-rank folder; `None` for the one with the longest steps.
    pub rank: Option<u32>,
}

pub struct Catalog {
    roots: Vec<PathBuf>,
}

/// The runs and traces found, and notes about what could not be read.
pub struct Listing {
    pub entries: BTreeMap<String, Entry>,
    pub notes: Vec<String>,
}

/// The depth to which runs are searched below a given folder: `runs/study/run` is found from `runs`.
const DEEPEST: usize = 3;
const MOST_ENTRIES: usize = 5000;

impl Catalog {
    /// Also searches `runs/` in the current folder, whether it exists yet or not.
    pub fn new(paths: Vec<PathBuf>) -> Catalog {
        Catalog { roots: paths.into_iter().chain([PathBuf::from("runs")]).collect() }
    }

    /// Lists the runs and traces in the folders and in the registry, by id. Runs come and go, so nothing is cached.
    pub fn list(&self) -> Listing {
        let mut entries = BTreeMap::new();
        for root in &self.roots {
            collect(root, DEEPEST, &mut entries);
        }
        let notes = match add_registered(&mut entries) {
            Ok(()) => vec![],
            Err(error) => vec![error.to_string()],
        };
        Listing { entries, notes }
    }

    /// Finds an entry by its id, optionally followed by a dash and a rank: the same folder, seen from that rank.
    pub fn find(&self, id: &str) -> Option<Entry> {
        let (number, rank) = match id.split_once('-') {
            Some((number, rank)) => (number, Some(rank.parse().ok()?)),
            None => (id, None),
        };
        let entry = self.list().entries.remove(number)?;
        Some(Entry { id: id.to_string(), rank, ..entry })
    }

    /// The traces that were named on the command line, which are read ahead.
    pub fn named_traces(&self) -> Vec<Entry> {
        let named = self.roots.iter().filter(|root| root.is_file()).filter_map(|root| entry(root, Kind::Trace));
        named.collect()
    }
}

fn collect(path: &Path, depth: usize, found: &mut BTreeMap<String, Entry>) {
    if found.len() >= MOST_ENTRIES {
        return;
    }
    let kind = match path {
        path if path.is_file() => Some(Kind::Trace),
        path if is_run(path) => Some(Kind::Run),
        path if holds_traces(path) => Some(Kind::Trace),
        _ => None,
    };
    if let Some(kind) = kind {
        found.extend(entry(path, kind).map(|entry| (entry.id.clone(), entry)));
    }
    // A trace may be next to run folders; a run contains only its own files.
    if kind == Some(Kind::Run) || path.is_file() {
        return;
    }
    let Ok(children) = fs::read_dir(path) else { return };
    // A link could form a cycle, or lead out of the given folder.
    let folders = children.flatten().filter(|child| child.file_type().is_ok_and(|kind| kind.is_dir()));
    if depth > 0 {
        folders.for_each(|folder| collect(&folder.path(), depth - 1, found));
    }
}

/// Adds runs anywhere on this machine whose folders still exist, with their names.
fn add_registered(entries: &mut BTreeMap<String, Entry>) -> Result<(), RegistryError> {
    // A dashboard does not create a registry.
    if !registry::folder().is_some_and(|folder| folder.join(REGISTRY_FILE).is_file()) {
        return Ok(());
    }
    for run in Registry::open()?.list(&Filter::default())? {
        let Some(folder) = run.start.folder.as_deref().map(Path::new).filter(|folder| is_run(folder)) else { continue };
        let Some(new) = entry(folder, Kind::Run) else { continue };
        let known = entries.entry(new.id.clone()).or_insert(new);
        if let (Some(name), true) = (&run.name, known.registered.is_empty()) {
            known.name = name.clone();
        }
        known.registered.push(run.id);
    }
    Ok(())
}

fn entry(path: &Path, kind: Kind) -> Option<Entry> {
    let path = path.canonicalize().ok()?;
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    let name = path.file_name()?.to_string_lossy().into_owned();
    Some(Entry { id: format!("{:016x}", hasher.finish()), name, path, kind, registered: vec![], rank: None })
}

fn is_run(folder: &Path) -> bool {
    [CONFIG_FILE, PERFORMANCE_FILE, LOG_FILE].iter().filter(|name| folder.join(name).is_file()).count() >= 2
}

/// The most JSON files of one folder that are opened to see whether they are traces.
const MOST_OPENED: usize = 16;

/// Whether the folder has files with a trace's name, or JSON that begins like a trace that `analyze` accepts.
fn holds_traces(folder: &Path) -> bool {
    let Ok(children) = fs::read_dir(folder) else { return false };
    let mut files: Vec<(String, PathBuf)> =
        children.flatten().map(|child| (child.file_name().to_string_lossy().into_owned(), child.path())).collect();
    files.retain(|(name, path)| {
        (name.ends_with(".json") || name.ends_with(".json.gz")) && folder::lies_inside(folder, path)
    });
    files.sort();
    files.iter().any(|(name, _)| is_trace_name(name))
        || files.iter().take(MOST_OPENED).any(|(_, path)| headroom_trace::begins_as_trace(path))
}
