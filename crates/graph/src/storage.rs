//! The same graph with its activations, gradients and matrix weights stored in half precision (bf16).
//!
//! Only what is declared changes its type; everything that nodes make follows by their shape rules. Norms' weights, losses,
//! statistics and sums stay in single precision.

use crate::graph::{Category, Graph, GraphError, Phase, Source, Value, ValueId};
use crate::op::Op;
use crate::ops::adamw_chosen::AdamWChosen;
use crate::pass::Copy;
use crate::tensor::{DType, TensorType};
use std::collections::BTreeMap;

/// In what a step keeps its values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    #[default]
    Single,
    /// Activations and gradients in bf16; each matrix has a bf16 copy that products read, and the optimizer keeps the weight
    /// itself and its moments in single precision.
    HalfWithMasters,
    /// Matrices and their moments exist in bf16 alone.
    Half,
}

/// Name of a matrix's copy in half precision.
pub fn half_name(parameter: &str) -> String {
    format!("half.{parameter}")
}

pub fn stored(graph: &Graph, storage: Storage) -> Result<Graph, GraphError> {
    match storage {
        Storage::Single => Ok(graph.clone()),
        Storage::HalfWithMasters => with_masters(graph),
        Storage::Half => half(graph),
    }
}

fn is_matrix(value: &Value) -> bool {
    value.source == Source::Parameter && value.ty.sizes().len() > 1
}

fn in_half(ty: &TensorType) -> TensorType {
    TensorType { dtype: DType::Bf16, shape: ty.shape.clone() }
}

fn with_masters(graph: &Graph) -> Result<Graph, GraphError> {
    let mut copy = Copy::new(graph);
    let mut halves: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let mut masters: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for id in graph.value_ids().filter(|&id| is_matrix(graph.get(id))) {
        let half = copy.state(&half_name(&graph.get(id).name), in_half(graph.ty(id)), Category::Parameters);
        halves.insert(id, half);
        masters.insert(id, copy.moved(id));
        copy.redirect(id, half);
    }
    for node in graph.nodes() {
        if node.phase != Phase::Optimizer {
            copy.node(node)?;
            continue;
        }
        masters.iter().for_each(|(&old, &master)| copy.redirect(old, master));
        let mut inputs: Vec<ValueId> = node.inputs.iter().map(|&input| copy.moved(input)).collect();
        let op = match node.op {
            Op::AdamW(op) => match halves.get(&node.inputs[0]) {
                Some(&half) => {
                    inputs.insert(5, half);
                    Op::AdamW(crate::ops::adamw::AdamW { halves: 1, ..op })
                }
                None => Op::AdamW(op),
            },
            Op::AdamWAll(op) => {
                let weights = (0..op.parameters).map(|parameter| node.inputs[1 + 4 * parameter]);
                let copies: Vec<ValueId> = weights.filter_map(|weight| halves.get(&weight).copied()).collect();
                inputs.extend(&copies);
                Op::AdamWAll(crate::ops::adamw_all::AdamWAll { halves: copies.len(), ..op })
            }
            Op::AdamWChosen(op) => {
                let weights = (0..op.parameters).map(|parameter| node.inputs[AdamWChosen::place(parameter)]);
                let copies: Vec<ValueId> = weights.filter_map(|weight| halves.get(&weight).copied()).collect();
                inputs.extend(&copies);
                Op::AdamWChosen(AdamWChosen { halves: copies.len(), ..op })
            }
            other => other,
        };
        copy.enter(node);
        let made = copy.add_new(op, &inputs)?;
        node.outputs.iter().zip(made).for_each(|(&old, new)| copy.redirect(old, new));
    }
    copy.finish()
}

fn half(graph: &Graph) -> Result<Graph, GraphError> {
    let matrices: Vec<&str> =
        graph.values().iter().filter(|value| is_matrix(value)).map(|value| &*value.name).collect();
    // A matrix's moments are named after it.
    let of_a_matrix = |value: &Value| {
        let state = value.source == Source::State(Category::OptimizerState);
        state && matrices.iter().any(|name| value.name.ends_with(name))
    };
    let mut copy = Copy::with_types(graph, |value| match is_matrix(value) || of_a_matrix(value) {
        true => in_half(&value.ty),
        false => value.ty.clone(),
    });
    for node in graph.nodes() {
        copy.node(node)?;
    }
    copy.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradient::differentiate;
    use crate::ops::adamw::AdamW;
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
        let update = AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01, halves: 0 };
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

    #[test]
    fn products_read_the_half_copy_and_the_update_keeps_both() {
        let graph = stored(&step(), Storage::HalfWithMasters).unwrap();
        graph.validate("storage").unwrap();
        assert_eq!((dtype(&graph, "table"), dtype(&graph, "half.table")), (DType::F32, DType::Bf16));
        assert_eq!((dtype(&graph, "first_moment.table"), dtype(&graph, "gain")), (DType::F32, DType::F32));
        let master = graph.named("table").unwrap();
        for node in graph.nodes() {
            let reads_master = node.inputs.contains(&master);
            assert_eq!(reads_master, matches!(node.op, Op::AdamW(op) if op.halves == 1), "{}", node.op.name());
        }
        let loss = graph.output_named("loss").unwrap();
        assert_eq!(graph.ty(loss).dtype, DType::F32);
    }

    #[test]
    fn half_alone_keeps_matrices_and_their_moments_in_half_precision() {
        let graph = stored(&step(), Storage::Half).unwrap();
        graph.validate("storage").unwrap();
        let types = ["table", "first_moment.table", "second_moment.table", "gain", "first_moment.gain"]
            .map(|name| dtype(&graph, name));
        assert_eq!(types, [DType::Bf16, DType::Bf16, DType::Bf16, DType::F32, DType::F32]);
    }
}
