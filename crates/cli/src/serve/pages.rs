//! The data behind each page.

use std::path::PathBuf;

use headroom_diagnosis::Analysis;
use headroom_record::progress::PROGRESS_FILE;
use headroom_report::dashboard::attribution::{ATTRIBUTION_FILE, Attribution};
use headroom_report::dashboard::comparison::{Comparison, Side, comparison};
use headroom_report::dashboard::live::{Live, live};
use headroom_report::dashboard::memory::{self, Alive, MemoryChart};
use headroom_report::dashboard::operators::{self, Operators};
use headroom_report::dashboard::overview::Overview;
use headroom_report::dashboard::roofline::{self, RooflineChart};
use headroom_report::dashboard::runs::{Kind, RunRow};
use headroom_report::dashboard::{Page, RunRecords};
use headroom_report::dashboard::{overview_of_run, overview_of_trace};
use serde::Serialize;

use super::cache::Cache;
use super::catalog::Entry;
use super::folder;
use crate::train::folder::LOG_FILE;

/// The data of a page, or a sentence that says why there is none.
pub type Answer<T> = Result<T, String>;

const NO_TRACE: &str = "This run has left no trace: profile it with `headroom profile`.";

fn trace_path(entry: &Entry) -> Option<PathBuf> {
    match entry.kind {
        Kind::Trace => Some(entry.path.clone()),
        Kind::Run => folder::trace_of_run(&entry.path),
    }
}

/// The row of an entry. `cache` has the figures of traces that were read.
pub fn row(entry: &Entry, cache: &Cache) -> RunRow {
    let folder = entry.path.display().to_string();
    match entry.kind {
        Kind::Trace => {
            let figures = cache.figures(&entry.path);
            RunRow::of_trace(entry.id.clone(), entry.name.clone(), folder, figures)
        }
        Kind::Run => {
            let records = folder::summary_records(&entry.path);
            let status = folder::status(&entry.path);
            RunRow::of_run(entry.id.clone(), entry.name.clone(), folder, status, &records)
        }
    }
}

/// The JSON that a run's page requests; `None` for pages without data.
pub fn data(page: Page, entry: &Entry, cache: &Cache) -> Option<Answer<Vec<u8>>> {
    Some(match page {
        Page::Overview => json(overview(entry, cache)),
        Page::Operators => json(operators(entry, cache)),
        Page::Memory => json(memory(entry, cache)),
        Page::Roofline => json(roofline(entry, cache)),
        Page::Live => json(progress(entry)),
        Page::Attribution => json(attribution(entry)),
        _ => return None,
    })
}

fn json(found: Answer<impl Serialize>) -> Answer<Vec<u8>> {
    serde_json::to_vec(&found?).map_err(|error| error.to_string())
}

/// Pages that have something to show.
pub fn offered(entry: &Entry) -> Vec<Page> {
    let has_trace = trace_path(entry).is_some();
    let is_run = entry.kind == Kind::Run;
    let has = |page: &Page| match page {
        Page::Timeline | Page::Operators | Page::Memory | Page::Roofline => has_trace,
        Page::Live => is_run,
        Page::Attribution => is_run && entry.path.join(ATTRIBUTION_FILE).is_file(),
        _ => true,
    };
    Page::OF_A_RUN.iter().copied().filter(has).collect()
}

pub fn overview(entry: &Entry, cache: &Cache) -> Answer<Overview> {
    let held = trace_path(entry).map(|path| cache.get(&path, entry.rank));
    if entry.kind == Kind::Trace {
        return Ok(overview_of_trace::overview(held.as_deref().ok_or(NO_TRACE)?.analysis()?));
    }
    let mut records = folder::records(&entry.path);
    let analysis = held.as_deref().and_then(|held| match held.analysis() {
        Ok(analysis) => Some(analysis),
        Err(reason) => {
            records.unreadable.push(format!("The trace could not be read: {reason}"));
            None
        }
    });
    let mut overview = overview_of_run::overview(&entry.name, &records, analysis);
    overview.files = folder::shown_files(&entry.path);
    Ok(overview)
}

