//! Calls, parts and memory of recorded steps as trace events.

use super::modules::{Owner, owners};
use super::{Profiled, collectives};
use crate::recording::{Part, PartSpan};
use headroom_engine::recorder::CallSpan;
use headroom_graph::{DType, Graph, NodeId, Op, Phase, ValueId};
use headroom_trace::write::{HostPlace, TraceWriter, WrittenMemory, WrittenOperator};
use std::io;
use std::time::Duration;

/// The names by which trace readers recognize PyTorch's data loader and optimizer.
pub fn annotation(part: &PartSpan, graph: &Graph) -> String {
    match part.part {
        Part::DataWait => "enumerate(DataLoader)#headroom.__next__",
        Part::Inputs => "inputs",
        Part::Forward => "forward",
        Part::LossRead => "loss",
        Part::Backward => "backward",
        Part::Optimizer => return format!("Optimizer.step#{}.step", optimizer_of(graph)),
    }
    .to_string()
}

/// PyTorch's class name for the optimizer of this graph.
fn optimizer_of(graph: &Graph) -> &'static str {
    let has = |wanted: fn(&Op) -> bool| graph.nodes().iter().any(|node| wanted(&node.op));
    match () {
        () if has(|op| matches!(op, Op::MuonUpdate(_))) => "Muon",
        () if has(|op| matches!(op, Op::Sgd(_))) => "SGD",
        () => "AdamW",
    }
}

pub struct Events<'a> {
    profiled: &'a Profiled<'a>,
    pub process: u32,
    /// The device that the memory belongs to; `None` for the host.
    device: Option<u32>,
    id: u32,
    shapes: Vec<(Vec<Vec<u64>>, Vec<&'static str>)>,
    /// By call: its name, if it differs from its op's.
    names: Vec<Option<String>>,
    owners: Vec<Owner>,
    /// By call, in the order of the trace's categories.
    live_by_category: Vec<[u64; 5]>,
    /// Values that become live with a call, and values freed after it.
    born: Vec<Vec<ValueId>>,
    gone: Vec<Vec<ValueId>>,
    /// By value: some stay live between micro-batches and are not allocated again.
    live: Vec<bool>,
    live_bytes: u64,
}

impl<'a> Events<'a> {
    pub fn new(profiled: &'a Profiled<'a>, process: u32, device: Option<u32>) -> Events<'a> {
        let (graph, plan) = (profiled.graph(), profiled.plan());
        let on_host = |call: usize| {
            let node = graph.node(NodeId(call));
            device.is_none().then(|| collectives::on_host(graph, node)).flatten()
        };
        let describe = |call: usize| {
            if let Some((_, sizes)) = on_host(call) {
                return (vec![sizes], vec![torch_name(DType::F32)]);
            }
            let types = graph.types(&graph.node(NodeId(call)).inputs);
            let sizes = types.iter().map(|ty| ty.sizes().iter().map(|size| *size as u64).collect()).collect();
            (sizes, types.iter().map(|ty| torch_name(ty.dtype)).collect())
        };
        let mut born = vec![vec![]; plan.calls.len()];
        let mut gone = vec![vec![]; plan.calls.len()];
        for id in graph.value_ids() {
            let Some(buffer) = plan.buffer(id).filter(|buffer| !buffer.kept && !buffer.alive.is_empty()) else {
                continue;
            };
            born[buffer.alive.start].push(id);
            gone[buffer.alive.end - 1].push(id);
        }
        Events {
            profiled,
            process,
            device,
            id: 0,
            shapes: (0..plan.calls.len()).map(describe).collect(),
            names: (0..plan.calls.len()).map(|call| on_host(call).map(|(name, _)| name)).collect(),
            owners: owners(graph),
            live_by_category: plan.usage().iter().map(|usage| usage.0.map(|bytes| bytes as u64)).collect(),
            born,
            gone,
            live: vec![false; graph.values().len()],
            live_bytes: kept_bytes(profiled),
        }
    }

    pub fn next_id(&mut self) -> u32 {
        self.id += 1;
        self.id
    }

    pub fn place(&self, start: Duration, end: Duration) -> HostPlace {
        HostPlace {
            process: self.process,
            thread: self.process,
            start_nanos: nanos(start),
            duration_nanos: nanos(end).saturating_sub(nanos(start)),
        }
    }

    pub fn call(&mut self, writer: &mut TraceWriter, span: &CallSpan) -> io::Result<()> {
        let place = self.place(span.start, span.end);
        self.call_at(writer, span, place).map(|_| ())
    }

    /// Writes a call of the plan at a place on the host and returns its id.
    pub fn call_at(&mut self, writer: &mut TraceWriter, span: &CallSpan, place: HostPlace) -> io::Result<u32> {
        let index = span.call as usize;
        self.memory(writer, index, Change::Born, span.start)?;
        let (call, node) = (&self.profiled.plan().calls[index], self.profiled.graph().node(NodeId(index)));
        let external_id = self.next_id();
        let (input_dims, input_types) = &self.shapes[index];
        writer.operator(&WrittenOperator {
            name: self.names[index].as_deref().unwrap_or(node.op.name()),
            place,
            external_id,
            // Forward calls are identified by their place in the plan.
            sequence: (call.phase == Phase::Forward).then_some(span.call),
            input_dims,
            input_types,
            flops: call.flops,
            bytes: call.bytes,
            is_product: call.is_product,
            phase: trace_phase(call.phase),
            module: &self.owners[index].module,
            shares: &self.owners[index].shares,
            live: self.live_by_category[index],
        })?;
        self.memory(writer, index, Change::Gone, span.end)?;
        Ok(external_id)
    }

    fn memory(&mut self, writer: &mut TraceWriter, call: usize, change: Change, at: Duration) -> io::Result<()> {
        let plan = self.profiled.plan();
        let values = match change {
            Change::Born => &self.born[call],
            Change::Gone => &self.gone[call],
        };
        for &value in values {
            let Some(buffer) = plan.buffer(value) else { continue };
            let becomes = change == Change::Born;
            if std::mem::replace(&mut self.live[value.0], becomes) == becomes {
                continue;
            }
            let bytes = if becomes { buffer.bytes as i64 } else { -(buffer.bytes as i64) };
            self.live_bytes = self.live_bytes.saturating_add_signed(bytes);
            writer.memory(&WrittenMemory {
                process: self.process,
                thread: self.process,
                time_nanos: nanos(at),
                // Offsets from an arbitrary base: the arena's real address is of no use to a reader.
                address: ARENA_START + buffer.offset as u64,
                bytes,
                total_allocated: self.live_bytes,
                total_reserved: plan.arena_bytes as u64,
                device: self.device,
            })?;
        }
        Ok(())
    }
}

const ARENA_START: u64 = 1 << 32;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Born,
    Gone,
}

/// Bytes that are always live: weights, moments, tables.
fn kept_bytes(profiled: &Profiled) -> u64 {
    profiled.plan().buffers.iter().flatten().filter(|buffer| buffer.kept).map(|buffer| buffer.bytes as u64).sum()
}

fn trace_phase(phase: Phase) -> headroom_trace::Phase {
    match phase {
        Phase::Forward => headroom_trace::Phase::Forward,
        Phase::Backward => headroom_trace::Phase::Backward,
        Phase::Optimizer => headroom_trace::Phase::Optimizer,
    }
}

fn torch_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::Bf16 => "c10::BFloat16",
        DType::E4m3 => "c10::Float8_e4m3fn",
        DType::E5m2 => "c10::Float8_e5m2",
        DType::I32 => "int",
    }
}

pub fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}
