//! Picks those of several traces that belong to one run.

use headroom_trace::Trace;

use crate::measures::intervals::Span;

/// The traces of one run, and why each of the others is not part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Indices in the list of traces, in order of rank.
    pub members: Vec<usize>,
    pub foreign: Vec<String>,
}

/// The rank of a trace: from its header, otherwise the number of a rank, worker or model part in its file name.
pub fn rank_of(trace: &Trace) -> Option<u32> {
    let stated = trace.header.distributed.as_ref().map(|distributed| distributed.rank);
    stated.or_else(|| rank_in(&trace.name))
}

fn rank_in(name: &str) -> Option<u32> {
    let name = name.to_ascii_lowercase();
    ["rank", "worker", "tp-"].iter().find_map(|word| {
        let rest = &name[name.find(word)? + word.len()..];
        let digits: String =
            rest.trim_start_matches(['-', '_', '.']).chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    })
}

fn world_of(trace: &Trace) -> u32 {
    trace.header.distributed.as_ref().map_or(0, |distributed| distributed.world_size)
}

/// Traces grouped by run, and why they are not all of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// Indices in the list of traces.
    pub members: Vec<Vec<usize>>,
    /// One reason for each run after the first.
    pub why: Vec<String>,
}

/// Decides by recording, rank, number of ranks and time which traces are ranks of one run.
pub fn group_by_run(traces: &[Trace]) -> Runs {
    let times: Vec<Span> = traces.iter().map(recorded).collect();
    let members = jobs(traces, &times);
    let why = members.iter().skip(1).map(|job| why_apart(traces, &times, job[0], &members[0])).collect();
    Runs { members, why }
}

/// When a trace's events happened.
fn recorded(trace: &Trace) -> Span {
    let starts = || trace.host.start.iter().chain(&trace.device.start);
    dated(trace, Span { start: starts().min().copied().unwrap_or(0), end: starts().max().copied().unwrap_or(0) })
}

/// The same as nanoseconds since 1970, if the trace's header gives its time base.
pub fn dated(trace: &Trace, span: Span) -> Span {
    let base = trace.header.base_nanos.filter(|_| span.start < YEAR_2000).unwrap_or(0);
    Span { start: span.start.saturating_add(base), end: span.end.saturating_add(base) }
}

/// Assigns each trace to the first run that it fits: same number of ranks, no rank twice, recorded at the same time.
fn jobs(traces: &[Trace], times: &[Span]) -> Vec<Vec<usize>> {
    let mut jobs: Vec<Vec<usize>> = Vec::new();
    for at in 0..traces.len() {
        let fits = |job: &&mut Vec<usize>| job.iter().all(|&other| are_of_one_run(traces, times, at, other));
        match jobs.iter_mut().find(fits) {
            Some(job) => job.push(at),
            None => jobs.push(vec![at]),
        }
    }
    jobs
}

/// The largest set of traces that can be ranks of one run; the first of equally large ones. `times` are when each trace
/// was recorded, by its own clock.
pub fn largest_job(traces: &[Trace], times: &[Span]) -> Job {
    let jobs = jobs(traces, times);
    let most = jobs.iter().map(Vec::len).max().unwrap_or(0);
    let mut members = jobs.iter().find(|job| job.len() == most).cloned().unwrap_or_default();
    members.sort_by_key(|&at| (rank_of(&traces[at]), at));
    let others = (0..traces.len()).filter(|at| !members.contains(at));
    let left_out = |at| format!("{}: left out, analyze it on its own", why_apart(traces, times, at, &members));
    let foreign = others.map(left_out).collect();
    Job { members, foreign }
}

fn are_of_one_run(traces: &[Trace], times: &[Span], left: usize, right: usize) -> bool {
    let (one, other) = (&traces[left], &traces[right]);
    let ranks = (rank_of(one), rank_of(other));
    ranks.0.is_some()
        && ranks.1.is_some()
        && ranks.0 != ranks.1
        && world_of(one) == world_of(other)
        && !are_two_recordings(one, other)
        && at_one_time(times[left], times[right])
}

/// Whether both state their recording, and these differ.
fn are_two_recordings(one: &Trace, other: &Trace) -> bool {
    let job = |trace: &Trace| trace.header.recording.as_ref().and_then(|recording| recording.job.clone());
    job(one).zip(job(other)).is_some_and(|(one, other)| one != other)
}

const YEAR_2000: i64 = 946_684_800_000_000_000;

