//! Rewrites a graph so that each parameter is kept as requested: in single precision, in half (bf16), or in both.
//!
//! Only declarations change their type; the outputs of nodes follow by their shape rules. Norm weights, losses,
//! statistics and sums stay in single precision.

use crate::graph::{Category, Graph, GraphError, Phase, Source, Value, ValueId};
use crate::op::Op;
use crate::ops::adamw_chosen::AdamWChosen;
use crate::ops::collective::AllGather;
use crate::pass::Copy;
use crate::passes::zero1::weight_of_shard;
use crate::tensor::{DType, TensorType};
use std::collections::BTreeMap;

/// How a parameter and its moments are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kept {
    #[default]
    Single,
    /// It has a bf16 copy that products read; the optimizer keeps the weight itself and its moments in single
    /// precision.
    HalfWithMaster,
    /// It and its moments exist only in bf16.
    Half,
}

/// Name of a matrix's half-precision copy.
pub fn half_name(parameter: &str) -> String {
    format!("half.{parameter}")
}

/// Returns the graph with every parameter kept as `kept` requests. Activations and gradients follow: they are stored in
/// the type of the inputs of the node that produces them.
pub fn stored(graph: &Graph, kept: impl Fn(&Value) -> Kept) -> Result<Graph, GraphError> {
    let parameters = || graph.value_ids().filter(|&id| graph.get(id).source == Source::Parameter);
    let of: BTreeMap<ValueId, Kept> = parameters().map(|id| (id, kept(graph.get(id)))).collect();
    let in_bf16: Vec<&str> =
        of.iter().filter(|(_, kept)| **kept == Kept::Half).map(|(id, _)| &*graph.get(*id).name).collect();
    // A parameter's moments are named after it.
    let is_half = |value: &Value| match value.source {
        Source::Parameter => in_bf16.contains(&&*value.name),
        Source::State(Category::OptimizerState) => in_bf16.iter().any(|name| value.name.ends_with(name)),
        Source::State(Category::Parameters) => {
            weight_of_shard(&value.name).is_some_and(|weight| in_bf16.contains(&weight))
        }
        _ => false,
    };
    let mut copy = Copy::with_types(graph, |value| if is_half(value) { in_half(&value.ty) } else { value.ty.clone() });
    let mut bf16_copies: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let mut masters: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for id in parameters().filter(|id| of[id] == Kept::HalfWithMaster) {
        let half = copy.state_of(id, &half_name(&graph.get(id).name), in_half(graph.ty(id)), Category::Parameters);
        bf16_copies.insert(id, half);
        masters.insert(id, copy.moved(id));
        copy.redirect(id, half);
    }
    for node in graph.nodes() {
        if node.phase != Phase::Optimizer || bf16_copies.is_empty() {
            copy.node(node)?;
            continue;
        }
        masters.iter().for_each(|(&old, &master)| copy.redirect(old, master));
        let mut inputs: Vec<ValueId> = node.inputs.iter().map(|&input| copy.moved(input)).collect();
        let op = match node.op {
            Op::AdamW(op) => match bf16_copies.get(&node.inputs[0]) {
                Some(&half) => {
                    inputs.insert(5, half);
                    Op::AdamW(crate::ops::adamw::AdamW { bf16_copies: 1, ..op })
                }
                None => Op::AdamW(op),
            },
            Op::Sgd(op) => match bf16_copies.get(&node.inputs[0]) {
                Some(&half) => {
                    inputs.insert(3 + op.buffers(), half);
                    Op::Sgd(crate::ops::sgd::Sgd { bf16_copies: 1, ..op })
                }
                None => Op::Sgd(op),
            },
            Op::MuonUpdate(op) => match bf16_copies.get(&node.inputs[0]) {
                Some(&half) => {
                    inputs.push(half);
                    Op::MuonUpdate(crate::ops::muon::MuonUpdate { bf16_copies: 1, ..op })
                }
                None => Op::MuonUpdate(op),
            },
            Op::AdamWAll(op) => {
                let weights = (0..op.parameters).map(|parameter| node.inputs[1 + 4 * parameter]);
                let copies: Vec<ValueId> = weights.filter_map(|weight| bf16_copies.get(&weight).copied()).collect();
                inputs.extend(&copies);
                Op::AdamWAll(crate::ops::adamw_all::AdamWAll { bf16_copies: copies.len(), ..op })
            }
            Op::AdamWChosen(op) => {
                let weights = (0..op.parameters).map(|parameter| node.inputs[AdamWChosen::place(parameter)]);
                let copies: Vec<ValueId> = weights.filter_map(|weight| bf16_copies.get(&weight).copied()).collect();
                inputs.extend(&copies);
                Op::AdamWChosen(AdamWChosen { bf16_copies: copies.len(), ..op })
            }
            // Updates write shards; a copy follows the weight that is gathered from them.
            Op::AllGather(op) => {
                let whole = &node.inputs[..op.tensors];
                let copies: Vec<ValueId> = whole.iter().filter_map(|weight| bf16_copies.get(weight).copied()).collect();
                inputs.extend(&copies);
                Op::AllGather(AllGather { bf16_copies: copies.len(), ..op })
            }
            other => other,
        };
        copy.enter(node);
        let made = copy.add_new(op, &inputs)?;
        node.outputs.iter().zip(made).for_each(|(&old, new)| copy.redirect(old, new));
    }
    copy.finish()
}

