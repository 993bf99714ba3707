//! Matches the same collective on several ranks: by group, kind, size and end time.

use std::collections::{BTreeMap, HashMap};

use super::super::collectives::{Collective, Kind};
use crate::constants::matching::{FEWEST, MOST_OF_A_KIND, TOLERANCE_NANOS};

/// A collective shared by ranks, as pairs of rank index and index in that rank's list of collectives.
pub type Meeting = Vec<(usize, usize)>;

/// Matched collectives in order of time, and which ranks could be aligned to one clock.
pub struct Matched {
    pub meetings: Vec<Meeting>,
    pub aligned: Vec<bool>,
    /// Offset to subtract from each rank's clock; 0 if it is not aligned.
    pub offsets: Vec<i64>,
}

type Key<'a> = (Kind, &'a str, u64);

/// The key that a collective has on all ranks. The message size is not part of it if ranks contribute different
/// amounts.
fn key(collective: &Collective) -> Key<'_> {
    let bytes = if collective.kind.is_even() { collective.bytes } else { 0 };
    (collective.kind, &collective.group, bytes)
}

/// `ranks` are the collectives of each rank in order of time, each with the name of its step if the run has marks.
pub fn matched(ranks: &[Vec<(Collective, Option<&str>)>]) -> Matched {
    let offsets = clocks(ranks);
    if !offsets.iter().all(Option::is_some)
        && let Some(matched) = in_order(ranks)
    {
        return matched;
    }
    let mut by_key: BTreeMap<Key, Vec<(i64, usize, usize)>> = BTreeMap::new();
    for (rank, list) in ranks.iter().enumerate() {
        let Some(offset) = offsets[rank] else { continue };
        for (index, (collective, _)) in list.iter().enumerate() {
            by_key.entry(key(collective)).or_default().push((collective.span.end - offset, rank, index));
        }
    }
    let mut meetings: Vec<(i64, Meeting)> = Vec::new();
    for mut ends in by_key.into_values() {
        ends.sort_unstable();
        meetings.extend(met(&ends));
    }
    meetings.sort_unstable();
    let meetings = meetings.into_iter().map(|(_, meeting)| meeting).collect();
    Matched {
        meetings,
        aligned: offsets.iter().map(Option::is_some).collect(),
        offsets: offsets.iter().map(|offset| offset.unwrap_or(0)).collect(),
    }
}

/// Matches collectives in order, if all ranks have the same ones in the same steps and no rank leaves one before all
/// have arrived. Ends then need not be close: a process that waits for a CPU returns late.
fn in_order(ranks: &[Vec<(Collective, Option<&str>)>]) -> Option<Matched> {
    let (first, others) = ranks.split_first()?;
    let is_same = |(left, right): (&(Collective, Option<&str>), &(Collective, Option<&str>))| {
        key(&left.0) == key(&right.0) && left.1.is_some() && left.1 == right.1 && left.0.kind.is_even()
    };
    let mut offsets = vec![0];
    for other in others {
        if first.len() < FEWEST.get() || first.len() != other.len() || !first.iter().zip(other).all(is_same) {
            return None;
        }
        // The range of clock differences with which both arrive before either leaves.
        let pairs = first.iter().zip(other).map(|((left, _), (right, _))| (left.span, right.span));
        let least = pairs.clone().map(|(left, right)| right.start - left.end).max()? - TOLERANCE_NANOS.get();
        let most = pairs.map(|(left, right)| right.end - left.start).min()? + TOLERANCE_NANOS.get();
        if least > most {
            return None;
        }
        offsets.push(if (least..=most).contains(&0) { 0 } else { least + (most - least) / 2 });
    }
    let meetings = (0..first.len()).map(|index| (0..ranks.len()).map(|rank| (rank, index)).collect()).collect();
    Some(Matched { meetings, aligned: vec![true; ranks.len()], offsets })
}

