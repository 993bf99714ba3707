//! The choice among blocks that are nodes of a tree. Nothing is allocated: a block's sum is recomputed wherever it is
//! needed.

use headroom_graph::choice::{FULL, SAME_LAYER, SIBLING};
use std::cmp::Reverse;
use std::ops::Range;

/// Rows of `tree` are block, parent and level of each leaf.
#[derive(Clone, Copy)]
pub struct Blocks<'a> {
    pub tree: &'a [i32],
    pub norms: &'a [f32],
}

/// Stands for "in no block" or "without a parent".
const NONE: i32 = 0;

impl Blocks<'_> {
    fn block(&self, leaf: usize) -> i32 {
        self.tree[3 * leaf]
    }

    fn parent(&self, block: &Range<usize>) -> i32 {
        self.tree[3 * block.start + 1]
    }

    fn level(&self, block: &Range<usize>) -> i32 {
        self.tree[3 * block.start + 2]
    }

    /// The block's number, which seeds its random draw.
    pub fn number(&self, block: &Range<usize>) -> u32 {
        self.block(block.start) as u32
    }

    /// The block's squared norm as an integer to rank by; NaN ranks above any number.
    pub fn rank(&self, block: &Range<usize>) -> u64 {
        let sum: f64 = self.norms[block.clone()].iter().map(|&square| f64::from(square)).sum();
        sum.to_bits() & (u64::MAX >> 1)
    }

    /// Ranges of leaves: one for each block, and one for each gap between blocks.
    fn runs(self) -> impl Iterator<Item = Range<usize>> {
        let mut start = 0;
        std::iter::from_fn(move || {
            let first = start;
            if first == self.norms.len() {
                return None;
            }
            start = (first..self.norms.len())
                .find(|&leaf| self.block(leaf) != self.block(first))
                .unwrap_or(self.norms.len());
            Some(first..start)
        })
    }

    fn all(self) -> impl Iterator<Item = Range<usize>> {
        self.runs().filter(move |run| self.block(run.start) != NONE)
    }

    /// Marks the `count` blocks with the largest keys, ties going to the first, and everything outside the blocks.
    pub fn mark_largest(&self, shares: &mut [f32], count: usize, key: impl Fn(&Range<usize>) -> u64) {
        for run in self.runs() {
            let own = (key(&run), Reverse(run.start));
            let before = || self.all().filter(|other| (key(other), Reverse(other.start)) > own).count();
            let chosen = self.block(run.start) == NONE || before() < count;
            shares[run].fill(if chosen { FULL } else { 0.0 });
        }
    }

    /// Descends from the root to the child whose own norm is the largest. Everything outside the blocks takes the full
    /// step.
    pub fn mark_path(&self, shares: &mut [f32]) {
        let largest = |parent: i32, level: i32| {
            let children = self.all().filter(|child| self.parent(child) == parent && self.level(child) == level);
            children.max_by_key(|child| (self.rank(child), Reverse(child.start)))
        };
        let mut end: Option<Range<usize>> = None;
        for level in 0.. {
            let parent = end.as_ref().map_or(NONE, |end| self.block(end.start));
            let Some(child) = largest(parent, level) else { break };
            end = Some(child);
        }
        for run in self.runs() {
            let share = match &end {
                _ if self.block(run.start) == NONE => FULL,
                Some(end) if *end == run => FULL,
                Some(end) if self.parent(end) == self.parent(&run) => SIBLING,
                Some(end) if self.level(end) == self.level(&run) => SAME_LAYER,
                _ => 0.0,
            };
            shares[run].fill(share);
        }
    }
}
