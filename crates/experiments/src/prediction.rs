//! Predicts the gain of a list of passes before it runs, from its plan and from measured call times.
//!
//! A call that ran before is predicted to take as long again. A fused call is split into the calls that it replaces,
//! each at the rate measured for its kind. How much better the fused kernel is than its parts is learned from a probe:
//! a model of one layer and a small batch that runs both ways.

mod pieces;

use headroom_engine::Program;
use headroom_graph::ops::matmul::MatMul;
use headroom_graph::plan::Call;
use headroom_graph::{Graph, NodeId, Op, TensorType};
use pieces::{Piece, pieces};
use std::collections::BTreeMap;

/// Measured call times, and rates for calls that were not measured.
#[derive(Clone, Debug, Default)]
pub struct Calibration {
    /// Seconds by call signature (op, attributes and shapes), the best of all measurements.
    known: BTreeMap<String, f64>,
    /// Work of every operator; each kind of call counts once.
    rates: BTreeMap<&'static str, Work>,
    /// (FLOPs, FLOPs per second) of matrix products.
    products: Vec<(f64, f64)>,
    /// Fused time divided by the sum of its parts, by kind of fused call.
    factors: BTreeMap<String, f64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Work {
    flops: f64,
    bytes: f64,
    seconds: f64,
}

/// One prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    pub seconds: f64,
    /// Seconds by op.
    pub by_op: BTreeMap<&'static str, f64>,
}

