//! Analyzes a trace, or one per rank, from its events to findings and a roadmap.

use headroom_trace::{Reading, Trace};
use serde::Serialize;

use crate::constants::analysis::DEVICE_SETS_PACE;
use crate::cost;
use crate::measures::calls::Calls;
use crate::measures::launches::launches;
use crate::measures::ranks::{Ranks, dated, largest_job, ranks};
use crate::measures::sites::sites;
use crate::measures::steps::Steps;
use crate::measures::trust::{Trust, Unprofiled};
use crate::measures::view::View;
use crate::measures::{Measures, device_name, measure};
use crate::retiming::{self, TrueStep};
use crate::roadmap::{Roadmap, roadmap};
use crate::run::{RunFigures, run_figures};
use crate::simulation::Simulation;
use crate::trace_rules::{Evidence, Thresholds, TraceFinding, find};

/// Output of `headroom analyze --format json`.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    pub schema_version: u32,
    pub trace: TraceSummary,
    pub trust: Trust,
    /// The step without the profiler. If it is measured or given, all shares, times and savings refer to it.
    pub true_step: TrueStep,
    pub steps: Steps,
    pub measures: Measures,
    /// For a headroom run: the figures of its files.
    pub run: Option<RunFigures>,
    /// Comparison of ranks, if more than one trace was given.
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
    /// Whether to sum time by site, which only a comparison needs.
    pub sites: bool,
}

/// Analyzes one trace of the largest run among those given, and compares that run's ranks with each other. `None` if
/// there is no trace.
pub fn analyze(traces: &[Trace], options: &Options) -> Option<Analysis> {
    analyze_rank(traces, None, options)
}

/// Like [`analyze`], for the rank `wanted`, if it belongs to that run.
pub fn analyze_rank(traces: &[Trace], wanted: Option<u32>, options: &Options) -> Option<Analysis> {
    let views: Vec<View> = traces.iter().map(View::new).collect();
    let times: Vec<_> = views.iter().map(|view| dated(view.trace, view.steps.range())).collect();
    let job = largest_job(traces, &times);
    // The rank with the longest steps shows best where time goes.
    let wall = |at: usize| views[at].steps.wall_nanos() as f64 / views[at].steps.count();
    let longest = (0..job.members.len())
        .max_by(|&left, &right| wall(job.members[left]).total_cmp(&wall(job.members[right])).then(right.cmp(&left)))?;
    let asked = wanted.and_then(|rank| job.members.iter().position(|&at| traces[at].rank() == rank));
    let place = asked.unwrap_or(longest);
    let (trace, recorded) = (&traces[job.members[place]], &views[job.members[place]]);
    // Ranks are compared as recorded, since each would be replayed alone.
    let given = options.unprofiled.step_seconds;
    let played = retiming::played(recorded, given);
    let of_played = played.as_ref().map(|played| View::played(&played.trace, played.recorded_on));
    let view = of_played.as_ref().unwrap_or(recorded);
    let true_step = played.as_ref().map_or_else(|| retiming::estimated(recorded), |played| played.step.clone());
    let calls = Calls::new(view);
    // A replayed trace contains no profiler cost.
    let left = Unprofiled {
        step_seconds: played.as_ref().map(|played| played.step.played_seconds).or(given),
        estimated_seconds: (true_step.from == "estimated").then_some([
            true_step.seconds,
            true_step.lower_seconds,
            true_step.upper_seconds,
        ]),
    };
    let (mut trust, mut measures) = measure(view, calls.as_ref(), left);
    if played.is_some() {
        let launches = launches(recorded);
        measures.launches.recorded_call_micros_median = (launches.count > 0).then_some(launches.call_micros_median);
    }
    if options.sites {
        measures.sites = sites(view);
    }
    let skipped = traces.iter().flat_map(|trace| &trace.reading.skipped_files);
    trust.notes.extend(skipped.map(|file| format!("not read: {file}")));
    trust.notes.extend(job.foreign.iter().cloned());
    let run = calls.as_ref().map(|calls| run_figures(view, calls, &measures));
    let (members, their_views): (Vec<&Trace>, Vec<&View>) =
        job.members.iter().map(|&at| (&traces[at], &views[at])).unzip();
    let ranks = ranks(&members, &their_views, place);
    let mut simulation = Simulation::new(view);
    if true_step.from == "estimated" && measures.breakdown.busy_share >= DEVICE_SETS_PACE.get() {
        let spare = retiming::spare(view, &simulation);
        simulation = simulation.without_recording(spare);
    }
    let evidence = Evidence {
        view,
        measures: &measures,
        run: run.as_ref().zip(calls.as_ref()),
        trust: &trust,
        ranks: ranks.as_ref(),
        thresholds: &options.thresholds,
        simulation: &simulation,
        explained: &[],
    };
    let mut findings = find(&evidence);
    cost::price(&evidence, &mut findings);
    let roadmap = roadmap(view, &simulation, &mut findings);
    if played.is_some() {
        trust.taken_out(true_step.seconds, true_step.recorded_seconds);
    }
    trust.notes.extend(true_step.notes.iter().cloned());
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
        true_step,
        steps: view.steps.clone(),
        measures,
        run,
        ranks,
        findings,
        roadmap,
    })
}
