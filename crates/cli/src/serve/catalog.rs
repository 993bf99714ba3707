//! Catalog of runs and traces. Pages refer to them by a number made from the path, so no path comes from outside.

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
    /// Its numbers in the registry, the newest first: a folder may have been written more than once.
    pub registered: Vec<i64>,
    /// Rank to show from a folder of ranks; `None` for the one with the longest steps.
    pub rank: Option<u32>,
}

pub struct Catalog {
    roots: Vec<PathBuf>,
}

/// Runs and traces that were found, and notes on what could not be read.
pub struct Listing {
    pub entries: BTreeMap<String, Entry>,
    pub notes: Vec<String>,
}

/// How far below a given folder runs are looked for: `runs/study/run` is found from `runs`.
const DEEPEST: usize = 3;
const MOST_ENTRIES: usize = 5000;

impl Catalog {
    /// `runs/` of the current folder is looked at too, whether it is there yet or not.
    pub fn new(paths: Vec<PathBuf>) -> Catalog {
        Catalog { roots: paths.into_iter().chain([PathBuf::from("runs")]).collect() }
    }

    /// Lists the runs and traces in the folders and in the registry, by number. Runs come and go, so nothing is remembered.
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

    /// By its number, which a dash and a rank may follow: the same folder, seen from that rank.
    pub fn find(&self, id: &str) -> Option<Entry> {
        let (number, rank) = match id.split_once('-') {
            Some((number, rank)) => (number, Some(rank.parse().ok()?)),
            None => (id, None),
        };
        let entry = self.list().entries.remove(number)?;
        Some(Entry { id: id.to_string(), rank, ..entry })
    }

    /// The traces that were asked for by name: the ones to read ahead.
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
    // A trace may lie beside folders of runs; a run has nothing below it but its own.
    if kind == Some(Kind::Run) || path.is_file() {
        return;
    }
    let Ok(children) = fs::read_dir(path) else { return };
    // A link could lead in a circle, or out of the folder that was given.
    let folders = children.flatten().filter(|child| child.file_type().is_ok_and(|kind| kind.is_dir()));
    if depth > 0 {
        folders.for_each(|folder| collect(&folder.path(), depth - 1, found));
    }
}

/// Runs anywhere on this machine whose folders still are there; those that were named carry their names.
fn add_registered(entries: &mut BTreeMap<String, Entry>) -> Result<(), RegistryError> {
    // A dashboard does not make a registry where no run has.
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

/// Files of JSON that are opened to see whether they are traces, of one folder.
const MOST_OPENED: usize = 16;

/// Traces by name, or whatever `analyze` accepts by what it begins with.
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