fn in_half(ty: &TensorType) -> TensorType {
    TensorType { dtype: DType::Bf16, shape: ty.shape.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradient::differentiate;
    use crate::ops::adamw::{AdamW, Decays};
    use crate::ops::matmul::{Form, MatMul};
    use crate::ops::rms_norm::RmsNorm;

    /// A norm and a layer, their gradients, and an update of each.
    fn step() -> Graph {
        let mut graph = Graph::new();
        let table = graph.parameter("table", TensorType::f32(&[9, 4]));
        let gain = graph.parameter("gain", TensorType::f32(&[4]));
        let ids = graph.input("ids", TensorType::i32(&[6]));
        let rates = graph.input("rates", TensorType::f32(&[3]));
        let x = graph.add_one(crate::ops::embedding::Embedding {}, &[ids, table]).unwrap();
        let normed = graph.add_one(RmsNorm { eps: 1e-6 }, &[x, gain]).unwrap();
        let logits = graph.add_one(MatMul { form: Form::Nt }, &[normed, table]).unwrap();
        let loss = graph.add_one(crate::ops::cross_entropy::CrossEntropy {}, &[logits, ids]).unwrap();
        let seed = graph.input("seed", TensorType::f32(&[1]));
        graph.output("loss", loss);
        let gradients = differentiate(&mut graph, &[(loss, seed)], &[table, gain]).unwrap();
        graph.enter("optimizer", Phase::Optimizer);
        let update =
            AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01, decays: Decays::All, bf16_copies: 0 };
        for (parameter, gradient) in [table, gain].into_iter().zip(gradients) {
            let (name, ty) = (graph.get(parameter).name.to_string(), graph.ty(parameter).clone());
            let first = graph.state(&format!("first_moment.{name}"), ty.clone(), Category::OptimizerState);
            let second = graph.state(&format!("second_moment.{name}"), ty, Category::OptimizerState);
            graph.add(update, &[parameter, first, second, gradient, rates]).unwrap();
        }
        graph.validate("building").unwrap();
        graph
    }

    fn dtype(graph: &Graph, name: &str) -> DType {
        graph.ty(graph.named(name).unwrap()).dtype
    }

    fn matrices(kept: Kept) -> impl Fn(&Value) -> Kept {
        move |value| if value.ty.sizes().len() > 1 { kept } else { Kept::Single }
    }

    #[test]
    fn products_read_the_half_copy_and_the_update_keeps_both() {
        let graph = stored(&step(), matrices(Kept::HalfWithMaster)).unwrap();
        graph.validate("storage").unwrap();
        assert_eq!((dtype(&graph, "table"), dtype(&graph, "half.table")), (DType::F32, DType::Bf16));
        assert_eq!((dtype(&graph, "first_moment.table"), dtype(&graph, "gain")), (DType::F32, DType::F32));
        let master = graph.named("table").unwrap();
        for node in graph.nodes() {
            let reads_master = node.inputs.contains(&master);
            assert_eq!(reads_master, matches!(node.op, Op::AdamW(op) if op.bf16_copies == 1), "{}", node.op.name());
        }
        let loss = graph.output_named("loss").unwrap();
        assert_eq!(graph.ty(loss).dtype, DType::F32);
    }

    #[test]
    fn half_alone_keeps_matrices_and_their_moments_in_half_precision() {
        let graph = stored(&step(), matrices(Kept::Half)).unwrap();
        graph.validate("storage").unwrap();
        let types = ["table", "first_moment.table", "second_moment.table", "gain", "first_moment.gain"]
            .map(|name| dtype(&graph, name));
        assert_eq!(types, [DType::Bf16, DType::Bf16, DType::Bf16, DType::F32, DType::F32]);
    }
}