/// Groups ends that are close to each other, one per rank.
fn met(ends: &[(i64, usize, usize)]) -> Vec<(i64, Meeting)> {
    let mut taken = vec![false; ends.len()];
    let mut meetings = Vec::new();
    for first in 0..ends.len() {
        if taken[first] {
            continue;
        }
        let mut meeting: Meeting = Vec::new();
        for at in (first..ends.len()).take_while(|&at| ends[at].0 - ends[first].0 <= TOLERANCE_NANOS.get()) {
            let (_, rank, index) = ends[at];
            if !taken[at] && meeting.iter().all(|(other, _)| *other != rank) {
                taken[at] = true;
                meeting.push((rank, index));
            }
        }
        if meeting.len() > 1 {
            meeting.sort_unstable();
            meetings.push((ends[first].0, meeting));
        }
    }
    meetings
}

/// Offset to subtract from each rank's clock to get the first one's; `None` if nothing links it to the others.
fn clocks(ranks: &[Vec<(Collective, Option<&str>)>]) -> Vec<Option<i64>> {
    let mut offsets: Vec<Option<i64>> = vec![None; ranks.len()];
    if let Some(first) = (0..ranks.len()).find(|&rank| !ranks[rank].is_empty()) {
        offsets[first] = Some(0);
    }
    // Ranks of other groups are reached through those that share a group with them.
    loop {
        let mut found = None;
        'search: for new in (0..ranks.len()).filter(|&rank| offsets[rank].is_none()) {
            for known in 0..ranks.len() {
                if let Some(base) = offsets[known]
                    && let Some(offset) = clock_difference(&ranks[known], &ranks[new])
                {
                    found = Some((new, base + offset));
                    break 'search;
                }
            }
        }
        let Some((rank, offset)) = found else { break };
        offsets[rank] = Some(offset);
    }
    // A single aligned rank has nothing to match.
    if offsets.iter().flatten().count() < 2 {
        offsets.fill(None);
    }
    offsets
}

/// How far `right`'s clock is ahead of `left`'s, if most of their common collectives then end together.
fn clock_difference(left: &[(Collective, Option<&str>)], right: &[(Collective, Option<&str>)]) -> Option<i64> {
    let mut ends: HashMap<Key, Vec<(i64, Option<&str>)>> = HashMap::new();
    for (collective, step) in left {
        ends.entry(key(collective)).or_default().push((collective.span.end, *step));
    }
    let mut differences = Vec::new();
    let (mut common_left, mut common_right) = (0, 0);
    let mut counts: HashMap<Key, usize> = HashMap::new();
    for (collective, step) in right {
        let Some(others) = ends.get(&key(collective)) else { continue };
        let seen = counts.entry(key(collective)).or_default();
        *seen += 1;
        if *seen > MOST_OF_A_KIND.get() {
            continue;
        }
        common_right += 1;
        for (end, other_step) in others.iter().take(MOST_OF_A_KIND.get()) {
            if step.is_none() || other_step.is_none() || step == other_step {
                differences.push(collective.span.end - end);
            }
        }
    }
    for key in counts.keys() {
        common_left += ends[key].len().min(MOST_OF_A_KIND.get());
    }
    let common = common_left.min(common_right);
    differences.sort_unstable();
    // If both use the same clock, ends agree without an offset.
    let together = window(&differences, |difference| difference.abs() <= TOLERANCE_NANOS.get());
    if !together.is_empty() && 2 * together.len() >= common {
        return Some(together[together.len() / 2]);
    }
    let densest = densest(&differences);
    let enough = densest.len() >= 3 && 2 * densest.len() >= common;
    enough.then(|| densest[densest.len() / 2])
}

fn window(sorted: &[i64], inside: impl Fn(&i64) -> bool) -> &[i64] {
    let first = sorted.iter().position(&inside).unwrap_or(sorted.len());
    let count = sorted[first..].iter().take_while(|difference| inside(difference)).count();
    &sorted[first..first + count]
}