/// Whether both may have been recorded at the same time. Clocks count from the machine's start or from 1970. Two dates
/// that are far apart show two runs; two machines' start times say nothing.
fn at_one_time(left: Span, right: Span) -> bool {
    let are_dates = left.start > YEAR_2000 && right.start > YEAR_2000;
    let apart = (left.start - right.end).max(right.start - left.end);
    !are_dates || apart < 600_000_000_000
}

fn why_apart(traces: &[Trace], times: &[Span], at: usize, members: &[usize]) -> String {
    let (trace, first) = (&traces[at], &traces[members[0]]);
    let why = if rank_of(trace).is_none() || rank_of(first).is_none() {
        "names no rank".to_string()
    } else if world_of(trace) != world_of(first) {
        format!("is from a run of {} ranks, not {}", world_of(trace).max(1), world_of(first).max(1))
    } else if members.iter().any(|&member| rank_of(&traces[member]) == rank_of(trace)) {
        format!("is a second trace of rank {}", rank_of(trace).unwrap_or(0))
    } else if members.iter().any(|&member| are_two_recordings(trace, &traces[member])) {
        "is from another recording".to_string()
    } else if members.iter().any(|&member| !at_one_time(times[at], times[member])) {
        "was recorded at another time".to_string()
    } else {
        "belongs to another run".to_string()
    };
    format!("{} {why}", trace.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_trace::{Distributed, RecordingHeader};

    fn trace(name: &str, rank: u32, world_size: u32) -> Trace {
        let distributed = Some(Distributed { backend: "nccl".into(), rank, world_size });
        let mut trace = Trace { name: name.into(), ..Trace::default() };
        trace.header.distributed = distributed;
        trace
    }

    #[test]
    fn traces_of_two_runs_are_told_apart() {
        let traces = [trace("a", 0, 2), trace("b", 3, 64), trace("c", 1, 2), trace("d", 1, 2)];
        let times = [Span { start: 0, end: 9 }; 4];
        let job = largest_job(&traces, &times);
        assert_eq!(job.members, [0, 2]);
        assert_eq!(
            job.foreign,
            [
                "b is from a run of 64 ranks, not 2: left out, analyze it on its own",
                "d is a second trace of rank 1: left out, analyze it on its own"
            ]
        );
    }

    #[test]
    fn runs_of_different_days_are_two() {
        let traces = [trace("a", 0, 2), trace("b", 1, 2)];
        let day = 86_400_000_000_000;
        let at = |start: i64| Span { start, end: start + 1_000_000_000 };
        let today = 1_700_000_000_000_000_000;
        assert_eq!(largest_job(&traces, &[at(today), at(today + day)]).members, [0]);
        assert_eq!(largest_job(&traces, &[at(today), at(today + 1_000)]).members, [0, 1]);
        assert_eq!(largest_job(&traces, &[at(day), at(3 * day)]).members, [0, 1], "clocks of two machines' starts");
    }

    #[test]
    fn recordings_are_told_apart_by_their_name_and_by_the_base_of_their_clock() {
        let recorded_as = |name: &str, rank: u32, job: &str| {
            let mut trace = trace(name, rank, 2);
            let job = Some(job.to_string());
            trace.header.recording = Some(RecordingHeader { job, ..RecordingHeader::default() });
            trace
        };
        let found = group_by_run(&[recorded_as("a", 0, "x"), recorded_as("b", 1, "x"), recorded_as("c", 1, "y")]);
        assert_eq!((found.members, found.why.len()), (vec![vec![0, 1], vec![2]], 1));
        let found = group_by_run(&[recorded_as("a", 0, "x"), recorded_as("b", 1, "y")]);
        assert_eq!(found.why, ["b is from another recording"]);
        let based = |name: &str, rank: u32, base_nanos: i64| {
            let mut trace = trace(name, rank, 2);
            trace.header.base_nanos = Some(base_nanos);
            trace
        };
        let (today, day) = (1_700_000_000_000_000_000, 86_400_000_000_000);
        assert_eq!(group_by_run(&[based("a", 0, today), based("b", 1, today)]).members, [[0, 1]]);
        let found = group_by_run(&[based("a", 0, today), based("b", 1, today + day)]);
        assert_eq!(found.why, ["b was recorded at another time"]);
        let alone = |name: &str| Trace { name: name.into(), ..Trace::default() };
        assert_eq!(group_by_run(&[alone("before.json"), alone("after.json")]).why, ["after.json names no rank"]);
    }

    #[test]
    fn a_files_name_gives_the_rank_where_the_header_does_not() {
        let ranks: Vec<Option<u32>> =
            ["rank-3.json.gz", "worker2_step_12.json", "1234-TP-7.trace.json.gz", "control.json"].map(rank_in).to_vec();
        assert_eq!(ranks, [Some(3), Some(2), Some(7), None]);
    }
}
