//! Kernels in the order in which they ran, as one index: what repeats in it is asked by query.

use std::ops::RangeInclusive;

use headroom_trace::{Category, NameId};

use super::intervals::Span;
use super::view::View;

/// Kernels with the same name and grid do the same work.
pub type Sign = (NameId, [u32; 3]);

/// Kernels by track and start, as the columns are.
pub struct KernelIndex {
    pub kernels: Vec<usize>,
    pub signs: Vec<Sign>,
}

/// A loop: the same `period` kernels again and again, `count` in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    pub from: usize,
    pub period: usize,
    pub count: usize,
}

impl Loop {
    pub fn rounds(&self) -> usize {
        self.count / self.period
    }
}

/// The repetitions that count as loops.
pub struct LoopQuery<'q> {
    pub periods: RangeInclusive<usize>,
    pub fewest_rounds: usize,
    /// Rounds that must agree before `is_round` is asked.
    pub compared_rounds: usize,
    /// Whether the kernel at this place continues the one before it.
    pub goes_on: &'q dyn Fn(usize) -> bool,
    /// Whether the kernels from the first place, in rounds of the given length, may be a loop.
    pub is_round: &'q dyn Fn(usize, usize) -> bool,
}

impl KernelIndex {
    /// The kernels that start inside `window`, of those that `is_meant`.
    pub fn new(view: &View, window: Span, is_meant: impl Fn(usize) -> bool) -> KernelIndex {
        let device = &view.trace.device;
        let is_one = |&at: &usize| {
            device.category[at] == Category::Kernel
                && (window.start..window.end).contains(&device.start[at])
                && is_meant(at)
        };
        let kernels: Vec<usize> = device.busy().filter(is_one).collect();
        let signs = kernels.iter().map(|&at| (device.name[at], device.grid[at])).collect();
        KernelIndex { kernels, signs }
    }

    pub fn of(&self, found: Loop) -> &[usize] {
        &self.kernels[found.from..found.from + found.count]
    }

    /// All loops, one after another; each with the shortest round that repeats often enough.
    pub fn loops(&self, query: &LoopQuery) -> Vec<Loop> {
        let (mut found, mut from) = (Vec::new(), 0);
        while from < self.kernels.len() {
            match query.periods.clone().find_map(|period| self.loop_at(from, period, query)) {
                Some(one) => {
                    found.push(one);
                    from += one.count;
                }
                None => from += 1,
            }
        }
        found
    }

    fn loop_at(&self, from: usize, period: usize, query: &LoopQuery) -> Option<Loop> {
        let first = self.signs.get(from..from + query.compared_rounds * period)?;
        let comes_again = (period..first.len()).all(|at| first[at] == first[at - period]);
        if !comes_again || !(query.is_round)(from, period) || !(1..period).all(|at| (query.goes_on)(from + at)) {
            return None;
        }
        let most = self.signs.len() - from - period;
        let is_same = |at: &usize| self.signs[from + at] == self.signs[from + at + period];
        let same = (0..most).take_while(|at| is_same(at) && (query.goes_on)(from + at + period)).count();
        let count = (same / period + 1) * period;
        (count >= query.fewest_rounds * period).then_some(Loop { from, period, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::Fabricated;

    /// The loops among kernels with these names, of rounds of up to four kernels.
    fn loops(names: &str, fewest_rounds: usize) -> Vec<(usize, usize, usize)> {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 1_000_000);
        for (at, name) in names.split(' ').enumerate() {
            let at = 1_000 * at as i64;
            made.launch((at, at + 100), name, (at + 200, at + 900));
        }
        let trace = made.trace();
        let view = View::new(&trace);
        let index = KernelIndex::new(&view, view.steps.range(), |_| true);
        let query =
            LoopQuery { periods: 1..=4, fewest_rounds, compared_rounds: 2, goes_on: &|_| true, is_round: &|_, _| true };
        index.loops(&query).into_iter().map(|one| (one.from, one.period, one.count)).collect()
    }

    #[test]
    fn a_loop_is_its_shortest_round_as_often_as_it_repeats() {
        assert_eq!(loops("x a b a b a b y", 3), [(1, 2, 6)]);
        assert_eq!(loops("a a a a b", 3), [(0, 1, 4)]);
        assert_eq!(loops("a b a b a", 2), [(0, 2, 4)], "a round that is cut off does not count");
        assert_eq!(loops("a b a b c d c d", 2), [(0, 2, 4), (4, 2, 4)], "one after another");
    }

    #[test]
    fn fewer_rounds_or_longer_ones_are_no_loop() {
        assert_eq!(loops("a b a b", 3), []);
        assert_eq!(loops("a b c d e a b c d e a b c d e", 3), []);
        assert_eq!(loops("a", 1), []);
    }
}
