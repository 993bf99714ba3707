//! The plan: the order of calls, every buffer's lifetime, category and place in one arena, and the cost of each call.
//!
//! Plain data, computed before anything runs: the memory of a step is known to the byte.

pub mod arena;
mod together;

use crate::graph::{Category, Graph, NodeId, Phase, Source, ValueId};
pub use together::Layout;

use crate::passes::zero1::weight_of_shard;
use arena::{Interval, place};
use std::ops::Range;

/// Buffers start at multiples of this many bytes: a cache line, and the alignment of the widest vector loads.
pub const ALIGNMENT: usize = 64;

#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub node: NodeId,
    pub phase: Phase,
    pub flops: u64,
    pub bytes: u64,
    pub is_product: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// Bytes from the start of the arena.
    pub offset: usize,
    pub bytes: usize,
    pub category: Category,
    /// The calls during which it must hold its contents; the whole step for kept buffers.
    pub alive: Range<usize>,
    pub kept: bool,
    /// Row stride in bytes; larger than a row where values lie side by side.
    pub pitch: usize,
}

/// Live bytes in each category, in the order of [`Category::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage(pub [usize; 5]);

impl Usage {
    pub fn total(&self) -> usize {
        self.0.iter().sum()
    }

    pub fn get(&self, category: Category) -> usize {
        self.0[category as usize]
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub calls: Vec<Call>,
    /// Indexed by value; `None` for a value that nothing reads or produces.
    pub buffers: Vec<Option<Buffer>>,
    /// Bytes at the start of the arena that are kept between steps.
    pub kept_bytes: usize,
    /// The whole arena.
    pub arena_bytes: usize,
    /// The call during which the most bytes are alive, and the bytes by category.
    pub peak_call: usize,
    pub peak: Usage,
}

impl Plan {
    pub fn new(graph: &Graph) -> Plan {
        Plan::laid_out(graph, Layout::Apart, 0)
    }

    /// Lays out a plan whose own buffers start no earlier than `kept_at_least`. Evaluation shares an arena with
    /// training this way; training keeps more.
    pub fn laid_out(graph: &Graph, layout: Layout, kept_at_least: usize) -> Plan {
        let calls: Vec<Call> = graph
            .nodes()
            .iter()
            .enumerate()
            .map(|(index, node)| {
                let (inputs, outputs) = (graph.types(&node.inputs), graph.types(&node.outputs));
                Call {
                    node: NodeId(index),
                    phase: node.phase,
                    flops: node.op.flops(&inputs, &outputs),
                    bytes: node.op.bytes(&inputs, &outputs),
                    is_product: node.op.is_product(),
                }
            })
            .collect();
        let alive = together::lengthened(graph, layout, lifetimes(graph));
        let mut buffers: Vec<Option<Buffer>> = vec![None; graph.values().len()];
        let mut kept_bytes = 0;
        for id in kept_order(graph) {
            let bytes = graph.ty(id).bytes();
            let category = category(graph, id, &alive);
            buffers[id.0] = Some(Buffer {
                offset: kept_bytes,
                bytes,
                category,
                alive: 0..calls.len(),
                kept: true,
                pitch: row_bytes(graph, id),
            });
            kept_bytes = align(kept_bytes + bytes);
        }
        let base = kept_bytes.max(align(kept_at_least));

        let moving: Vec<ValueId> =
            graph.value_ids().filter(|id| !graph.get(*id).source.is_kept() && !alive[id.0].is_empty()).collect();
        let blocks = together::blocks(graph, layout, &moving);
        let intervals: Vec<Interval> = blocks
            .iter()
            .map(|block| Interval {
                bytes: align(block.bytes),
                alive: {
                    let lives = || block.members.iter().map(|member| &alive[member.value.0]);
                    let start = lives().map(|life| life.start).min().unwrap_or(0);
                    start..lives().map(|life| life.end).max().unwrap_or(0)
                },
            })
            .collect();
        let placed = place(&intervals);
        for (block, offset) in blocks.iter().zip(&placed.offsets) {
            for member in &block.members {
                buffers[member.value.0] = Some(Buffer {
                    offset: base + offset + member.offset,
                    bytes: graph.ty(member.value).bytes(),
                    category: category(graph, member.value, &alive),
                    alive: alive[member.value.0].clone(),
                    kept: false,
                    pitch: member.pitch,
                });
            }
        }
        let mut plan =
            Plan { calls, buffers, kept_bytes, arena_bytes: base + placed.bytes, peak_call: 0, peak: Usage::default() };
        let usage = plan.usage();
        let peak_call = (0..usage.len()).max_by_key(|&call| (usage[call].total(), usage.len() - call)).unwrap_or(0);
        plan.peak_call = peak_call;
        plan.peak = usage.get(peak_call).copied().unwrap_or_default();
        plan
    }

