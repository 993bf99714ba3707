//! Reference: the choice of what a step updates, by sorting and by sums over the whole tree.

use super::Tensor;
use headroom_graph::choice::leaf_draw;
use headroom_graph::ops::choose::{Choose, SHARED};
use headroom_graph::{Among, Rule};
use std::collections::BTreeMap;

pub fn run(op: &Choose, inputs: &mut [Tensor], outputs: &mut [Tensor]) {
    let (shared, squares) = inputs.split_at_mut(SHARED);
    let squares: Vec<f64> = squares.iter().map(|square| square.data[0]).collect();
    let [rates, at, tree, counts, log] = shared else { unreachable!("five shared inputs by the shape rule") };
    let leaves = squares.len();
    let draw = |unit: usize| f64::from(leaf_draw(op.seed, at.data[1] as u32, unit as u32));
    let shares = match (op.rule, op.among) {
        (Rule::All, _) => vec![1.0; leaves],
        (rule, Among::Blocks) => among_blocks(rule, &Block::all(&squares, &tree.data), leaves, draw),
        (Rule::TopK(count), _) => first_of(count, squares.clone()),
        (Rule::Random(count), _) => first_of(count, (0..leaves).map(draw).collect()),
        (Rule::Path, _) => path(&squares, &tree.data),
    };
    for (leaf, share) in shares.iter().enumerate().filter(|(_, share)| **share > 0.0) {
        counts.data[leaf] += 1.0;
        let t = counts.data[leaf];
        outputs[leaf].data = vec![rates.data[0] * share, 1.0 - op.beta1.powf(t), (1.0 - op.beta2.powf(t)).sqrt()];
    }
    let row = at.data[0] as usize * 2 * leaves;
    log.data[row..row + leaves].copy_from_slice(&shares);
    log.data[row + leaves..row + 2 * leaves].copy_from_slice(&squares);
}

/// One for the `count` largest keys, zero for the rest.
fn first_of(count: usize, keys: Vec<f64>) -> Vec<f64> {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by(|&a, &b| keys[b].total_cmp(&keys[a]).then(a.cmp(&b)));
    let mut shares = vec![0.0; keys.len()];
    order[..count].iter().for_each(|&leaf| shares[leaf] = 1.0);
    shares
}

fn path(squares: &[f64], tree: &[f64]) -> Vec<f64> {
    let rows: Vec<[i64; 3]> = tree.chunks_exact(3).map(|row| [row[0] as i64, row[1] as i64, row[2] as i64]).collect();
    let largest = |leaves: &[usize], group: &dyn Fn(usize) -> i64| -> i64 {
        let mut sums: BTreeMap<i64, f64> = BTreeMap::new();
        leaves.iter().for_each(|&leaf| *sums.entry(group(leaf)).or_default() += squares[leaf]);
        sums.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(group, _)| group)
    };
    let all: Vec<usize> = (0..squares.len()).collect();
    let branch = largest(&all, &|leaf| rows[leaf][0]);
    let in_branch: Vec<usize> = all.iter().copied().filter(|&leaf| rows[leaf][0] == branch).collect();
    let part = largest(&in_branch, &|leaf| rows[leaf][1]);
    let in_part: Vec<usize> = in_branch.iter().copied().filter(|&leaf| rows[leaf][1] == part).collect();
    let end = largest(&in_part, &|leaf| leaf as i64) as usize;
    let share = |leaf: usize| match rows[leaf] {
        _ if leaf == end => 1.0,
        [_, _, parent] if parent == rows[end][2] => 0.15,
        [own, ..] if own == branch && rows[end][2] != 0 => 0.05,
        _ => 0.0,
    };
    all.into_iter().map(share).collect()
}

/// Consecutive leaves that belong to one block.
struct Block {
    leaves: Vec<usize>,
    number: i64,
    parent: i64,
    level: i64,
    square: f64,
}

impl Block {
    fn all(squares: &[f64], tree: &[f64]) -> Vec<Block> {
        let mut all: Vec<Block> = vec![];
        for (leaf, (row, &square)) in tree.chunks_exact(3).zip(squares).enumerate() {
            let [number, parent, level] = [row[0] as i64, row[1] as i64, row[2] as i64];
            match all.last_mut() {
                Some(last) if last.number == number => {
                    last.leaves.push(leaf);
                    last.square += square;
                }
                _ => all.push(Block { leaves: vec![leaf], number, parent, level, square }),
            }
        }
        all
    }
}

/// Shares of all leaves; leaves outside any block take the full step.
fn among_blocks(rule: Rule, runs: &[Block], leaves: usize, draw: impl Fn(usize) -> f64) -> Vec<f64> {
    let (shared, blocks): (Vec<&Block>, Vec<&Block>) = runs.iter().partition(|run| run.number == 0);
    let own: Vec<f64> = match rule {
        Rule::TopK(count) => first_of(count.min(blocks.len()), blocks.iter().map(|block| block.square).collect()),
        Rule::Random(count) => {
            first_of(count.min(blocks.len()), blocks.iter().map(|block| draw(block.number as usize)).collect())
        }
        _ => path_among(&blocks),
    };
    let mut shares = vec![0.0; leaves];
    for (block, share) in blocks.iter().zip(own).chain(shared.iter().map(|run| (run, 1.0))) {
        block.leaves.iter().for_each(|&leaf| shares[leaf] = share);
    }
    shares
}

fn path_among(blocks: &[&Block]) -> Vec<f64> {
    let (mut end, mut parent, mut level) = (None, 0, 0);
    loop {
        let mut children: Vec<usize> =
            (0..blocks.len()).filter(|&at| blocks[at].parent == parent && blocks[at].level == level).collect();
        children.sort_by(|&a, &b| blocks[b].square.total_cmp(&blocks[a].square).then(a.cmp(&b)));
        let Some(&child) = children.first() else { break };
        (end, parent, level) = (Some(child), blocks[child].number, level + 1);
    }
    let share = |at: usize| match end {
        Some(end) if end == at => 1.0,
        Some(end) if blocks[end].parent == blocks[at].parent => 0.15,
        Some(end) if blocks[end].level == blocks[at].level => 0.05,
        _ => 0.0,
    };
    (0..blocks.len()).map(share).collect()
}
