//! Training on several ranks: every rank has all weights and its own batch. Gradients are summed over the ranks (`dp`),
//! one per message or several (`bucket`), possibly while the backward pass goes on (`overlap`).

use super::zero1::{Sharding, ZERO1};
use crate::graph::{Category, Graph, GraphError, Node, Phase, Source, ValueId};
use crate::op::Op;
use crate::ops::collective::{AllGather, AllReduce, Arrive, ReduceScatter};
use crate::pass::Copy;
use crate::spread::{Spread, spread};
use std::collections::{BTreeMap, VecDeque};

/// How a step is divided among ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallel {
    pub ranks: usize,
    /// Several gradients per message instead of one.
    pub bucket: bool,
    /// A bucket is full once it reaches this size.
    pub bucket_bytes: usize,
    pub overlap: bool,
    /// Each rank keeps its shard of the optimizer state and updates its shard of the weights.
    pub zero1: bool,
}

impl Parallel {
    /// Names of its passes.
    pub fn names(&self) -> Vec<&'static str> {
        let on = [(!self.zero1, DATA_PARALLEL), (self.zero1, ZERO1), (self.bucket, BUCKET), (self.overlap, OVERLAP)];
        on.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect()
    }
}

/// The passes by name. `dp` makes several ranks train one model and cannot be left out.
pub const DATA_PARALLEL: &str = "dp";
pub const BUCKET: &str = "bucket";
pub const OVERLAP: &str = "overlap";

/// Inputs that differ between ranks.
pub const OWN_INPUTS: [&str; 2] = ["input_ids", "targets"];

/// Default bucket size in bytes.
pub const BUCKET_BYTES: usize = 25 << 20;

/// Exchanges in flight at a time: their inputs and outputs stay alive until they are done.
const UNDER_WAY: usize = 2;

/// The step of one of several ranks. Each rank's gradient of the loss is divided by the number of ranks, so that the
/// sum of the gradients is the mean; the loss is averaged over the ranks.
pub fn parallel(graph: &Graph, parallel: &Parallel) -> Result<Graph, GraphError> {
    let loss = graph.output_named("loss");
    let loss_maker = loss.and_then(|loss| graph.maker(loss)).map(|(id, _)| id.0);
    let (made, kept) = gradients(graph, loss);
    let full = if parallel.bucket { parallel.bucket_bytes } else { 0 };
    let buckets = buckets(graph, &made, full);
    let updates = if parallel.zero1 { Sharding::of(graph, parallel.ranks)? } else { Sharding::default() };
    let mut copy = Copy::with_types(graph, |value| updates.type_of(value));
    let shards = updates.declare(graph, &mut copy);
    let mut sums = Sums { parallel, shared: BTreeMap::new(), kept: BTreeMap::new(), under_way: VecDeque::new() };
    let mut in_optimizer = false;
    for (index, node) in graph.nodes().iter().enumerate() {
        if node.phase == Phase::Optimizer && !in_optimizer {
            in_optimizer = true;
            copy.enter_optimizer("optimizer");
            sums.arrive_until(&mut copy, 0)?;
            for bucket in split(graph, &kept, full) {
                sums.of_kept(&mut copy, &bucket)?;
            }
            sums.redirect(&mut copy);
        }
        match node.op {
            Op::Zero(_) if in_optimizer => sums.zero(&mut copy, node)?,
            _ if in_optimizer && parallel.zero1 => updates.node(&mut copy, node, &shards)?,
            _ => copy.node(node)?,
        }
        if let Some(loss) = loss.filter(|_| loss_maker == Some(index)) {
            let op = AllReduce { ranks: parallel.ranks, mean: true, kept: 0, later: false };
            let mean = copy.add(op.into(), &[loss])?[0];
            sums.shared.insert(loss, mean);
        }
        for bucket in buckets.iter().filter(|bucket| bucket.full_after == index) {
            sums.of_made(&mut copy, node, &bucket.gradients)?;
        }
    }
    sums.redirect(&mut copy);
    for parameters in split(graph, &updates.parameters(), full) {
        copy.enter_optimizer("optimizer");
        let whole = parameters.iter().map(|&parameter| copy.moved(parameter));
        let inputs: Vec<ValueId> = whole.chain(parameters.iter().map(|parameter| shards[parameter])).collect();
        copy.add_new(AllGather { ranks: parallel.ranks, tensors: parameters.len(), bf16_copies: 0 }.into(), &inputs)?;
    }
    let made = copy.finish()?;
    let of = spread(&made, &OWN_INPUTS, DATA_PARALLEL)?;
    match made.outputs().iter().find(|(name, value)| is_told(name) && of[value.0] != Spread::Replicated) {
        Some((name, _)) => {
            Err(GraphError::Invalid { after: DATA_PARALLEL.into(), what: format!("{name} is one rank's own") })
        }
        None => Ok(made),
    }
}

/// Outputs that decide how a run continues.
fn is_told(name: &str) -> bool {
    matches!(name, "loss" | "gradient_norm")
}

