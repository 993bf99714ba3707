//! The owner of a call's work: its module, or the modules that a fused call covers, each with its share.

use crate::models::build::{HEAD, LOSS};
use headroom_graph::{Graph, Node, Op, Part, Role};
use std::collections::HashMap;

/// The module of a call as the trace states it.
#[derive(Clone, Debug, PartialEq)]
pub struct Owner {
    /// `layers.0.mlp.gate_proj+up_proj` if the call covers both.
    pub module: String,
    /// `gate+up` in that case.
    pub role: String,
    /// Share of each module; empty if there is only one.
    pub shares: Vec<f64>,
}

/// Owners, indexed by call.
pub fn owners(graph: &Graph) -> Vec<Owner> {
    // The backward calls of fused projections name no weights, so use the forward call of their module.
    let fused: HashMap<&str, Vec<(&Part, f64)>> =
        graph.nodes().iter().filter_map(|node| Some((&*node.module, projections(graph, node)?))).collect();
    graph.nodes().iter().map(|node| owner(graph, node, &fused)).collect()
}

fn owner(graph: &Graph, node: &Node, fused: &HashMap<&str, Vec<(&Part, f64)>>) -> Owner {
    let is_fused = matches!(node.op, Op::Linears(_) | Op::LinearsGradInput(_) | Op::LinearsGradWeights(_));
    if let Some(parts) = fused.get(&*node.module).filter(|_| is_fused) {
        let (parent, _) = node.module.rsplit_once('.').unwrap_or_default();
        let leaves: Vec<&str> = parts.iter().map(|(part, _)| part.leaf()).collect();
        let roles: Vec<&str> = parts.iter().map(|(part, _)| part.role.name()).collect();
        let all: f64 = parts.iter().map(|(_, size)| size).sum();
        let module = format!("{parent}.{}", leaves.join("+")).trim_start_matches('.').to_string();
        return Owner { module, role: roles.join("+"), shares: parts.iter().map(|(_, size)| size / all).collect() };
    }
    if matches!(node.op, Op::LinearCrossEntropy(_) | Op::LinearCrossEntropyTrain(_)) {
        let types = graph.types(&node.inputs);
        // Per logit: 2 FLOPs per column for each product, and 4 or 6 for softmax and loss.
        let (products, rest) = if matches!(node.op, Op::LinearCrossEntropy(_)) { (2.0, 4.0) } else { (6.0, 6.0) };
        let products = products * types[0].shape.row() as f64;
        let head = products / (products + rest);
        return Owner {
            module: format!("{HEAD}+{LOSS}"),
            role: format!("{}+{}", Role::Head, Role::Loss),
            shares: vec![head, 1.0 - head],
        };
    }
    Owner { module: node.module.to_string(), role: node.role.to_string(), shares: vec![] }
}

/// The part and the size of each weight of a fused projection.
fn projections<'a>(graph: &'a Graph, node: &Node) -> Option<Vec<(&'a Part, f64)>> {
    let weights = matches!(node.op, Op::Linears(_)).then(|| &node.inputs[1..])?;
    Some(weights.iter().map(|&weight| (&graph.get(weight).part, graph.ty(weight).elements() as f64)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_graph::ops::linears::Linears;
    use headroom_graph::{Phase, TensorType};

    #[test]
    fn a_fused_projection_belongs_to_its_modules_by_the_size_of_their_weights() {
        let mut graph = Graph::new();
        let x = graph.input("x", TensorType::f32(&[4, 8]));
        let weights = [("q", 8, Role::Query), ("k", 4, Role::Key), ("v", 4, Role::Value)].map(|(name, rows, role)| {
            graph.weight(name, TensorType::f32(&[rows, 8]), Part::new(&format!("layers.0.a.{name}"), role))
        });
        graph.enter("layers.0.a.v", Phase::Forward);
        graph.add(Linears {}, &[&[x], &weights[..]].concat()).unwrap();
        let owner = &owners(&graph)[0];
        assert_eq!(owner.role, "query+key+value");
        assert_eq!((owner.module.as_str(), &owner.shares[..]), ("layers.0.a.q+k+v", &[0.5, 0.25, 0.25][..]));
    }
}