impl Calibration {
    /// Learns from a program and the seconds of each of its calls.
    pub fn learn(&mut self, program: &Program, seconds: &[f64]) {
        let measured = program.plan.calls.iter().zip(seconds).filter(|(_, seconds)| seconds.is_finite());
        let mut kinds: BTreeMap<String, (&Call, &'static str)> = BTreeMap::new();
        for (call, &seconds) in measured {
            let signature = signature(&program.graph, call.node);
            let known = self.known.entry(signature.clone()).or_insert(seconds);
            *known = known.min(seconds);
            kinds.insert(signature, (call, program.graph.node(call.node).op.name()));
        }
        let mut rates: BTreeMap<&'static str, Work> = BTreeMap::new();
        for (signature, (call, name)) in kinds {
            let (flops, bytes, seconds) = (call.flops as f64, call.bytes as f64, self.known[&signature]);
            let work = rates.entry(name).or_default();
            *work = Work { flops: work.flops + flops, bytes: work.bytes + bytes, seconds: work.seconds + seconds };
            if call.is_product {
                self.products.push((flops, flops / seconds.max(f64::MIN_POSITIVE)));
            }
        }
        self.rates.extend(rates);
    }

    /// Learns how fused kernels compare with their parts: `apart` holds the measured separate calls, `fused` is the
    /// same model with passes, and `seconds` are its call times.
    pub fn learn_factors(&mut self, apart: &Calibration, fused: &Program, seconds: &[f64]) {
        let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        for (call, &seconds) in fused.plan.calls.iter().zip(seconds).filter(|(_, seconds)| seconds.is_finite()) {
            let Some(in_pieces) = apart.piecewise(&fused.graph, call).filter(|in_pieces| *in_pieces > 0.0) else {
                continue;
            };
            for key in keys(&fused.graph, call.node) {
                let sum = sums.entry(key).or_default();
                *sum = (sum.0 + seconds, sum.1 + in_pieces);
            }
        }
        self.factors.extend(sums.into_iter().map(|(key, (measured, in_pieces))| (key, measured / in_pieces)));
    }

    pub fn predict(&self, program: &Program) -> Predicted {
        let mut by_op: BTreeMap<&'static str, f64> = BTreeMap::new();
        for call in &program.plan.calls {
            let name = program.graph.node(call.node).op.name();
            *by_op.entry(name).or_default() += self.call_seconds(&program.graph, call);
        }
        Predicted { seconds: by_op.values().sum(), by_op }
    }

    fn call_seconds(&self, graph: &Graph, call: &Call) -> f64 {
        if let Some(&seconds) = self.known.get(&signature(graph, call.node)) {
            return seconds;
        }
        if let Some(in_pieces) = self.piecewise(graph, call) {
            let factor = keys(graph, call.node).iter().find_map(|key| self.factors.get(key)).copied();
            return in_pieces * factor.unwrap_or(1.0);
        }
        match call.is_product {
            true => call.flops as f64 / self.product_rate(call.flops as f64),
            false => call.bytes as f64 / self.bytes_rate(&[]),
        }
    }

    /// Summed time of the parts of a fused call; `None` if it is not made of parts.
    fn piecewise(&self, graph: &Graph, call: &Call) -> Option<f64> {
        let node = graph.node(call.node);
        let parts = pieces(&node.op, &graph.types(&node.inputs), call.bytes);
        (!parts.is_empty()).then(|| parts.iter().map(|piece| self.piece_seconds(piece)).sum())
    }

    fn piece_seconds(&self, piece: &Piece) -> f64 {
        match piece {
            Piece::Product { op, left, right } => self.product_seconds(op, left, right),
            Piece::Flops { like, flops } => {
                let (known, seconds) = self.sum(like, |work| work.flops);
                let rate = if seconds > 0.0 { known / seconds } else { self.product_rate(*flops) };
                flops / rate
            }
            Piece::Bytes { like, bytes } => bytes / self.bytes_rate(like),
        }
    }

    /// The time of the same product if it was measured, otherwise at the rate of the nearest one.
    fn product_seconds(&self, op: &MatMul, left: &TensorType, right: &TensorType) -> f64 {
        let known = self.known.get(&written(&Op::from(*op), &[left.clone(), right.clone()]));
        known.copied().unwrap_or_else(|| {
            let flops = op.sizes(left, right).map_or(0.0, |(m, k, n)| 2.0 * m as f64 * k as f64 * n as f64);
            flops / self.product_rate(flops)
        })
    }

    /// The rate of the measured product nearest in size.
    fn product_rate(&self, flops: f64) -> f64 {
        let distance = |measured: f64| (measured / flops.max(1.0)).ln().abs();
        let nearest = self.products.iter().min_by(|left, right| distance(left.0).total_cmp(&distance(right.0)));
        nearest.map_or(1e11, |(_, rate)| *rate)
    }

    /// Bytes per second of these operators together, or of all operators if none of these ran.
    fn bytes_rate(&self, like: &[&str]) -> f64 {
        let (bytes, seconds) = self.sum(like, |work| work.bytes);
        if seconds > 0.0 {
            return bytes / seconds;
        }
        let all = self.rates.values().fold(Work::default(), |sum, work| Work {
            bytes: sum.bytes + work.bytes,
            seconds: sum.seconds + work.seconds,
            ..sum
        });
        if all.seconds > 0.0 { all.bytes / all.seconds } else { 1e10 }
    }

    fn sum(&self, like: &[&str], amount: fn(&Work) -> f64) -> (f64, f64) {
        let found = like.iter().filter_map(|name| self.rates.get(name));
        found.fold((0.0, 0.0), |(sum, seconds), work| (sum + amount(work), seconds + work.seconds))
    }
}

/// Keys of a fused call, most specific first: with its attributes and number of inputs, then by name alone.
fn keys(graph: &Graph, id: NodeId) -> [String; 2] {
    let node = graph.node(id);
    let name = node.op.name();
    [format!("{name} {:?} of {}", node.op.attributes(), node.inputs.len()), name.into()]
}

fn signature(graph: &Graph, id: NodeId) -> String {
    let node = graph.node(id);
    written(&node.op, &graph.types(&node.inputs))
}

fn written(op: &Op, inputs: &[TensorType]) -> String {
    let types: Vec<String> = inputs.iter().map(ToString::to_string).collect();
    format!("{} {:?} {}", op.name(), op.attributes(), types.join(" "))
}

#[cfg(test)]
mod tests;
