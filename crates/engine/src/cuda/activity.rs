//! Turns CUPTI's records of a step into spans of the plan's calls and a list of kernels, copies, fills and driver
//! calls. Pure functions from records to spans; no device is queried.

use crate::recorder::{Activity, ActivityKind, CallId, CallSpan};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// One of CUPTI's records; times are nanoseconds of its own clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CuptiActivity {
    pub kind: Kind,
    pub name: Arc<str>,
    pub start: u64,
    pub end: u64,
    pub correlation: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On the device; `node` is the graph node that launched it, 0 if none did.
    OnDevice { what: ActivityKind, node: u64 },
    /// On the host.
    DriverCall,
    /// The number of the push that was active when the call with this correlation was made.
    Tie { pushed: u64 },
}

/// The purpose of a driver call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// One of the plan's calls; `None` for transfers of batches and losses.
    Call(Option<CallId>),
    /// The replay with this index.
    Replay(usize),
}

/// A reading of CUPTI's clock paired with one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    theirs: u64,
    ours: Duration,
}

impl Alignment {
    /// Takes readings of our clock, theirs, and ours again; uses the tightest, assuming theirs was read in the middle.
    pub fn of(readings: &[(Duration, u64, Duration)]) -> Option<Alignment> {
        let (before, theirs, after) = readings.iter().min_by_key(|(before, _, after)| after.saturating_sub(*before))?;
        Some(Alignment { theirs: *theirs, ours: *before + after.saturating_sub(*before) / 2 })
    }

    /// Converts to our clock; times before its zero become zero.
    fn ours(&self, theirs: u64) -> Duration {
        match theirs.checked_sub(self.theirs) {
            Some(later) => self.ours + Duration::from_nanos(later),
            None => self.ours.saturating_sub(Duration::from_nanos(self.theirs - theirs)),
        }
    }
}

/// One or more steps as the device ran them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Each call from the start of its first kernel to the end of its last, in time order.
    pub spans: Vec<CallSpan>,
    /// In time order.
    pub activities: Vec<Activity>,
    /// Number of activities in replays whose kernel count differs from the capture, so that none could be matched to a
    /// call.
    pub untied: usize,
}

/// `pushed` lists what was pushed, by number; `replays` gives for each replay the call that each of its nodes belongs
/// to, in capture order.
pub fn resolve(
    mut records: Vec<CuptiActivity>,
    pushed: &[Pushed],
    replays: &[Vec<Option<CallId>>],
    alignment: Alignment,
) -> Resolved {
    records.sort_by_key(|record| (record.start, record.end));
    let mut tied: HashMap<u32, u64> = HashMap::new();
    for record in &records {
        if let Kind::Tie { pushed } = record.kind {
            tied.insert(record.correlation, pushed);
        }
    }
    let about = |record: &CuptiActivity| {
        let number = *tied.get(&record.correlation)?;
        Some((number, *pushed.get(usize::try_from(number).ok()?)?))
    };
    let (in_replays, untied) = calls_in_replays(&records, &about, replays);
    let mut resolved = Resolved { untied, ..Resolved::default() };
    // Keyed by push and call, so that a call that runs again gets another span.
    let mut spans: BTreeMap<(u64, CallId), (Duration, Duration)> = BTreeMap::new();
    for (index, record) in records.iter().enumerate() {
        let (start, end) = (alignment.ours(record.start), alignment.ours(record.end.max(record.start)));
        let told = about(record);
        let call = match told {
            Some((_, Pushed::Call(call))) => call,
            _ => in_replays.get(&index).copied().flatten(),
        };
        let what = match record.kind {
            Kind::Tie { .. } => continue,
            Kind::DriverCall => ActivityKind::DriverCall,
            Kind::OnDevice { what, .. } => what,
        };
        if let (Kind::OnDevice { .. }, Some(call), Some((number, _))) = (record.kind, call, told) {
            let span = spans.entry((number, call)).or_insert((start, end));
            *span = (span.0.min(start), span.1.max(end));
        }
        let (name, correlation) = (Arc::clone(&record.name), record.correlation);
        resolved.activities.push(Activity { what, name, start, end, correlation, call });
    }
    resolved.activities = outermost(resolved.activities);
    let span = |((_, CallId { program, call }), (start, end))| CallSpan { program, call, start, end };
    resolved.spans = spans.into_iter().map(span).collect();
    resolved.spans.sort_by_key(|span| (span.start, span.end));
    resolved
}

