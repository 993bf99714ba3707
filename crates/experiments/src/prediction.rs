//! What a list of passes would bring, before it runs: from its plan, and from what the baseline's calls were measured to
//! take.

use headroom_engine::Program;
use headroom_graph::plan::Call;
use headroom_graph::{Graph, NodeId, Op};
use std::collections::BTreeMap;

/// Times of calls that were measured, and rates for those that were not.
#[derive(Clone, Debug, Default)]
pub struct Calibration {
    /// Seconds by the call's signature: op, attributes and shapes.
    known: BTreeMap<String, f64>,
    /// FLOPs a second of products, by the size of the product.
    products: Vec<(f64, f64)>,
    /// FLOPs a second of attention's products, which are small ones.
    attention: Option<f64>,
    /// Bytes a second of everything else, by op.
    others: BTreeMap<&'static str, f64>,
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
        let mut groups: BTreeMap<&'static str, (f64, f64)> = BTreeMap::new();
        let mut attention = (0.0, 0.0);
        for (call, &seconds) in program.plan.calls.iter().zip(seconds).filter(|(_, seconds)| seconds.is_finite()) {
            let op = &program.graph.node(call.node).op;
            let known = self.known.entry(signature(&program.graph, call.node)).or_insert(seconds);
            *known = known.min(seconds);
            if is_attention(op) {
                attention = (attention.0 + call.flops as f64, attention.1 + seconds);
            } else if call.is_product {
                self.products.push((call.flops as f64, call.flops as f64 / seconds));
            } else {
                let group = groups.entry(op.name()).or_default();
                *group = (group.0 + call.bytes as f64, group.1 + seconds);
            }
        }
        if attention.1 > 0.0 {
            self.attention = Some(attention.0 / attention.1);
        }
        self.products.sort_by(|left, right| left.0.total_cmp(&right.0));
        self.others.extend(groups.into_iter().map(|(name, (bytes, seconds))| (name, bytes / seconds)));
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
        let op = &graph.node(call.node).op;
        match (is_attention(op), call.is_product) {
            (true, _) => call.flops as f64 / self.attention.unwrap_or_else(|| self.product_rate(call.flops as f64)),
            (false, true) => call.flops as f64 / self.product_rate(call.flops as f64),
            (false, false) => call.bytes as f64 / self.other_rate(op),
        }
    }

    /// The rate of the measured product whose size is nearest.
    fn product_rate(&self, flops: f64) -> f64 {
        let distance = |measured: f64| (measured / flops).ln().abs();
        let nearest = self.products.iter().min_by(|left, right| distance(left.0).total_cmp(&distance(right.0)));
        nearest.map_or(1e11, |(_, rate)| *rate)
    }

    /// The rate of the op that a fused one grew from, else the mean of all.
    fn other_rate(&self, op: &Op) -> f64 {
        let kin: &[&str] = match op {
            Op::SwiGlu(_) => &["silu", "mul"],
            Op::SwiGluGrad(_) => &["silu_grad", "mul"],
            Op::AddRmsNorm(_) => &["rms_norm", "add"],
            Op::AddRmsNormGrad(_) => &["rms_norm_grad", "add"],
            Op::AdamWAll(_) => &["adamw"],
            _ => &[],
        };
        let rates: Vec<f64> = kin.iter().filter_map(|name| self.others.get(name)).copied().collect();
        let rates = if rates.is_empty() { self.others.values().copied().collect() } else { rates };
        if rates.is_empty() { 1e10 } else { rates.iter().sum::<f64>() / rates.len() as f64 }
    }
}

fn is_attention(op: &Op) -> bool {
    matches!(
        op,
        Op::AttentionScores(_)
            | Op::AttentionMix(_)
            | Op::AttentionMixBack(_)
            | Op::FlashAttention(_)
            | Op::FlashAttentionGrad(_)
    )
}

fn signature(graph: &Graph, id: NodeId) -> String {
    let node = graph.node(id);
    let types: Vec<String> = graph.types(&node.inputs).iter().map(ToString::to_string).collect();
    format!("{} {:?} {}", node.op.name(), node.op.attributes(), types.join(" "))
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

    #[test]
    fn a_call_that_was_measured_is_predicted_to_take_as_long_again() {
        let program = program(SEPARATE);
        let mut calibration = Calibration::default();
        calibration.learn(&program, &[3e-6, 5e-6]);
        assert!((calibration.predict(&program).seconds - 8e-6).abs() < 1e-12);
    }

    #[test]
    fn a_fused_call_is_predicted_from_the_rates_of_what_it_replaces() {
        let mut calibration = Calibration::default();
        // Both at 64 bytes a microsecond: 256 bytes in 4 µs, 384 bytes in 6 µs.
        calibration.learn(&program(SEPARATE), &[4e-6, 6e-6]);
        // Three tensors of 128 bytes at the same rate.
        assert!((calibration.predict(&program(FUSED)).seconds - 6e-6).abs() < 1e-12);
    }
}
