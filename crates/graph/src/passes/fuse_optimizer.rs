//! Fuses all updates, with the norms and the scale of clipping, into one op; also the choice of what is updated, if
//! any.

use crate::graph::{Graph, GraphError, NodeId, ValueId};
use crate::op::Op;
use crate::ops::adamw::AdamW;
use crate::ops::adamw_all::AdamWAll;
use crate::ops::adamw_chosen::AdamWChosen;
use crate::ops::choose::SHARED;
use crate::pass::{Replacement, rewrite as replace};

pub fn rewrite(graph: &Graph) -> Result<Graph, GraphError> {
    let updates: Vec<NodeId> = ids(graph, |op| matches!(op, Op::AdamW(_)));
    let Some(&last) = updates.last() else { return Ok(graph.clone()) };
    replace(graph, |graph, id| {
        if id != last {
            return None;
        }
        let Op::AdamW(update) = graph.node(id).op else { return None };
        if updates.iter().any(|&node| graph.node(node).op != Op::AdamW(update)) {
            return None;
        }
        let scale = ids(graph, |op| matches!(op, Op::ClipScale(_))).first().copied();
        let choice = ids(graph, |op| matches!(op, Op::Choose(_))).first().copied();
        let is_square =
            |value: &ValueId| matches!(graph.maker(*value), Some((_, node)) if matches!(node.op, Op::SquaredNorm(_)));
        let squares = scale
            .map(|scale| &graph.node(scale).inputs[..])
            .or(choice.map(|choice| &graph.node(choice).inputs[SHARED..]));
        if squares.is_some_and(|squares| !squares.iter().all(is_square)) {
            // Squares of shards are summed over the ranks in between, and one op cannot do that.
            return None;
        }
        let has_others = graph.nodes().iter().any(|node| matches!(node.op, Op::MuonMomentum(_)));
        if has_others && (scale.is_some() || choice.is_some()) {
            // The scale and the choice cover all parameters, but AdamW updates only some of them.
            return None;
        }
        let max_norm = match scale.map(|scale| graph.node(scale).op) {
            Some(Op::ClipScale(clip)) => clip.max_norm,
            _ => 0.0,
        };
        let mut inputs = match choice {
            Some(choice) => graph.node(choice).inputs[..SHARED].to_vec(),
            None => vec![graph.node(id).inputs[4]],
        };
        inputs.extend(updates.iter().flat_map(|&node| graph.node(node).inputs[..4].iter().copied()));
        let norm: Option<Option<ValueId>> = scale.map(|scale| Some(graph.node(scale).outputs[1]));
        // Nothing else reads the rates of each update.
        let outputs = choice.map(|_| None).into_iter().chain(norm).collect();
        let is_square = |op: &Op| matches!(op, Op::SquaredNorm(_)) && !has_others;
        let mut covers = ids(graph, is_square);
        covers.extend(scale);
        covers.extend(choice);
        covers.extend(&updates);
        let (parameters, bf16_copies) = (updates.len(), 0);
        let AdamW { beta1, beta2, eps, weight_decay, decays, .. } = update;
        let op: Op = match choice.map(|choice| graph.node(choice).op) {
            Some(Op::Choose(choice)) => AdamWChosen {
                rule: choice.rule,
                among: choice.among,
                seed: choice.seed,
                beta1,
                beta2,
                eps,
                weight_decay,
                decays,
                max_norm,
                bf16_copies,
                parameters,
            }
            .into(),
            _ => AdamWAll { parameters, beta1, beta2, eps, weight_decay, decays, max_norm, bf16_copies }.into(),
        };
        Some(Replacement { covers, op, inputs, outputs })
    })
}

fn ids(graph: &Graph, wanted: impl Fn(&Op) -> bool) -> Vec<NodeId> {
    let nodes = graph.nodes().iter().enumerate();
    nodes.filter(|(_, node)| wanted(&node.op)).map(|(index, _)| NodeId(index)).collect()
}
