//! Caches traces and their analyses while they are being viewed.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use axum::body::Bytes;
use headroom_diagnosis::{Analysis, Options, analyze_rank};
use headroom_report::dashboard::runs::TraceFigures;
use headroom_report::dashboard::timeline;
use headroom_trace::{GzipRatio, Trace};

use super::folder::own_traces;
use crate::analyze::join_with_source;

/// Sized for traces of hundreds of megabytes: two to compare, and one more.
const MOST_HELD: usize = 3;

/// A file's length and modification time, which detect a new file.
type Stamp = Option<(u64, SystemTime)>;

#[derive(Default)]
pub struct Cache {
    /// Most recently requested last.
    held: Mutex<Vec<Arc<Held>>>,
    /// A trace's figures for the list of runs, kept after the trace itself is dropped.
    figures: Mutex<HashMap<PathBuf, (Stamp, TraceFigures)>>,
    source: Vec<PathBuf>,
    ratio: GzipRatio,
}

/// A trace, or one per rank, read on first use while other requests wait for it.
pub struct Held {
    path: PathBuf,
    rank: Option<u32>,
    stamp: Stamp,
    source: Vec<PathBuf>,
    ratio: GzipRatio,
    /// Shared by the ranks of one folder.
    traces: Arc<OnceLock<Result<Vec<Trace>, String>>>,
    analysis: OnceLock<Result<Analysis, String>>,
    /// With its time by site.
    compared: OnceLock<Result<Analysis, String>>,
    timeline: OnceLock<Bytes>,
}

impl Cache {
    /// `source` is joined with every analysis.
    pub fn new(source: Vec<PathBuf>, ratio: GzipRatio) -> Cache {
        Cache { source, ratio, ..Cache::default() }
    }

    pub fn get(&self, path: &Path, rank: Option<u32>) -> Arc<Held> {
        let stamp = stamp(path);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let known = held.iter().position(|one| one.path == path && one.rank == rank);
        let traces = held.iter().find(|one| one.path == path && one.stamp == stamp).map(|one| one.traces.clone());
        let one = match known.map(|at| held.remove(at)) {
            Some(one) if one.stamp == stamp => one,
            // New, or rewritten since.
            _ => Arc::new(Held {
                path: path.to_path_buf(),
                rank,
                stamp,
                source: self.source.clone(),
                ratio: self.ratio,
                traces: traces.unwrap_or_default(),
                analysis: OnceLock::new(),
                compared: OnceLock::new(),
                timeline: OnceLock::new(),
            }),
        };
        held.push(one.clone());
        let surplus = held.len().saturating_sub(MOST_HELD);
        held.drain(..surplus);
        one
    }

    /// The cached figures of a trace, if it was read before and has not changed.
    pub fn figures(&self, path: &Path) -> Option<TraceFigures> {
        let figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.get(path).filter(|(known, _)| *known == stamp(path)).map(|(_, figures)| figures.clone())
    }

    /// Reads a trace for the list of runs, and drops it again.
    pub fn learn_figures(&self, path: &Path) {
        let stamp = stamp(path);
        let held = Cache { source: vec![], ratio: self.ratio, ..Cache::default() }.get(path, None);
        let figures = match held.analysis() {
            Ok(analysis) => TraceFigures::of(analysis),
            Err(reason) => TraceFigures { problem: Some(reason), ..TraceFigures::default() },
        };
        self.figures.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_path_buf(), (stamp, figures));
    }
}

fn stamp(path: &Path) -> Stamp {
    let about = fs::metadata(path).ok()?;
    Some((about.len(), about.modified().ok()?))
}

impl Held {
    pub fn analysis(&self) -> Result<&Analysis, String> {
        self.analysis.get_or_init(|| self.analyzed(&Options::default())).as_ref().map_err(Clone::clone)
    }

    /// The same with its time by site, which takes longer, and which only a comparison needs.
    pub fn compared(&self) -> Result<&Analysis, String> {
        let options = Options { sites: true, ..Options::default() };
        self.compared.get_or_init(|| self.analyzed(&options)).as_ref().map_err(Clone::clone)
    }

    fn analyzed(&self, options: &Options) -> Result<Analysis, String> {
        let mut analysis = analyze_rank(self.traces()?, self.rank, options).ok_or("there is no trace in it")?;
        if !self.source.is_empty() {
            join_with_source(&mut analysis, &self.source).map_err(|error| error.to_string())?;
        }
        Ok(analysis)
    }

    /// The trace that the analysis is about; with a single trace there is no need to wait for the analysis.
    pub fn trace(&self) -> Result<&Trace, String> {
        let traces = self.traces()?;
        match traces {
            [one] => Ok(one),
            [] => Err("there is no trace in it".into()),
            [first, ..] => {
                let name = &self.analysis()?.trace.name;
                Ok(traces.iter().find(|trace| trace.name == *name).unwrap_or(first))
            }
        }
    }

    pub fn timeline(&self) -> Result<Bytes, String> {
        let trace = self.trace()?;
        Ok(self.timeline.get_or_init(|| timeline::encode(trace).into()).clone())
    }

    fn traces(&self) -> Result<&[Trace], String> {
        let read = self.traces.get_or_init(|| match self.path.is_dir() {
            true => own_traces(&self.path, self.ratio),
            false => headroom_trace::read_packed(&self.path, self.ratio).map_err(|error| error.to_string()),
        });
        read.as_deref().map_err(Clone::clone)
    }
}
