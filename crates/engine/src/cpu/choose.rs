//! Chooses what a step updates. A few hundred numbers at most, on one thread: a threshold found by bisection, or
//! descents in the tree.

mod blocks;

use super::frame::Frame;
use blocks::Blocks;
use headroom_graph::choice::{FULL, SAME_LAYER, SIBLING, bias_corrections, leaf_draw, rank_of_norm};
use headroom_graph::ops::choose::Choose;
pub use headroom_graph::ops::choose::SHARED;
use headroom_graph::{Among, Rule};

/// The inputs that both forms of the choice share.
pub struct Operands<'a> {
    rates: &'a [f32],
    at: &'a [i32],
    tree: Tree<'a>,
    counts: &'a mut [f32],
    log: &'a mut [f32],
}

impl<'a> Operands<'a> {
    pub fn of(at: &Frame<'a>) -> Operands<'a> {
        let tree = Tree(at.ids(2));
        Operands { rates: at.input(0), at: at.ids(1), tree, counts: at.updated(3), log: at.updated(4) }
    }
}

/// `[leaves, 3]`: branch, part and parent.
#[derive(Clone, Copy)]
struct Tree<'a>(&'a [i32]);

const ROOT: i32 = 0;

impl Tree<'_> {
    fn branch(self, leaf: usize) -> i32 {
        self.0[3 * leaf]
    }

    fn part(self, leaf: usize) -> i32 {
        self.0[3 * leaf + 1]
    }

    fn parent(self, leaf: usize) -> i32 {
        self.0[3 * leaf + 2]
    }
}

/// Writes the log's row, increments the step counts of chosen leaves, and gives each leaf its rates.
pub fn choose(
    op: &Choose,
    operands: Operands,
    squares: impl Iterator<Item = f32>,
    mut give: impl FnMut(usize, [f32; 3]),
) {
    let Operands { rates, at, tree, counts, log } = operands;
    let leaves = counts.len();
    let row = at[0].rem_euclid((log.len() / (2 * leaves)) as i32) as usize;
    let (shares, norms) = log[row * 2 * leaves..][..2 * leaves].split_at_mut(leaves);
    norms.iter_mut().zip(squares).for_each(|(kept, square)| *kept = square);
    let norms = &*norms;
    shares.fill(0.0);
    match (op.rule, op.among) {
        (Rule::All, _) => shares.fill(FULL),
        (rule, Among::Blocks) => {
            let blocks = Blocks { tree: tree.0, norms };
            match rule {
                Rule::Random(count) => {
                    blocks.mark_largest(shares, count, |block| {
                        leaf_draw(op.seed, at[1] as u32, blocks.number(block)).into()
                    });
                }
                Rule::TopK(count) => blocks.mark_largest(shares, count, |block| blocks.rank(block)),
                _ => blocks.mark_path(shares),
            }
        }
        (Rule::TopK(count), _) => mark_largest(shares, count, |leaf| rank_of_norm(norms[leaf])),
        (Rule::Random(count), _) => mark_largest(shares, count, |leaf| leaf_draw(op.seed, at[1] as u32, leaf as u32)),
        (Rule::Path, _) => mark_path(shares, norms, tree),
    }
    for (leaf, (&share, count)) in shares.iter().zip(counts).enumerate() {
        if share == 0.0 {
            give(leaf, [0.0; 3]);
            continue;
        }
        *count += 1.0;
        let [first, second] = bias_corrections(op.beta1, op.beta2, *count as u64);
        give(leaf, [rates[0] * share, first, second]);
    }
}

/// Marks the `count` leaves with the largest keys; ties go to the first.
fn mark_largest(shares: &mut [f32], count: usize, key: impl Fn(usize) -> u32) {
    let leaves = shares.len();
    let at_least = |least: u32| (0..leaves).filter(|leaf| key(*leaf) >= least).count();
    // The largest threshold that enough keys reach.
    let (mut reached, mut beyond) = (0u32, u64::from(u32::MAX) + 1);
    while u64::from(reached) + 1 < beyond {
        let middle = u64::midpoint(u64::from(reached), beyond) as u32;
        match at_least(middle) >= count {
            true => reached = middle,
            false => beyond = u64::from(middle),
        }
    }
    let mut equal_left = count - (0..leaves).filter(|leaf| key(*leaf) > reached).count();
    for (leaf, share) in shares.iter_mut().enumerate() {
        if key(leaf) > reached {
            *share = FULL;
        } else if key(leaf) == reached && equal_left > 0 {
            *share = FULL;
            equal_left -= 1;
        }
    }
}

/// Descends from the root to the child with the largest norm: branch, part, leaf.
fn mark_path(shares: &mut [f32], norms: &[f32], tree: Tree) {
    let branch = largest_group(norms, |_| true, |leaf| tree.branch(leaf));
    let part = largest_group(norms, |leaf| tree.branch(leaf) == branch, |leaf| tree.part(leaf));
    let inside = |leaf: usize| tree.branch(leaf) == branch && tree.part(leaf) == part;
    let end = largest_group(norms, inside, |leaf| leaf as i32) as usize;
    let parent = tree.parent(end);
    for (leaf, share) in shares.iter_mut().enumerate() {
        *share = if leaf == end {
            FULL
        } else if tree.parent(leaf) == parent {
            SIBLING
        } else if parent != ROOT && tree.branch(leaf) == branch {
            SAME_LAYER
        } else {
            0.0
        };
    }
}

/// The group of members with the largest sum; ties go to the first.
fn largest_group(norms: &[f32], member: impl Fn(usize) -> bool, group: impl Fn(usize) -> i32) -> i32 {
    let mut best: Option<(u64, i32)> = None;
    for leaf in (0..norms.len()).filter(|leaf| member(*leaf)) {
        let own = group(leaf);
        if (0..leaf).rev().any(|before| group(before) == own && member(before)) {
            continue;
        }
        let others = (leaf..norms.len()).filter(|other| group(*other) == own && member(*other));
        let sum: f64 = others.map(|other| f64::from(norms[other])).sum();
        // NaN ranks above any number.
        let rank = sum.to_bits() & (u64::MAX >> 1);
        if best.is_none_or(|(largest, _)| rank > largest) {
            best = Some((rank, own));
        }
    }
    best.map_or(0, |(_, group)| group)
}