fn operators(entry: &Entry, cache: &Cache) -> Answer<Operators> {
    if let Some(record) = run_records(entry).and_then(|records| records.operators) {
        return Ok(operators::of_run(&record));
    }
    let held = cache.get(&trace_path(entry).ok_or(NO_TRACE)?, entry.rank);
    Ok(operators::of_trace(held.trace()?, held.analysis()?))
}

fn memory(entry: &Entry, cache: &Cache) -> Answer<MemoryChart> {
    if let Some(record) = run_records(entry).and_then(|records| records.timeline) {
        return Ok(memory::of_run(&record));
    }
    let held = cache.get(&trace_path(entry).ok_or(NO_TRACE)?, entry.rank);
    Ok(memory::of_trace(held.analysis()?))
}

pub fn alive(entry: &Entry, cache: &Cache, seconds: f64) -> Answer<Alive> {
    let held = cache.get(&trace_path(entry).ok_or(NO_TRACE)?, entry.rank);
    Ok(memory::alive(held.trace()?, seconds))
}

fn roofline(entry: &Entry, cache: &Cache) -> Answer<RooflineChart> {
    if let Some(records) = run_records(entry)
        && let Some(record) = &records.roofline
    {
        let source = records.flops.as_ref().map_or("", |flops| &flops.efficiency_metrics.device_peak_source);
        return Ok(roofline::of_run(record, source, records.operators.as_ref()));
    }
    let held = cache.get(&trace_path(entry).ok_or(NO_TRACE)?, entry.rank);
    Ok(roofline::of_trace(held.analysis()?))
}

pub fn timeline(entry: &Entry, cache: &Cache) -> Answer<axum::body::Bytes> {
    cache.get(&trace_path(entry).ok_or(NO_TRACE)?, entry.rank).timeline()
}

pub fn compare(before: &Entry, after: &Entry, cache: &Cache) -> Answer<Comparison> {
    let (left, right) = (known(before, cache), known(after, cache));
    let left = (left.0, left.1.as_deref().and_then(|held| held.compared().ok()));
    let right = (right.0, right.1.as_deref().and_then(|held| held.compared().ok()));
    Ok(comparison(&side(before, &left), &side(after, &right)))
}

fn known(entry: &Entry, cache: &Cache) -> (Option<RunRecords>, Option<std::sync::Arc<super::cache::Held>>) {
    (run_records(entry), trace_path(entry).map(|path| cache.get(&path, entry.rank)))
}

fn side<'a>(entry: &'a Entry, known: &'a (Option<RunRecords>, Option<&'a Analysis>)) -> Side<'a> {
    Side { id: &entry.id, name: &entry.name, records: known.0.as_ref(), analysis: known.1 }
}

fn progress(entry: &Entry) -> Answer<Live> {
    if entry.kind == Kind::Trace {
        return Err("A trace is not a run: there is nothing to follow.".into());
    }
    let text = |name: &str| match folder::read_plain_file(&entry.path.join(name)) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => String::new(),
    };
    let last = folder::summary_records(&entry.path).config.map(|config| config.configuration.num_steps);
    Ok(live(folder::status(&entry.path), last, &text(PROGRESS_FILE), &text(LOG_FILE)))
}

fn attribution(entry: &Entry) -> Answer<Attribution> {
    let bytes = folder::read_plain_file(&entry.path.join(ATTRIBUTION_FILE))
        .map_err(|_| "This run was not trained selectively: it has no attribution.json.".to_string())?;
    Attribution::read(&String::from_utf8_lossy(&bytes))
}

fn run_records(entry: &Entry) -> Option<RunRecords> {
    (entry.kind == Kind::Run).then(|| folder::records(&entry.path))
}
