//! Compares ranks: who waits for whom at collectives, how much of them is transfer, and how fast the links are.

mod jobs;
mod matching;
pub mod strips;

use std::collections::BTreeMap;

use headroom_trace::Trace;
use serde::Serialize;

use super::collectives::{Collective, Kind, collectives};
use super::communication::{compute, exposed};
use super::intervals::{Span, covered, merged, seconds, total, without};
use super::steps::FoundBy;
use super::view::View;
use crate::constants::ranks::FEWEST_MEETINGS;
use crate::peaks::links::link_of;
use jobs::rank_of;
pub use jobs::{Job, Runs, dated, group_by_run, largest_job};
use matching::{Matched, Meeting, matched};
use strips::Strips;

/// The ranks of one run. A collective ends on all of them at the same time: the rank that spends the least time in it
/// arrived last. That time is the transfer, and the time that others spend beyond it is their wait.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Ranks {
    pub ranks: Vec<RankRow>,
    /// Number of collectives found on several ranks.
    pub meetings: usize,
    /// Time per step that the analyzed rank waits in collectives without concurrent compute.
    pub waiting_seconds: f64,
    /// The same, averaged over all ranks: the rank that others wait for waits least itself.
    pub mean_waiting_seconds: f64,
    /// The rank that causes more than half of all waiting. `None` if no rank stands out, or if a missing rank may.
    pub straggler: Option<u32>,
    pub missing_ranks: Vec<u32>,
    pub collectives: Vec<CollectiveRow>,
    /// Caveats about what the figures do not cover.
    pub notes: Vec<String>,
    /// The analyzed rank's waits.
    #[serde(skip)]
    pub waits: Vec<Wait>,
    /// One step of every rank, for a plot.
    #[serde(skip)]
    pub strips: Strips,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct RankRow {
    pub rank: u32,
    pub trace: String,
    pub step_seconds: f64,
    pub busy_share: f64,
    /// Per step, like all times of a row unless stated otherwise.
    pub compute_seconds: f64,
    pub exposed_seconds: f64,
    pub collectives: usize,
    /// Over all steps.
    pub collective_seconds: f64,
    /// Collectives also found on other ranks.
    pub met: usize,
    /// Share of these at which this rank arrived last.
    pub last_share: f64,
    /// Over all steps: time in collectives beyond what the last rank to arrive needed.
    pub waited_seconds: f64,
    pub transfer_seconds: f64,
    /// Waiting in sends and receives without concurrent compute: pipeline bubbles.
    pub pipeline_wait_seconds: f64,
    /// The rank that it waits for most, and for how long.
    pub waits_for: Option<u32>,
    pub waits_for_seconds: f64,
    /// How long all other ranks together wait for it.
    pub caused_seconds: f64,
}

/// Collectives of one kind, group and size.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CollectiveRow {
    pub kind: Kind,
    pub group: String,
    pub group_size: u32,
    pub bytes: u64,
    /// Per step.
    pub count: f64,
    /// Medians over collectives.
    pub transfer_seconds: f64,
    pub longest_wait_seconds: f64,
    /// Bytes of the message divided by the transfer time, and the resulting rate on the link (bus bandwidth).
    pub algorithm_bytes_per_second: Option<f64>,
    pub bus_bytes_per_second: Option<f64>,
    /// Datasheet rate of the device's link within a machine.
    pub link_bytes_per_second: Option<f64>,
}

/// The wait in one collective on the analyzed rank.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// The device span.
    pub at: usize,
    pub wait: Span,
    pub transfer_nanos: i64,
}