/// The largest group of differences within the tolerance of each other.
fn densest(sorted: &[i64]) -> &[i64] {
    let (mut best, mut first) = (0..0, 0);
    for last in 0..sorted.len() {
        while sorted[last] - sorted[first] > TOLERANCE_NANOS.get() {
            first += 1;
        }
        if last + 1 - first > best.len() {
            best = first..last + 1;
        }
    }
    &sorted[best]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measures::intervals::Span;

    fn one(start: i64, end: i64, bytes: u64) -> (Collective, Option<&'static str>) {
        let span = Span { start: 1000 * start, end: 1000 * end };
        let collective = Collective { at: 0, span, kind: Kind::AllReduce, group: String::new(), group_size: 2, bytes };
        (collective, None)
    }

    #[test]
    fn a_collective_that_one_rank_lacks_does_not_shift_the_rest() {
        let left = vec![one(0, 900, 8), one(1000, 2000, 8), one(3000, 4000, 8), one(5000, 5900, 8)];
        let right = vec![one(500, 905, 8), one(3900, 4001, 8), one(5100, 5901, 8)];
        let matched = matched(&[left, right]);
        assert_eq!(matched.meetings, [[(0, 0), (1, 0)], [(0, 2), (1, 1)], [(0, 3), (1, 2)]]);
    }

    #[test]
    fn clocks_of_two_machines_are_brought_together() {
        let left = vec![one(0, 900, 8), one(1000, 2000, 8), one(3000, 7000, 8), one(8000, 8500, 16)];
        let ahead = 5_000_000_000;
        let right: Vec<_> = [(500, 903, 8), (1900, 2003, 8), (6000, 7003, 8), (8100, 8503, 16)]
            .map(|(start, end, bytes)| one(ahead + start, ahead + end, bytes))
            .to_vec();
        assert_eq!(matched(&[left, right]).meetings.len(), 4);
    }

    #[test]
    fn collectives_of_unrelated_runs_do_not_meet() {
        let left = vec![one(0, 900, 8), one(1000, 2000, 8), one(3000, 7000, 8), one(8000, 8500, 8)];
        let right = vec![one(0, 4100, 8), one(5000, 9700, 8), one(10_000, 30_000, 8), one(31_000, 32_000, 8)];
        let matched = matched(&[left, right]);
        assert!(matched.meetings.is_empty() && matched.aligned == [false, false], "{:?}", matched.meetings);
    }

    /// Four collectives in two steps, on one rank that returns at once and on one that returns `late` microseconds
    /// later.
    fn returned_late(late: [i64; 4], step: &'static str) -> Vec<Meeting> {
        let named = |(collective, _), step| (collective, Some(step));
        let starts = [(0, "1"), (4_000, "1"), (9_000, "2"), (15_000, "2")];
        let left = starts.map(|(start, step)| named(one(start, start + 2_000, 8), step)).to_vec();
        let right = starts.iter().zip(late);
        let right = right.map(|((start, _), late)| named(one(start + 1_900, start + 2_000 + late, 8), step));
        let mut right: Vec<_> = right.collect();
        right.iter_mut().zip(starts).filter(|_| step == "1").for_each(|(one, (_, step))| one.1 = Some(step));
        matched(&[left, right]).meetings
    }

    #[test]
    fn ranks_that_return_late_meet_in_the_order_of_their_steps() {
        let meetings = returned_late([500, 900, 2_500, 1_400], "1");
        assert_eq!(meetings, [0, 1, 2, 3].map(|index| vec![(0, index), (1, index)]));
        assert!(returned_late([500, 900, 2_500, 1_400], "7").is_empty(), "steps of another name");
        let left = (0..4).map(|at| (one(1_000 * at, 1_000 * at + 500, 8).0, Some("1"))).collect::<Vec<_>>();
        let right = (0..4).map(|at| (one(2_900 * at, 2_900 * at + 100, 8).0, Some("1"))).collect::<Vec<_>>();
        assert!(matched(&[left, right]).meetings.is_empty(), "one leaves before the other has come");
    }

    #[test]
    fn messages_of_other_sizes_are_other_collectives() {
        let left = vec![one(0, 900, 8), one(1000, 2000, 8)];
        let right = vec![one(0, 900, 16), one(1000, 2000, 16)];
        assert!(matched(&[left, right]).meetings.is_empty());
    }
}
