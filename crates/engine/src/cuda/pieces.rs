//! The update in pieces: parameters that nothing in the step touches any more are updated beside the rest of the
//! backward pass.

use super::Prepared;
use std::ops::Range;

/// The pieces of one update call; together they are equivalent to it.
pub struct Pieces {
    /// The call that they replace.
    pub call: usize,
    pub pieces: Vec<Piece>,
}

pub struct Piece {
    /// The last call that touches one of its parameters or gradients: the piece may run after it.
    pub after: usize,
    pub work: Prepared,
}

/// Most pieces per update: more launches gain nothing once the first pieces start early.
const MOST: usize = 12;

/// Index of the last of `calls` that touches any of these ranges; 0 if none does.
pub fn last_touch(calls: &[Prepared], ranges: &[Range<u64>]) -> usize {
    let meets = |call: &Prepared| {
        let mut touched = call.reads.iter().chain(&call.writes);
        touched.any(|a| ranges.iter().any(|b| a.start < b.end && b.start < a.end))
    };
    calls.iter().rposition(meets).unwrap_or(0)
}

/// Splits parameters, given as (free after call, elements), into groups of about equal size: returns when each group is
/// free, and its members.
pub fn grouped(free: &[(usize, usize)]) -> Vec<(usize, Vec<usize>)> {
    let mut order: Vec<usize> = (0..free.len()).collect();
    order.sort_by_key(|&index| free[index].0);
    let least = free.iter().map(|(_, elements)| elements).sum::<usize>().div_ceil(MOST).max(1);
    let mut groups: Vec<(usize, Vec<usize>)> = vec![];
    let mut size = 0;
    for index in order {
        let (after, elements) = free[index];
        match groups.last_mut() {
            Some((last, members)) if size < least || *last == after => {
                *last = after;
                members.push(index);
                size += elements;
            }
            _ => {
                groups.push((after, vec![index]));
                size = elements;
            }
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(reads: Option<Range<u64>>, writes: Option<Range<u64>>) -> Prepared {
        let list = |range: Option<Range<u64>>| range.into_iter().collect();
        Prepared { actions: vec![], reads: list(reads), writes: list(writes), beside: false, together: None }
    }

    #[test]
    fn a_parameter_is_free_after_the_last_call_that_reads_or_writes_it() {
        // The forward pass reads the weight, its gradient is produced, the input's gradient reads the weight again, and
        // an unrelated call follows.
        let calls =
            [call(Some(0..8), None), call(None, Some(16..24)), call(Some(4..6), None), call(Some(8..16), Some(24..32))];
        assert_eq!(last_touch(&calls, &[0..8, 16..24]), 2);
        for (range, want) in [(16..24, 1), (31..40, 3), (100..101, 0)] {
            assert_eq!(last_touch(&calls, std::slice::from_ref(&range)), want, "{range:?}");
        }
    }

    #[test]
    fn groups_hold_every_parameter_once_and_none_before_it_is_free() {
        let free: Vec<(usize, usize)> = (0..100).map(|index| (1000 - 10 * (index % 50), 1 + index % 7)).collect();
        let groups = grouped(&free);
        let mut members: Vec<usize> = groups.iter().flat_map(|(_, members)| members.clone()).collect();
        members.sort();
        assert_eq!(members, (0..100).collect::<Vec<_>>());
        for (after, members) in &groups {
            assert!(members.iter().all(|&index| free[index].0 <= *after));
        }
        assert!(groups.len() <= MOST && groups.len() > MOST / 2, "{}", groups.len());
        assert!(groups.windows(2).all(|pair| pair[0].0 < pair[1].0), "one piece per moment");
        assert_eq!(grouped(&[(3, 5), (3, 5), (1, 5)]).len(), 2);
        assert_eq!(grouped(&[]), []);
    }
}
