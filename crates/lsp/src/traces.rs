//! Traces of the scripts, read on a separate thread, and the findings measured in them.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use headroom_diagnosis::trace_rules::{Thresholds, TraceFinding};
use headroom_diagnosis::{Options, analyze_rank};
use headroom_sources::configuration::Configuration;
use headroom_trace::GzipRatio;

use crate::panics;

/// The findings of traces that belong together, or why there are none.
pub type Measured = Result<Arc<Vec<TraceFinding>>, String>;

/// The paths to read, and the folder whose configuration sets the thresholds of trace rules.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Asked {
    pub paths: Vec<PathBuf>,
    pub base: Option<PathBuf>,
}

/// Changes when a trace is recorded again.
type Stamp = Vec<(Option<SystemTime>, u64)>;

struct Entry {
    stamp: Stamp,
    /// `None` while it is being read for the first time.
    measured: Option<Measured>,
}

#[derive(Default)]
pub struct Traces {
    entries: HashMap<Asked, Entry>,
    /// Counts the traces that were read.
    pub generation: u64,
}

/// The result that a reader thread hands back.
pub struct Read {
    asked: Asked,
    stamp: Stamp,
    measured: Measured,
}

impl Read {
    /// Why a trace could not be read.
    pub fn failure(&self) -> Option<&str> {
        self.measured.as_ref().err().map(String::as_str)
    }
}

impl Traces {
    /// The findings, if known. A trace that is new or was recorded again is read by a thread, which hands the result to
    /// `done`; until then the previous findings stand.
    pub fn findings(
        &mut self,
        asked: &Asked,
        done: impl FnOnce(Read) + Send + 'static,
    ) -> Option<Arc<Vec<TraceFinding>>> {
        if asked.paths.is_empty() {
            return None;
        }
        let stamp = stamp(&asked.paths);
        let known = self.entries.get(asked);
        if known.is_none_or(|entry| entry.stamp != stamp) {
            let measured = known.and_then(|entry| entry.measured.clone());
            self.entries.insert(asked.clone(), Entry { stamp: stamp.clone(), measured });
            let asked = asked.clone();
            std::thread::spawn(move || {
                let measured = catch_unwind(AssertUnwindSafe(|| measure(&asked)));
                let measured = measured.unwrap_or_else(|panic| Err(panics::words(&*panic)));
                done(Read { asked, stamp, measured: measured.map(Arc::new) });
            });
        }
        self.entries.get(asked)?.measured.as_ref()?.as_ref().ok().cloned()
    }

    pub fn take(&mut self, read: Read) {
        self.generation += 1;
        if let Some(entry) = self.entries.get_mut(&read.asked).filter(|entry| entry.stamp == read.stamp) {
            entry.measured = Some(read.measured);
        }
    }
}

fn measure(asked: &Asked) -> Result<Vec<TraceFinding>, String> {
    let mut traces = Vec::new();
    for path in &asked.paths {
        let read = headroom_trace::read_packed(path, GzipRatio::Usual).map_err(|error| error.to_string())?;
        traces.extend(read);
    }
    let thresholds = thresholds(asked.base.as_deref())?;
    let options = Options { thresholds, ..Options::default() };
    let analysis = analyze_rank(&traces, None, &options).ok_or("no trace to analyze")?;
    Ok(analysis.findings)
}

fn thresholds(base: Option<&Path>) -> Result<Thresholds, String> {
    let mut thresholds = Thresholds::default();
    let Some(base) = base else { return Ok(thresholds) };
    let configuration = Configuration::nearest(base).map_err(|error| error.to_string())?;
    for (key, value) in configuration.thresholds() {
        thresholds.set_key(key, &value).map_err(|error| format!("thresholds in the configuration: {error}"))?;
    }
    Ok(thresholds)
}

fn stamp(paths: &[PathBuf]) -> Stamp {
    let of = |path: &PathBuf| {
        let about = std::fs::metadata(path).ok();
        (about.as_ref().and_then(|about| about.modified().ok()), about.map_or(0, |about| about.len()))
    };
    paths.iter().map(of).collect()
}
