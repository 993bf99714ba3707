//! Tracks which values are the same on every rank and which belong to one rank.
//!
//! A value is replicated (the same bytes everywhere), sharded (each rank has its part of one tensor, cut flat), partial
//! (a summand of a sum over the ranks: squares of a shard), or a rank's own: activations of its batch, and the
//! gradients that they give. Only a collective combines the last two over all ranks. Nothing that is kept may be
//! updated from values that did not go through one: the ranks would silently train different models. Nor may a value be
//! summed that all ranks already share.

use crate::graph::{Category, Graph, GraphError, Node, Source};
use crate::op::Op;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    Replicated,
    /// A part of a tensor that is split over the ranks.
    Sharded,
    /// A summand of a sum over a tensor that is split over the ranks.
    Partial,
    /// A value of the rank's own batch.
    Own,
}

/// The spread of every value at the end of a step, given the names of the inputs that differ between ranks.
pub fn spread(graph: &Graph, differing: &[&str], after: &str) -> Result<Vec<Spread>, GraphError> {
    let mut of: Vec<Spread> = graph
        .values()
        .iter()
        .map(|value| match value.source {
            Source::Input if differing.contains(&&*value.name) => Spread::Own,
            // A sum over micro-batches holds the rank's own gradients.
            Source::State(Category::Gradients) => Spread::Own,
            _ => Spread::Replicated,
        })
        .collect();
    for node in graph.nodes() {
        let made = made(node, &of).map_err(|what| {
            let what = format!("{} in {} {what}", node.op.name(), node.module);
            GraphError::Invalid { after: after.into(), what }
        })?;
        for position in node.op.updates() {
            let target = node.inputs[position];
            let may_be = match graph.get(target).source {
                Source::State(Category::Gradients) => true,
                Source::State(_) => matches!(made, Spread::Replicated | Spread::Sharded),
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

/// The spread of a node's outputs, or the reason why the node is invalid.
fn made(node: &Node, of: &[Spread]) -> Result<Spread, &'static str> {
    let reads = |wanted: Spread| node.inputs.iter().any(|input| of[input.0] == wanted);
    let ranks = match node.op {
        Op::AllReduce(op) => op.ranks,
        Op::ReduceScatter(op) => op.ranks,
        _ => 1,
    };
    if ranks > 1 && (reads(Spread::Replicated) || reads(Spread::Sharded)) {
        return Err("sums over the ranks what is not one rank's own");
    }
    Ok(match node.op {
        Op::AllReduce(_) | Op::AllGather(_) | Op::Zero(_) => Spread::Replicated,
        Op::ReduceScatter(_) => Spread::Sharded,
        // The result stays the rank's own until a collective sums it.
        _ if reads(Spread::Own) || reads(Spread::Partial) => Spread::Own,
        Op::SquaredNorm(_) | Op::GradientNorm(_) if reads(Spread::Sharded) => Spread::Partial,
        // An update that clips the norm itself needs all elements for each element of the result.
        Op::AdamWAll(op) if reads(Spread::Sharded) && op.max_norm > 0.0 => Spread::Own,
        _ if reads(Spread::Sharded) => Spread::Sharded,
        _ => Spread::Replicated,
    })
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
    const SGD: &str = "sgd{momentum=0, weight_decay=0, decays=all, bf16_copies=0}";

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

    const REDUCED: &str = "%3: f32[4] = all_reduce{ranks=2, mean=false, kept=0, later=false}(x) @ backward a\n";

    #[test]
    fn a_sum_is_not_summed_again() {
        let again = "%4: f32[4] = all_reduce{ranks=2, mean=false, kept=0, later=false}(%3) @ backward a\n";
        let error = check(&format!("{STEP}{REDUCED}{again}")).unwrap_err();
        assert!(error.to_string().contains("sums over the ranks what is not one rank's own"), "{error}");
    }

    #[test]
    fn the_norm_of_a_shard_is_partial_until_it_went_through_the_ranks() {
        let scattered = "%3: f32[2] = reduce_scatter{ranks=2, later=false}(x) @ backward a\n";
        let square = "%4: f32[1] = squared_norm(%3) @ optimizer a\n";
        let of = check(&format!("{STEP}{scattered}{square}")).unwrap();
        assert_eq!((of[3], of[4]), (Spread::Sharded, Spread::Partial));
        let summed = "%5: f32[1] = all_reduce{ranks=2, mean=false, kept=0, later=false}(%4) @ optimizer a\n";
        let of = check(&format!("{STEP}{scattered}{square}{summed}")).unwrap();
        assert_eq!(of[5], Spread::Replicated);
        // Each rank would clip its shard by a different factor.
        let clipped = "%5: f32[1], %6: f32[1] = clip_scale{max_norm=1}(%4) @ optimizer a\n";
        let of = check(&format!("{STEP}{scattered}{square}{clipped}")).unwrap();
        assert_eq!(of[5], Spread::Own);
    }
}