    pub fn buffer(&self, value: ValueId) -> Option<&Buffer> {
        self.buffers[value.0].as_ref()
    }

    /// Bytes alive during each call, by category.
    pub fn usage(&self) -> Vec<Usage> {
        let mut change = vec![[0isize; 5]; self.calls.len() + 1];
        for buffer in self.buffers.iter().flatten() {
            change[buffer.alive.start][buffer.category as usize] += buffer.bytes as isize;
            change[buffer.alive.end][buffer.category as usize] -= buffer.bytes as isize;
        }
        let mut live = [0isize; 5];
        change[..self.calls.len()]
            .iter()
            .map(|step| {
                live.iter_mut().zip(step).for_each(|(total, delta)| *total += delta);
                Usage(live.map(|bytes| bytes as usize))
            })
            .collect()
    }

    /// Calls of one phase; a plan keeps the calls of a phase together.
    pub fn phase(&self, phase: Phase) -> Range<usize> {
        let start = self.calls.partition_point(|call| call.phase < phase);
        start..self.calls.partition_point(|call| call.phase <= phase)
    }

    pub fn flops(&self, phase: Phase) -> u64 {
        self.calls[self.phase(phase)].iter().map(|call| call.flops).sum()
    }
}

fn row_bytes(graph: &Graph, id: ValueId) -> usize {
    graph.ty(id).shape.row() * graph.ty(id).dtype.bytes()
}

fn align(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

/// Parameters first, then constants, then copies of parameters, then shards and other states. What a graph without an
/// optimizer keeps is a prefix of what one with an optimizer keeps.
fn kept_order(graph: &Graph) -> Vec<ValueId> {
    let rank = |id: &ValueId| match graph.get(*id).source {
        Source::Parameter => 0,
        Source::Constant => 1,
        Source::State(Category::Parameters) if weight_of_shard(&graph.get(*id).name).is_none() => 2,
        _ => 3,
    };
    let mut kept: Vec<ValueId> = graph.value_ids().filter(|id| graph.get(*id).source.is_kept()).collect();
    kept.sort_by_key(rank);
    kept
}

/// Values live from the call that produces them to the last that reads them, inputs from the start, outputs to the end.
fn lifetimes(graph: &Graph) -> Vec<Range<usize>> {
    let mut alive = vec![0..0; graph.values().len()];
    for (call, node) in graph.nodes().iter().enumerate() {
        for output in &node.outputs {
            alive[output.0] = call..call + 1;
        }
        for input in &node.inputs {
            alive[input.0].end = call + 1;
        }
    }
    for (_, value) in graph.outputs() {
        alive[value.0].end = graph.nodes().len();
    }
    alive
}

fn category(graph: &Graph, id: ValueId, alive: &[Range<usize>]) -> Category {
    let value = graph.get(id);
    match value.source {
        Source::Parameter => Category::Parameters,
        Source::State(category) => category,
        Source::Constant => Category::Temporaries,
        Source::Input => Category::Activations,
        Source::Node(maker) => {
            let last = alive[id.0].end.saturating_sub(1);
            let (made, read) = (graph.node(maker).phase, graph.nodes()[last.max(maker.0)].phase);
            match (made, read) {
                (Phase::Forward, Phase::Backward) => Category::Activations,
                (Phase::Backward, Phase::Optimizer) => Category::Gradients,
                _ => Category::Temporaries,
            }
        }
    }
}