/// Keyed by index in `records`: the calls that kernels of replays belong to; and the number that could not be matched.
fn calls_in_replays(
    records: &[CuptiActivity],
    about: &dyn Fn(&CuptiActivity) -> Option<(u64, Pushed)>,
    replays: &[Vec<Option<CallId>>],
) -> (HashMap<usize, Option<CallId>>, usize) {
    let mut groups: BTreeMap<(u64, usize), Vec<usize>> = BTreeMap::new();
    for (index, record) in records.iter().enumerate() {
        if let (Kind::OnDevice { .. }, Some((number, Pushed::Replay(which)))) = (record.kind, about(record)) {
            groups.entry((number, which)).or_default().push(index);
        }
    }
    let (mut calls, mut untied) = (HashMap::new(), 0);
    for ((_, which), mut group) in groups {
        let nodes = replays.get(which).map_or(&[][..], |nodes| nodes);
        // On one stream, work starts in capture order. On several streams, nodes start in any order; node numbers, if
        // present, rise in capture order.
        let one_stream = group.iter().all(|&index| stream(&records[index]) == stream(&records[group[0]]));
        let numbers: HashSet<u64> =
            group.iter().map(|&index| node(&records[index])).filter(|node| *node != 0).collect();
        if nodes.len() != group.len() || !(one_stream || numbers.len() == group.len()) {
            untied += group.len();
            continue;
        }
        if !one_stream {
            group.sort_by_key(|&index| node(&records[index]));
        }
        calls.extend(group.into_iter().zip(nodes.iter().copied()));
    }
    (calls, untied)
}

fn stream(record: &CuptiActivity) -> Option<u32> {
    match record.kind {
        Kind::OnDevice { what: ActivityKind::Kernel { stream, .. }, .. }
        | Kind::OnDevice { what: ActivityKind::Copy { stream, .. }, .. }
        | Kind::OnDevice { what: ActivityKind::Fill { stream, .. }, .. } => Some(stream),
        _ => None,
    }
}

fn node(record: &CuptiActivity) -> u64 {
    match record.kind {
        Kind::OnDevice { node, .. } => node,
        _ => 0,
    }
}

/// A runtime call and the driver call inside it share a correlation: keeps the outer one.
fn outermost(activities: Vec<Activity>) -> Vec<Activity> {
    let mut longest: HashMap<u32, Duration> = HashMap::new();
    for one in activities.iter().filter(|one| one.what == ActivityKind::DriverCall) {
        let length = one.end.saturating_sub(one.start);
        longest.entry(one.correlation).and_modify(|known| *known = (*known).max(length)).or_insert(length);
    }
    let stays = |one: &Activity| match one.what {
        ActivityKind::DriverCall => longest.get(&one.correlation) == Some(&one.end.saturating_sub(one.start)),
        _ => true,
    };
    activities.into_iter().filter(stays).collect()
}

/// Whether a driver call belongs in a trace: whether it queues work or waits for it.
pub fn is_traced(name: &str) -> bool {
    ["Launch", "Memcpy", "Memset", "Synchronize"].iter().any(|word| name.contains(word))
}

/// Strips suffixes: `cuLaunchKernelEx_ptsz` and `cudaLaunchKernel_v7000` get the names that people know.
pub fn plain_name(name: &str) -> &str {
    let end = name.find("_v").or_else(|| name.find("_pt")).unwrap_or(name.len());
    &name[..end]
}

#[cfg(test)]
#[path = "activity_tests.rs"]
mod tests;
