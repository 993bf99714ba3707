//! Values that are the same on every rank, and values that are one rank's own.
//!
//! A value is replicated (the same bytes everywhere), sharded (each rank has its part of one tensor), or a rank's own: activations of
//! its batch, gradients that are partial sums. Only a collective makes a rank's own values something of all ranks again, and nothing that
//! is kept may be updated from values that did not go through one: ranks would train different models without a word.

use crate::graph::{Category, Graph, GraphError, Source};
use crate::op::Op;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    Replicated,
    /// A part of a tensor that the ranks have together.
    Sharded,
    /// Of the rank's batch, or partial.
    Own,
}

/// The spread of every value at the end of a step, where the inputs of these names differ from rank to rank.
pub fn spread(graph: &Graph, differing: &[&str], after: &str) -> Result<Vec<Spread>, GraphError> {
    let mut of: Vec<Spread> = graph
        .values()
        .iter()
        .map(|value| match value.source {
            Source::Input if differing.contains(&&*value.name) => Spread::Own,
            // A sum over micro-batches is of the rank's own gradients.
            Source::State(Category::Gradients) => Spread::Own,
            _ => Spread::Replicated,
        })
        .collect();
    for node in graph.nodes() {
        let reads = |wanted: Spread| node.inputs.iter().any(|input| of[input.0] == wanted);
        let made = match node.op {
            Op::AllReduce(_) | Op::AllGather(_) | Op::Zero(_) => Spread::Replicated,
            Op::ReduceScatter(_) => Spread::Sharded,
            _ if reads(Spread::Own) => Spread::Own,
            _ if reads(Spread::Sharded) => Spread::Sharded,
            _ => Spread::Replicated,
        };
        for position in node.op.updates() {
            let target = node.inputs[position];
            let may_be = match graph.get(target).source {
                Source::State(Category::Gradients) => true,
                Source::State(_) => made != Spread::Own,
                _ => made == Spread::Replicated,
            };
            if !may_be {
                let (op, name) = (node.op.name(), &graph.get(target).name);
                let what = format!("{op} in {} updates {name} from values of one rank alone", node.module);
                return Err(GraphError::Invalid { after: after.into(), what });
            }
            of[target.0] = made;
        }
        // Waiting changes nothing.
        node.outputs.iter().for_each(|output| of[output.0] = made);
    }
    Ok(of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::str::FromStr;

    fn check(text: &str) -> Result<Vec<Spread>, GraphError> {
        let graph = Graph::from_str(text).unwrap();
        graph.validate("test").unwrap();
        spread(&graph, &["x"], "test")
    }

    const STEP: &str = "parameter w: f32[4]\ninput x: f32[4]\ninput rates: f32[3]\n";
    const SGD: &str = "sgd{momentum=0, weight_decay=0, decays=all, halves=0}";

    #[test]
    fn a_weight_is_not_updated_from_one_ranks_gradient() {
        let error = check(&format!("{STEP}{SGD}(w, x, rates) @ optimizer optimizer\n")).unwrap_err();
        assert!(error.to_string().contains("updates w from values of one rank alone"), "{error}");
    }

    #[test]
    fn a_sum_over_the_ranks_is_the_same_on_all() {
        let reduced = "%3: f32[4] = all_reduce{ranks=2, mean=false, kept=0, later=false}(x) @ backward a\n";
        let of = check(&format!("{STEP}{reduced}{SGD}(w, %3, rates) @ optimizer optimizer\n")).unwrap();
        assert_eq!((of[1], of[3]), (Spread::Own, Spread::Replicated));
    }
}