/// `None` for a single rank. `analyzed` is the index of the rank that the report is about.
pub fn ranks(traces: &[&Trace], views: &[&View], analyzed: usize) -> Option<Ranks> {
    if traces.len() < 2 {
        return None;
    }
    let lists: Vec<Vec<(Collective, Option<&str>)>> = views.iter().map(|view| with_steps(view)).collect();
    let Matched { meetings, aligned, offsets } = matched(&lists);
    let numbers: Vec<u32> = traces.iter().enumerate().map(|(at, trace)| rank_of(trace).unwrap_or(at as u32)).collect();
    let mut sums: Vec<Sums> = views.iter().map(|_| Sums::new(traces.len())).collect();
    let mut waits = Vec::new();
    for meeting in &meetings {
        let length = |&(rank, index): &(usize, usize)| lists[rank][index].0.span.nanos();
        let transfer = meeting.iter().map(length).min().unwrap_or(0);
        let last = meeting.iter().find(|member| length(member) == transfer).map_or(0, |member| member.0);
        sums[last].last += 1;
        for member @ &(rank, index) in meeting {
            let collective = &lists[rank][index].0;
            let waited = length(member) - transfer;
            let wait = Span { start: collective.span.start, end: collective.span.start + waited };
            sums[rank].add(collective.kind, wait, transfer, last);
            sums[last].caused += waited;
            if rank == analyzed {
                waits.push(Wait { at: collective.at, wait, transfer_nanos: transfer });
            }
        }
    }
    let rows: Vec<RankRow> = views
        .iter()
        .enumerate()
        .map(|(at, view)| {
            let mine = lists[at].iter().map(|(collective, _)| collective);
            let sum = Row { rank: numbers[at], trace: traces[at], view, sums: &sums[at], numbers: &numbers };
            sum.row(mine)
        })
        .collect();
    let world = traces.iter().filter_map(|trace| trace.header.distributed.as_ref()).map(|of| of.world_size).max();
    let missing: Vec<u32> = (0..world.unwrap_or(0)).filter(|rank| !numbers.contains(rank)).collect();
    let analyzed_view = views[analyzed];
    let exposed_waits = without(&merged(waits.iter().map(|wait| wait.wait).collect()), &compute(analyzed_view));
    let sets = sums.iter().map(|sum| merged(sum.waits.clone())).collect::<Vec<_>>();
    let exposed_wait =
        |(view, waits): (&&View, &Vec<Span>)| view.steps.seconds_per_step(total(&without(waits, &compute(view))));
    let mean_waiting = views.iter().zip(&sets).map(exposed_wait).sum::<f64>() / views.len() as f64;
    let strips = strips::strips(views, &sets, &offsets, aligned.iter().all(|aligned| *aligned), analyzed);
    let straggler = straggler(&rows, meetings.len(), &missing);
    Some(Ranks {
        meetings: meetings.len(),
        waiting_seconds: analyzed_view.steps.seconds_per_step(total(&exposed_waits)),
        mean_waiting_seconds: mean_waiting,
        straggler,
        notes: notes(&rows, &aligned, &meetings, &missing, world),
        collectives: collective_rows(traces, views, &lists, &meetings),
        missing_ranks: missing,
        waits,
        strips,
        ranks: rows,
    })
}

/// The steps' collectives, each with the name of its step if the profiler marked steps.
fn with_steps<'v>(view: &'v View) -> Vec<(Collective, Option<&'v str>)> {
    let (steps, range) = (&view.steps, view.steps.range());
    let inside = |collective: &Collective| (range.start..range.end).contains(&collective.span.start);
    let named = |collective: &Collective| {
        let step = steps.at(collective.span.start).filter(|_| steps.found_by == FoundBy::ProfilerMarks)?;
        Some(steps.list[step].name.as_str())
    };
    let found = collectives(view).into_iter().filter(inside);
    found.map(|collective| (named(&collective), collective)).map(|(step, collective)| (collective, step)).collect()
}

/// Sums over the collectives that one rank shares with others.
struct Sums {
    met: usize,
    last: usize,
    transfer: i64,
    waits: Vec<Span>,
    pipeline: Vec<Span>,
    waited_for: Vec<i64>,
    caused: i64,
}

impl Sums {
    fn new(ranks: usize) -> Sums {
        Sums {
            met: 0,
            last: 0,
            transfer: 0,
            waits: Vec::new(),
            pipeline: Vec::new(),
            waited_for: vec![0; ranks],
            caused: 0,
        }
    }

    fn add(&mut self, kind: Kind, wait: Span, transfer: i64, last: usize) {
        self.met += 1;
        self.transfer += transfer;
        self.waited_for[last] += wait.nanos();
        self.waits.push(wait);
        if kind == Kind::PointToPoint {
            self.pipeline.push(wait);
        }
    }
}

struct Row<'a> {
    rank: u32,
    trace: &'a Trace,
    view: &'a View<'a>,
    sums: &'a Sums,
    numbers: &'a [u32],
}

impl Row<'_> {
    fn row<'c>(&self, collectives: impl Iterator<Item = &'c Collective>) -> RankRow {
        let (steps, sums) = (&self.view.steps, self.sums);
        let spans: Vec<Span> = collectives.map(|collective| collective.span).collect();
        let compute = compute(self.view);
        let inside = |set: &[Span]| steps.list.iter().map(|step| covered(set, step.span)).sum::<i64>();
        let (most, nanos) = sums
            .waited_for
            .iter()
            .enumerate()
            .max_by_key(|(_, nanos)| **nanos)
            .map_or((0, 0), |(at, nanos)| (at, *nanos));
        RankRow {
            rank: self.rank,
            trace: self.trace.name.clone(),
            step_seconds: steps.seconds_per_step(steps.wall_nanos()),
            busy_share: steps.share(inside(if self.view.has_device_work() { &self.view.busy } else { &compute })),
            compute_seconds: steps.seconds_per_step(inside(&compute)),
            exposed_seconds: steps.seconds_per_step(inside(&exposed(self.view))),
            collectives: spans.len(),
            collective_seconds: seconds(spans.iter().map(|span| span.nanos()).sum()),
            met: sums.met,
            last_share: sums.last as f64 / sums.met.max(1) as f64,
            waited_seconds: seconds(sums.waits.iter().map(|wait| wait.nanos()).sum()),
            transfer_seconds: steps.seconds_per_step(sums.transfer),
            pipeline_wait_seconds: steps.seconds_per_step(total(&without(&merged(sums.pipeline.clone()), &compute))),
            waits_for: (nanos > 0).then(|| self.numbers[most]),
            waits_for_seconds: steps.seconds_per_step(nanos),
            caused_seconds: steps.seconds_per_step(sums.caused),
        }
    }
}

