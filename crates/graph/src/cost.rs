//! Predicts the time of a call from a device's rates.

use crate::graph::{Graph, ValueId};
use crate::op::Op;
use crate::ops::collective::{AllReduce, ReduceScatter};
use crate::plan::{Call, Plan};
use std::collections::BTreeMap;

/// Rates of a device, measured by the engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// FLOP/s of a large matrix product.
    pub product_flops: f64,
    /// Memory bandwidth in bytes per second.
    pub bytes: f64,
    /// Fixed overhead of any call, in seconds.
    pub call_seconds: f64,
}

/// Linear cost model of messages between ranks: a fixed time per round plus the bytes sent at a constant rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    pub round_seconds: f64,
    pub bytes: f64,
}

/// A call on the step's timeline: when it begins, and when the next one may begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    pub begin: f64,
    pub end: f64,
    /// Seconds spent only waiting for other ranks.
    pub exposed: f64,
}

/// The clocks of a step: one for the calls, one for the exchanges that overlap them.
#[derive(Clone, Debug, Default)]
pub struct Clocks {
    pub now: f64,
    exchanged: f64,
    /// When each started exchange finishes, keyed by its first output value.
    arrivals: BTreeMap<ValueId, f64>,
}

impl Clocks {
    /// Advances by one call.
    pub fn advance(&mut self, graph: &Graph, call: &Call, rates: &Rates, link: &Link) -> Predicted {
        let (node, begin) = (graph.node(call.node), self.now);
        let rounds = match node.op {
            Op::AllReduce(op) if op.ranks > 1 => 2.0,
            Op::ReduceScatter(op) if op.ranks > 1 => 1.0,
            Op::AllGather(op) if op.ranks > 1 => 1.0,
            Op::Arrive(_) => {
                let done = node.inputs.get(node.inputs.len() / 2).and_then(|made| self.arrivals.get(made));
                self.now = done.copied().unwrap_or(begin).max(begin);
                return Predicted { begin, end: self.now, exposed: self.now - begin };
            }
            _ => {
                self.now += predicted_seconds(call, rates);
                return Predicted { begin, end: self.now, exposed: 0.0 };
            }
        };
        let sent = node.op.sent_bytes(&graph.types(&node.inputs), &graph.types(&node.outputs));
        let done = begin.max(self.exchanged) + rounds * link.round_seconds + sent as f64 / link.bytes;
        self.exchanged = done;
        let later = matches!(
            node.op,
            Op::AllReduce(AllReduce { later: true, .. }) | Op::ReduceScatter(ReduceScatter { later: true, .. })
        );
        if later {
            self.arrivals.insert(node.outputs[0], done);
            self.now += rates.call_seconds;
        } else {
            self.now = done;
        }
        Predicted { begin, end: self.now, exposed: if later { 0.0 } else { done - begin } }
    }
}

/// Seconds of one step of a plan on several ranks, and how many of them a rank spends only waiting for others.
pub fn predicted_among_ranks(graph: &Graph, plan: &Plan, rates: &Rates, link: &Link) -> (f64, f64) {
    let mut clocks = Clocks::default();
    let exposed = plan.calls.iter().map(|call| clocks.advance(graph, call, rates, link).exposed).sum();
    (clocks.now, exposed)
}

/// The larger of the compute and memory lower bounds, plus the overhead of the call.
pub fn predicted_seconds(call: &Call, rates: &Rates) -> f64 {
    (call.flops as f64 / rates.product_flops).max(call.bytes as f64 / rates.bytes) + rates.call_seconds
}

/// Predicted time of all calls of a plan, one after the other.
pub fn predicted_step_seconds(plan: &Plan, rates: &Rates) -> f64 {
    plan.calls.iter().map(|call| predicted_seconds(call, rates)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::TensorType;

    const RATES: Rates = Rates { product_flops: 1e9, bytes: 1e9, call_seconds: 0.0 };
    const LINK: Link = Link { round_seconds: 0.5, bytes: 1e3 };

    /// An exchange of a thousand bytes, a call of two seconds, and a node that reads both.
    fn step(later: bool) -> Graph {
        let text = format!(
            "input x: f32[250]\ninput y: f32[250000000]\n\
             %2: f32[250] = all_reduce{{ranks=2, mean=false, kept=0, later={later}}}(x) @ backward a\n\
             %3: f32[250000000] = silu(y) @ backward a\n{}",
            if later { "arrive(x, %2) @ optimizer a\n" } else { "" }
        );
        let graph: Graph = text.parse().unwrap();
        graph.validate("test").unwrap();
        graph
    }

    #[test]
    fn an_exchange_costs_its_rounds_and_bytes_unless_something_goes_on_beside_it() {
        let predicted = |later: bool| {
            let graph = step(later);
            predicted_among_ranks(&graph, &Plan::new(&graph), &RATES, &LINK)
        };
        assert_eq!(TensorType::f32(&[250]).bytes(), 1000);
        // Two rounds; each sends half of the tensor to the other rank.
        assert_eq!(predicted(false), (2.0 + 2.0, 2.0));
        assert_eq!(predicted(true), (2.0, 0.0));
    }
}
