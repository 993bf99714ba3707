//! A trace, or one of each rank, from its events to findings and a roadmap.

use headroom_trace::{Reading, Trace};
use serde::Serialize;

use crate::measures::calls::Calls;
use crate::measures::communication::{Ranks, ranks};
use crate::measures::steps::Steps;
use crate::measures::trust::{Trust, Unprofiled};
use crate::measures::view::View;
use crate::measures::{Measures, device_name, measure};
use crate::roadmap::{Roadmap, roadmap};
use crate::run::{RunFigures, run_figures};
use crate::trace_rules::{Evidence, Thresholds, TraceFinding, find};

/// What `headroom analyze --format json` writes.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    pub schema_version: u32,
    pub trace: TraceSummary,
    pub trust: Trust,
    pub steps: Steps,
    pub measures: Measures,
    /// A run of ours: its figures as its files hold them.
    pub run: Option<RunFigures>,
    /// Across ranks, where more than one trace was given.
    pub ranks: Option<Ranks>,
    pub findings: Vec<TraceFinding>,
    pub roadmap: Roadmap,
}

#[derive(Clone, Debug, Serialize)]
pub struct TraceSummary {
    pub name: String,
    pub device: Option<String>,
    pub rank: u32,
    pub world_size: u32,
    pub reading: Reading,
}

#[derive(Clone, Debug, Default)]
pub struct Options {
    pub thresholds: Thresholds,
    pub unprofiled: Unprofiled,
}

/// Analyzes the first trace, and all together for what only ranks side by side can show. `None` for no trace at all.
pub fn analyze(traces: &[Trace], options: &Options) -> Option<Analysis> {
    let views: Vec<View> = traces.iter().map(View::new).collect();
    // The rank with the longest steps says most about where time goes.
    let wall = |view: &View| view.steps.wall_nanos() as f64 / view.steps.count();
    let chosen = (0..views.len())
        .max_by(|&left, &right| wall(&views[left]).total_cmp(&wall(&views[right])).then(right.cmp(&left)))?;
    let (trace, view) = (&traces[chosen], &views[chosen]);
    let calls = Calls::new(view);
    let (trust, measures) = measure(view, calls.as_ref(), options.unprofiled);
    let run = calls.as_ref().map(|calls| run_figures(view, calls, &measures));
    let ranks = ranks(traces, &views);
    let mut findings = find(&Evidence {
        view,
        measures: &measures,
        run: run.as_ref().zip(calls.as_ref()),
        trust: &trust,
        ranks: ranks.as_ref(),
        thresholds: &options.thresholds,
        explained: &[],
    });
    let roadmap = roadmap(view, &mut findings);
    Some(Analysis {
        schema_version: 1,
        trace: TraceSummary {
            name: trace.name.clone(),
            device: device_name(trace).map(str::to_string),
            rank: trace.rank(),
            world_size: trace.header.distributed.as_ref().map_or(1, |distributed| distributed.world_size.max(1)),
            reading: trace.reading.clone(),
        },
        trust,
        steps: view.steps.clone(),
        measures,
        run,
        ranks,
        findings,
        roadmap,
    })
}
