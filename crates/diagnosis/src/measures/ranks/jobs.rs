//! Which of several traces belong to one run.

use headroom_trace::Trace;

use crate::measures::intervals::Span;

/// The traces of one run, and why each of the others is not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Places in the list of traces, in order of rank.
    pub members: Vec<usize>,
    pub foreign: Vec<String>,
}

/// The rank of a trace: its header's, else the number that its file's name gives a rank, a worker or a part of a model.
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

/// The largest set of traces that can be ranks of one run: as many ranks in all, no rank twice, recorded at one time. Of sets
/// of one size the first. `times` are when each trace was recorded, by its own clock.
pub fn largest_job(traces: &[Trace], times: &[Span]) -> Job {
    let mut jobs: Vec<Vec<usize>> = Vec::new();
    for at in 0..traces.len() {
        let fits = |job: &&mut Vec<usize>| job.iter().all(|&other| are_of_one_run(traces, times, at, other));
        match jobs.iter_mut().find(fits) {
            Some(job) => job.push(at),
            None => jobs.push(vec![at]),
        }
    }
    let most = jobs.iter().map(Vec::len).max().unwrap_or(0);
    let mut members = jobs.iter().find(|job| job.len() == most).cloned().unwrap_or_default();
    members.sort_by_key(|&at| (rank_of(&traces[at]), at));
    let others = (0..traces.len()).filter(|at| !members.contains(at));
    let foreign = others.map(|at| why_foreign(traces, times, at, &members)).collect();
    Job { members, foreign }
}

fn are_of_one_run(traces: &[Trace], times: &[Span], left: usize, right: usize) -> bool {
    let (one, other) = (&traces[left], &traces[right]);
    let ranks = (rank_of(one), rank_of(other));
    ranks.0.is_some()
        && ranks.1.is_some()
        && ranks.0 != ranks.1
        && world_of(one) == world_of(other)
        && at_one_time(times[left], times[right])
}

/// Clocks count from the machine's start or from 1970. Two of one kind that are hours apart show two runs; of two machines'
/// starts nothing can be said.
fn at_one_time(left: Span, right: Span) -> bool {
    const YEAR_2000: i64 = 946_684_800_000_000_000;
    let are_dates = left.start > YEAR_2000 && right.start > YEAR_2000;
    let apart = (left.start - right.end).max(right.start - left.end);
    !are_dates || apart < 600_000_000_000
}

fn why_foreign(traces: &[Trace], times: &[Span], at: usize, members: &[usize]) -> String {
    let (trace, first) = (&traces[at], &traces[members[0]]);
    let why = if rank_of(trace).is_none() || rank_of(first).is_none() {
        "names no rank".to_string()
    } else if world_of(trace) != world_of(first) {
        format!("is of a run of {} ranks, not {}", world_of(trace).max(1), world_of(first).max(1))
    } else if members.iter().any(|&member| rank_of(&traces[member]) == rank_of(trace)) {
        format!("is a second trace of rank {}", rank_of(trace).unwrap_or(0))
    } else if members.iter().any(|&member| !at_one_time(times[at], times[member])) {
        "was recorded at another time".to_string()
    } else {
        "belongs to another run".to_string()
    };
    format!("{} {why}: left out, analyze it on its own", trace.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_trace::Distributed;

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
                "b is of a run of 64 ranks, not 2: left out, analyze it on its own",
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
    fn a_files_name_gives_the_rank_where_the_header_does_not() {
        let ranks: Vec<Option<u32>> =
            ["rank-3.json.gz", "worker2_step_12.json", "1234-TP-7.trace.json.gz", "control.json"].map(rank_in).to_vec();
        assert_eq!(ranks, [Some(3), Some(2), Some(7), None]);
    }
}
