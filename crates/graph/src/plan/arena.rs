//! Places buffers with known lifetimes in one arena so that those alive at the same time never overlap.

use std::ops::Range;

#[derive(Clone, Debug)]
pub struct Interval {
    pub bytes: usize,
    pub alive: Range<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    pub offsets: Vec<usize>,
    pub bytes: usize,
}

/// Places the largest first, each at the lowest offset that is free during its whole lifetime.
pub fn place(intervals: &[Interval]) -> Placement {
    let mut order: Vec<usize> = (0..intervals.len()).collect();
    order.sort_by_key(|&index| (std::cmp::Reverse(intervals[index].bytes), intervals[index].alive.start, index));
    let mut offsets = vec![0; intervals.len()];
    let mut placed: Vec<usize> = vec![]; // by offset
    let mut total = 0;
    for index in order {
        let interval = &intervals[index];
        let mut offset = 0;
        for &other in &placed {
            let neighbour = &intervals[other];
            if !overlap(&interval.alive, &neighbour.alive) {
                continue;
            }
            if offset + interval.bytes <= offsets[other] {
                break;
            }
            offset = offset.max(offsets[other] + neighbour.bytes);
        }
        offsets[index] = offset;
        total = total.max(offset + interval.bytes);
        let at = placed.partition_point(|&other| offsets[other] <= offset);
        placed.insert(at, index);
    }
    Placement { offsets, bytes: total }
}

fn overlap(left: &Range<usize>, right: &Range<usize>) -> bool {
    left.start < right.end && right.start < left.end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(intervals: &[(usize, Range<usize>)], bytes: usize) {
        let intervals: Vec<Interval> =
            intervals.iter().map(|(bytes, alive)| Interval { bytes: *bytes, alive: alive.clone() }).collect();
        let placed = place(&intervals);
        assert_eq!(placed.bytes, bytes);
        for (left, a) in intervals.iter().enumerate() {
            for (right, b) in intervals.iter().enumerate().skip(left + 1) {
                let (x, y) = (placed.offsets[left], placed.offsets[right]);
                let apart = x + a.bytes <= y || y + b.bytes <= x;
                assert!(apart || !overlap(&a.alive, &b.alive), "{left} and {right} share memory while alive");
            }
        }
    }

    #[test]
    fn buffers_that_never_meet_share_memory() {
        check(&[(100, 0..2), (100, 2..4), (100, 4..6)], 100);
    }

    #[test]
    fn buffers_that_meet_do_not() {
        check(&[(100, 0..3), (50, 2..4), (70, 1..3)], 220);
    }

    #[test]
    fn a_gap_is_used_before_the_arena_grows() {
        check(&[(100, 0..6), (60, 0..2), (40, 1..6), (60, 2..6)], 200);
    }
}
