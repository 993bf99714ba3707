//! Sequences of kernels that recur on a stream.

use std::collections::HashMap;

use headroom_trace::NameId;
use serde::Serialize;

use super::kernel_index::KernelIndex;
use super::view::View;
use crate::constants::sequences::{FEWEST_TIMES, LONGEST, SHORTEST};

#[derive(Clone, Debug, Default, Serialize)]
pub struct SequenceRow {
    pub kernels: Vec<String>,
    pub times_per_step: f64,
    pub seconds_per_step: f64,
    /// Share of all kernels' time.
    pub share: f64,
}

const MOST_ROWS: usize = 8;
/// Number of kernels examined: the first ones of a longer step.
const MOST_KERNELS: usize = 20_000;

/// Finds the sequences of the middle step. A sequence that is only part of a longer, equally frequent one is left out.
pub fn sequences(view: &View) -> Vec<SequenceRow> {
    let device = &view.trace.device;
    let list = &view.steps.list;
    let Some(step) = list.get(list.len() / 2) else { return Vec::new() };
    let index = KernelIndex::new(view, step.span, |_| true);
    let kernels = &index.kernels[..index.kernels.len().min(MOST_KERNELS)];
    let all: i64 = view.device_nanos(kernels);
    let names: Vec<NameId> = kernels.iter().map(|&at| device.name[at]).collect();
    let mut before = vec![0i64; kernels.len() + 1];
    for (index, &at) in kernels.iter().enumerate() {
        before[index + 1] = before[index] + device.duration[at];
    }
    let mut found: Vec<(&[NameId], usize, i64)> = Vec::new();
    for length in SHORTEST.get()..=LONGEST.get() {
        // The count, the total time, and the end of the last occurrence: overlapping occurrences count once.
        let mut counts: HashMap<&[NameId], (usize, i64, usize)> = HashMap::new();
        for from in 0..names.len().saturating_sub(length - 1) {
            let to = from + length;
            if device.track[kernels[from]] != device.track[kernels[to - 1]] {
                continue;
            }
            let (count, nanos, end) = counts.entry(&names[from..to]).or_default();
            if *count == 0 || from >= *end {
                *count += 1;
                *nanos += before[to] - before[from];
                *end = to;
            }
        }
        // One repeated kernel is not a sequence.
        let repeats = |names: &[NameId]| names.windows(2).all(|pair| pair[0] == pair[1]);
        let often = counts.into_iter().filter(|(names, (count, ..))| *count >= FEWEST_TIMES.get() && !repeats(names));
        found.extend(often.map(|(names, (count, nanos, _))| (names, count, nanos)));
    }
    found.sort_by(|left, right| right.2.cmp(&left.2).then(left.0.cmp(right.0)));
    let mut kept: Vec<(&[NameId], usize, i64)> = Vec::new();
    for candidate in found {
        let holds = |outer: &[NameId], inner: &[NameId]| outer.windows(inner.len()).any(|window| window == inner);
        let is_part = |other: &&(&[NameId], usize, i64)| {
            (other.0.len() > candidate.0.len() && holds(other.0, candidate.0))
                || (other.0.len() <= candidate.0.len() && holds(candidate.0, other.0))
                || is_turned(other.0, candidate.0)
        };
        if !kept.iter().any(|other| is_part(&other)) {
            kept.push(candidate);
        }
        if kept.len() == MOST_ROWS {
            break;
        }
    }
    let row = |(names, count, nanos): (&[NameId], usize, i64)| SequenceRow {
        kernels: names.iter().map(|&name| view.name(name).to_string()).collect(),
        times_per_step: count as f64,
        seconds_per_step: nanos as f64 / 1e9,
        share: nanos as f64 / all.max(1) as f64,
    };
    kept.into_iter().map(row).collect()
}

/// Whether two sequences are rotations of each other.
fn is_turned(left: &[NameId], right: &[NameId]) -> bool {
    let doubled = [left, left].concat();
    left.len() == right.len() && doubled.windows(right.len()).any(|window| window == right)
}
