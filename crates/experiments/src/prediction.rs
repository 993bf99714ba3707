//! What a list of passes would bring, before it runs: from its plan, and from what calls were measured to take.
//!
//! A call that ran before is predicted to take as long again. A fused one is taken apart into the calls that it stands for,
//! each at the rate measured for its kind; how much better the fused kernel does than its parts is learned from a probe, a
//! model of one layer and a small batch that runs both ways.

mod pieces;

use headroom_engine::Program;
use headroom_graph::ops::matmul::MatMul;
use headroom_graph::plan::Call;
use headroom_graph::{Graph, NodeId, Op, TensorType};
use pieces::{Piece, pieces};
use std::collections::BTreeMap;

/// Times of calls that were measured, and rates for those that were not.
#[derive(Clone, Debug, Default)]
pub struct Calibration {
    /// Seconds by the call's signature (op, attributes and shapes), the best of all that were measured.
    known: BTreeMap<String, f64>,
    /// What every operator did, each kind of call once.
    rates: BTreeMap<&'static str, Work>,
    /// (FLOPs, FLOPs a second) of products.
    products: Vec<(f64, f64)>,
    /// Seconds of a fused call over those of its pieces, by what it is.
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
    /// From a program and the seconds that each of its calls took.
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

    /// How fused kernels compare with their pieces: `apart` has run with this calibration's calls, `fused` is the same model
    /// with passes, and the seconds that each of its calls took.
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

    /// Seconds of what a fused call is made of; none where it is made of nothing else.
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

    /// As long as the same product took alone, else at the rate of the nearest.
    fn product_seconds(&self, op: &MatMul, left: &TensorType, right: &TensorType) -> f64 {
        let known = self.known.get(&written(&Op::from(*op), &[left.clone(), right.clone()]));
        known.copied().unwrap_or_else(|| {
            let flops = op.sizes(left, right).map_or(0.0, |(m, k, n)| 2.0 * m as f64 * k as f64 * n as f64);
            flops / self.product_rate(flops)
        })
    }

    /// The rate of the measured product whose size is nearest.
    fn product_rate(&self, flops: f64) -> f64 {
        let distance = |measured: f64| (measured / flops.max(1.0)).ln().abs();
        let nearest = self.products.iter().min_by(|left, right| distance(left.0).total_cmp(&distance(right.0)));
        nearest.map_or(1e11, |(_, rate)| *rate)
    }

    /// Bytes a second of these operators together, of all where none of them ran.
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

/// What a fused call is, the particular first: with its attributes and the number of its inputs, then by name alone.
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
mod tests {
    use super::*;

    fn program(text: &str) -> Program {
        Program::new(text.parse().unwrap())
    }

    const SEPARATE: &str = "\
input x: f32[4, 8]
input up: f32[4, 8]
%2: f32[4, 8] = silu(x) @ forward act
%3: f32[4, 8] = mul(%2, up) @ forward act
output y = %3
";
    const FUSED: &str = "\
input x: f32[4, 8]
input up: f32[4, 8]
%2: f32[4, 8] = swiglu(x, up) @ forward act
output y = %2
";
    const TWO_PRODUCTS: &str = "\
input x: f32[4, 8]
input a: f32[6, 8]
input b: f32[2, 8]
%3: f32[4, 6] = matmul{form=nt}(x, a) @ forward one
%4: f32[4, 2] = matmul{form=nt}(x, b) @ forward two
output y = %3
output z = %4
";
    const ONE_PRODUCT: &str = "\
input x: f32[4, 8]
input a: f32[6, 8]
input b: f32[2, 8]
%3: f32[4, 6], %4: f32[4, 2] = linears(x, a, b) @ forward both
output y = %3
output z = %4
";

    fn learned(text: &str, seconds: &[f64]) -> Calibration {
        let mut calibration = Calibration::default();
        calibration.learn(&program(text), seconds);
        calibration
    }

    fn predicted(calibration: &Calibration, text: &str) -> f64 {
        calibration.predict(&program(text)).seconds
    }

    #[test]
    fn a_call_that_was_measured_is_predicted_to_take_as_long_again() {
        assert!((predicted(&learned(SEPARATE, &[3e-6, 5e-6]), SEPARATE) - 8e-6).abs() < 1e-12);
    }

    #[test]
    fn a_fused_call_is_predicted_from_the_rates_of_what_it_replaces() {
        // Both at 64 bytes a microsecond: 256 bytes in 4 µs, 384 bytes in 6 µs.
        let calibration = learned(SEPARATE, &[4e-6, 6e-6]);
        // Three tensors of 128 bytes at the same rate.
        assert!((predicted(&calibration, FUSED) - 6e-6).abs() < 1e-12);
    }

    #[test]
    fn joined_products_take_as_long_as_the_same_ones_apart() {
        let calibration = learned(TWO_PRODUCTS, &[7e-6, 2e-6]);
        assert!((predicted(&calibration, ONE_PRODUCT) - 9e-6).abs() < 1e-12);
    }

    #[test]
    fn a_probe_says_how_a_fused_kernel_compares_with_its_pieces() {
        let mut calibration = learned(TWO_PRODUCTS, &[7e-6, 2e-6]);
        let probe = learned(TWO_PRODUCTS, &[5e-6, 5e-6]);
        calibration.learn_factors(&probe, &program(ONE_PRODUCT), &[8e-6]);
        assert!((predicted(&calibration, ONE_PRODUCT) - 0.8 * 9e-6).abs() < 1e-12);
    }
}