fn straggler(rows: &[RankRow], meetings: usize, missing: &[u32]) -> Option<u32> {
    let all: f64 = rows.iter().map(|row| row.caused_seconds).sum();
    let most = rows.iter().max_by(|left, right| left.caused_seconds.total_cmp(&right.caused_seconds))?;
    let stands_out = most.caused_seconds > 0.5 * all && meetings >= FEWEST_MEETINGS.get();
    (stands_out && missing.is_empty()).then_some(most.rank)
}

fn notes(rows: &[RankRow], aligned: &[bool], meetings: &[Meeting], missing: &[u32], world: Option<u32>) -> Vec<String> {
    let mut notes = Vec::new();
    if !missing.is_empty() {
        let listed: Vec<String> = missing.iter().take(8).map(u32::to_string).collect();
        let more = if missing.len() > 8 { " and others" } else { "" };
        notes.push(format!(
            "{} of {} ranks are given: rank {}{more} missing, so the waits shown are lower bounds and no straggler is named",
            rows.len(),
            world.unwrap_or(0),
            listed.join(", ")
        ));
    }
    let with_collectives = rows.iter().filter(|row| row.collectives > 0).count();
    if with_collectives > 1 && meetings.is_empty() {
        notes.push(
            "the ranks' collectives do not match by group, kind, size and time: waits cannot be separated from transfers"
                .into(),
        );
    } else {
        for (row, _) in rows.iter().zip(aligned).filter(|(row, aligned)| !**aligned && row.collectives > 0) {
            notes.push(format!("rank {}'s collectives do not match the others'", row.rank));
        }
    }
    if !meetings.is_empty() && meetings.len() < FEWEST_MEETINGS.get() {
        notes.push(format!("shared collectives: {}, too few to name a straggler", meetings.len()));
    }
    notes
}

fn collective_rows(
    traces: &[&Trace],
    views: &[&View],
    lists: &[Vec<(Collective, Option<&str>)>],
    meetings: &[Meeting],
) -> Vec<CollectiveRow> {
    #[derive(Default)]
    struct Gathered {
        transfers: Vec<i64>,
        waits: Vec<i64>,
        bytes: u64,
        group_size: u32,
    }
    let mut kinds: BTreeMap<(Kind, &str, u64), Gathered> = BTreeMap::new();
    for meeting in meetings {
        let members: Vec<&Collective> = meeting.iter().map(|&(rank, index)| &lists[rank][index].0).collect();
        let (Some(first), Some(transfer), Some(longest)) = (
            members.first(),
            members.iter().map(|one| one.span.nanos()).min(),
            members.iter().map(|one| one.span.nanos()).max(),
        ) else {
            continue;
        };
        let bytes = members.iter().map(|one| one.bytes).max().unwrap_or(0);
        let row = kinds.entry((first.kind, &first.group, bytes)).or_default();
        row.transfers.push(transfer);
        row.waits.push(longest - transfer);
        row.bytes = bytes;
        row.group_size = first.group_size.max(members.len() as u32);
    }
    let device = traces.iter().find_map(|trace| super::device_name(trace));
    let steps = views.iter().map(|view| view.steps.count()).fold(1.0, f64::max);
    let median = |mut values: Vec<i64>| {
        values.sort_unstable();
        values.get(values.len() / 2).copied().unwrap_or(0)
    };
    let mut rows: Vec<CollectiveRow> = kinds
        .into_iter()
        .map(|((kind, group, _), gathered)| {
            let count = gathered.transfers.len() as f64 / steps;
            let transfer = seconds(median(gathered.transfers));
            let algorithm = (gathered.bytes > 0 && transfer > 0.0).then(|| gathered.bytes as f64 / transfer);
            CollectiveRow {
                kind,
                group: group.to_string(),
                group_size: gathered.group_size,
                bytes: gathered.bytes,
                count,
                transfer_seconds: transfer,
                longest_wait_seconds: seconds(median(gathered.waits)),
                algorithm_bytes_per_second: algorithm,
                bus_bytes_per_second: algorithm.zip(kind.bus_factor(gathered.group_size)).map(|(rate, by)| rate * by),
                link_bytes_per_second: device.and_then(link_of),
            }
        })
        .collect();
    let whole = |row: &CollectiveRow| row.count * (row.transfer_seconds + row.longest_wait_seconds);
    rows.sort_by(|left, right| whole(right).total_cmp(&whole(left)));
    rows
}
