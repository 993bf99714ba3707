//! Predicted time of a call from what a device can do.

use crate::graph::{Graph, ValueId};
use crate::op::Op;
use crate::ops::collective::{AllReduce, ReduceScatter};
use crate::plan::{Call, Plan};
use std::collections::BTreeMap;

/// Speed of a device, as plain rates; measured by the engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// FLOPs a second of a large matrix product.
    pub product_flops: f64,
    /// Bytes a second to and from memory.
    pub bytes: f64,
    /// Seconds that any call costs before it does anything.
    pub call_seconds: f64,
}

/// Messages between ranks, as a straight line: each round takes so long however little is sent, and a rank sends so much per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    pub round_seconds: f64,
    pub bytes: f64,
}

/// A call on the clock of the step: when it begins, and when the next one may.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    pub begin: f64,
    pub end: f64,
    /// Seconds of it in which nothing is done but wait for other ranks.
    pub exposed: f64,
}

/// The clocks of a step: that of the calls, and that of the exchanges which go on beside them.
#[derive(Clone, Debug, Default)]
pub struct Clocks {
    pub now: f64,
    exchanged: f64,
    /// When each started exchange is done, by the first value that it makes.
    arrivals: BTreeMap<ValueId, f64>,
}

impl Clocks {
    /// Goes on by one call.
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

/// Seconds of one step of a plan on several ranks, and those of them in which a rank only waits for others.
pub fn predicted_among_ranks(graph: &Graph, plan: &Plan, rates: &Rates, link: &Link) -> (f64, f64) {
    let mut clocks = Clocks::default();
    let exposed = plan.calls.iter().map(|call| clocks.advance(graph, call, rates, link).exposed).sum();
    (clocks.now, exposed)
}

/// The larger of the two floors, arithmetic and memory, and the cost of the call itself.
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

    /// An exchange of a thousand bytes, a call of two seconds, and what reads both.
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
        // Two rounds, and half of the tensor to the other rank in each of them.
        assert_eq!(predicted(false), (2.0 + 2.0, 2.0));
        assert_eq!(predicted(true), (2.0, 0.0));
    }
}