/// Gradients while they are being summed over the ranks.
struct Sums<'a> {
    parallel: &'a Parallel,
    /// The value that replaces one of the old graph once it is reduced over all ranks.
    shared: BTreeMap<ValueId, ValueId>,
    /// Sums over micro-batches from which a shard was reduced.
    kept: BTreeMap<ValueId, ValueId>,
    /// The inputs of each exchange, then its outputs.
    under_way: VecDeque<Vec<ValueId>>,
}

impl Sums<'_> {
    /// Reduces gradients produced by nodes: to their sums, or to this rank's shards of them.
    fn of_made(&mut self, copy: &mut Copy, maker: &Node, gradients: &[ValueId]) -> Result<(), GraphError> {
        let &Parallel { ranks, overlap, zero1, .. } = self.parallel;
        self.arrive_until(copy, UNDER_WAY - 1)?;
        copy.enter(maker);
        let op: Op = match zero1 {
            true => ReduceScatter { ranks, later: overlap }.into(),
            false => AllReduce { ranks, mean: false, kept: 0, later: overlap }.into(),
        };
        let read: Vec<ValueId> = gradients.iter().map(|&gradient| copy.moved(gradient)).collect();
        let made = copy.add_new(op, &read)?;
        self.shared.extend(gradients.iter().copied().zip(made.iter().copied()));
        if overlap {
            self.under_way.push_back([read, made].concat());
        }
        Ok(())
    }

    /// Reduces sums over micro-batches: in place, or to this rank's shards of them.
    fn of_kept(&mut self, copy: &mut Copy, sums: &[ValueId]) -> Result<(), GraphError> {
        let &Parallel { ranks, zero1, .. } = self.parallel;
        if !zero1 {
            copy.add(AllReduce { ranks, mean: false, kept: sums.len(), later: false }.into(), sums)?;
            return Ok(());
        }
        self.kept.extend(sums.iter().map(|&sum| (sum, copy.moved(sum))));
        let made = copy.add(ReduceScatter { ranks, later: false }.into(), sums)?;
        self.shared.extend(sums.iter().copied().zip(made));
        Ok(())
    }

    /// Resets a sum over micro-batches, not the shard reduced from it.
    fn zero(&self, copy: &mut Copy, node: &Node) -> Result<(), GraphError> {
        copy.enter(node);
        let own = |sum: &ValueId| self.kept.get(sum).copied().unwrap_or_else(|| copy.moved(*sum));
        let sums: Vec<ValueId> = node.inputs.iter().map(own).collect();
        copy.add_new(node.op, &sums).map(|_| ())
    }

    /// Waits for the oldest exchanges until this many are left.
    fn arrive_until(&mut self, copy: &mut Copy, left: usize) -> Result<(), GraphError> {
        while self.under_way.len() > left {
            let Some(first) = self.under_way.pop_front() else { break };
            copy.add_new(Arrive {}.into(), &first)?;
        }
        Ok(())
    }

    /// Later readers get the values that are reduced over all ranks.
    fn redirect(&self, copy: &mut Copy) {
        self.shared.iter().for_each(|(&old, &new)| copy.redirect(old, new));
    }
}

/// Rank-local values that the optimizer reads: gradients in the order in which they are produced, and kept sums.
fn gradients(graph: &Graph, loss: Option<ValueId>) -> (Vec<ValueId>, Vec<ValueId>) {
    let (mut made, mut kept) = (vec![], vec![]);
    for node in graph.nodes().iter().filter(|node| node.phase == Phase::Optimizer && !matches!(node.op, Op::Zero(_))) {
        for &input in &node.inputs {
            match graph.get(input).source {
                Source::State(Category::Gradients) => kept.push(input),
                Source::Node(maker) if graph.node(maker).phase != Phase::Optimizer && Some(input) != loss => {
                    made.push(input)
                }
                _ => {}
            }
        }
    }
    for list in [&mut made, &mut kept] {
        list.sort_unstable();
        list.dedup();
    }
    made.sort_by_key(|&value| graph.maker(value).map(|(id, _)| id));
    (made, kept)
}

struct Bucket {
    gradients: Vec<ValueId>,
    /// The node that produces the last of them.
    full_after: usize,
}

fn buckets(graph: &Graph, made: &[ValueId], full: usize) -> Vec<Bucket> {
    let maker = |value: &ValueId| graph.maker(*value).map_or(0, |(id, _)| id.0);
    let bucket =
        |gradients: Vec<ValueId>| Bucket { full_after: gradients.iter().map(maker).max().unwrap_or(0), gradients };
    split(graph, made, full).into_iter().map(bucket).collect()
}

/// Splits the values, in order, into buckets of one dtype that close once they reach `full` bytes.
fn split(graph: &Graph, values: &[ValueId], full: usize) -> Vec<Vec<ValueId>> {
    let mut all: Vec<Vec<ValueId>> = vec![];
    let mut bytes = 0;
    for &value in values {
        let fits = |last: &Vec<ValueId>| bytes < full && graph.ty(last[0]).dtype == graph.ty(value).dtype;
        match all.last_mut().filter(|last| fits(last)) {
            Some(last) => last.push(value),
            None => {
                bytes = 0;
                all.push(vec![value]);
            }
        }
        bytes += graph.ty(value).bytes();
    }
    all
}
