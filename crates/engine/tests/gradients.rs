//! Every op's gradient against finite differences, in double precision, by the reference kernels. A new op joins through
//! its examples.

#[path = "common/fill.rs"]
mod fill;

use headroom_engine::reference::{Tensor, evaluate};
use headroom_graph::op::{Example, Op};
use headroom_graph::{Graph, GraphError, ValueId, differentiate};
use std::collections::{BTreeMap, BTreeSet};

/// Ops of the backward pass and the optimizer. Everything else must have a gradient.
const WITHOUT_GRADIENT: [&str; 10] = [
    "embedding_grad",
    "rms_norm_grad",
    "causal_softmax_grad",
    "silu_grad",
    "cross_entropy_grad",
    "accumulate",
    "zero",
    "squared_norm",
    "clip_scale",
    "adamw",
];

#[test]
fn every_op_has_an_example() {
    let with_example: BTreeSet<&str> = Op::examples().iter().map(|example| example.op.name()).collect();
    assert_eq!(with_example, Op::NAMES.iter().copied().collect());
}

#[test]
fn every_gradient_agrees_with_finite_differences() {
    let mut checked = BTreeSet::new();
    for example in Op::examples() {
        if WITHOUT_GRADIENT.contains(&example.op.name()) {
            assert!(matches!(built(&example), Err(GraphError::NotDifferentiable { .. })), "{}", example.op.name());
        } else {
            check(&example);
            checked.insert(example.op.name());
        }
    }
    assert_eq!(checked.len(), Op::NAMES.len() - WITHOUT_GRADIENT.len());
}

struct Built {
    graph: Graph,
    inputs: Vec<ValueId>,
    output: ValueId,
    seed: ValueId,
    /// For each differentiable input, its place in the example and its gradient.
    gradients: Vec<(usize, ValueId)>,
}

fn built(example: &Example) -> Result<Built, GraphError> {
    let mut graph = Graph::new();
    let inputs: Vec<ValueId> = example
        .inputs
        .iter()
        .enumerate()
        .map(|(index, (ty, _))| match example.op.updates().contains(&index) {
            true => graph.parameter(&format!("input{index}"), ty.clone()),
            false => graph.input(&format!("input{index}"), ty.clone()),
        })
        .collect();
    let outputs = graph.add(example.op, &inputs)?;
    // An op that only updates has no output to differentiate; a stand-in makes the builder ask it.
    let output = outputs.first().copied().unwrap_or(inputs[0]);
    let seed = graph.input("seed", graph.ty(output).clone());
    let wanted: Vec<usize> = (0..inputs.len()).filter(|&index| is_differentiable(example, index)).collect();
    if outputs.is_empty() {
        return Err(GraphError::NotDifferentiable { op: example.op.name(), module: String::new() });
    }
    let values: Vec<ValueId> = wanted.iter().map(|&index| inputs[index]).collect();
    let gradients = differentiate(&mut graph, output, seed, &values)?;
    graph.validate("differentiate")?;
    Ok(Built { graph, inputs, output, seed, gradients: wanted.into_iter().zip(gradients).collect() })
}

/// Floats, but not the rotation tables, which are constants of the model.
fn is_differentiable(example: &Example, index: usize) -> bool {
    example.inputs[index].0.dtype.is_float() && !(matches!(example.op, Op::Rope(_)) && index > 0)
}

fn check(example: &Example) {
    let op = example.op;
    let built = built(example).unwrap_or_else(|error| panic!("{}: {error}", op.name()));
    let inputs = fill::inputs(example);
    let seed = fill::normal(built.graph.ty(built.output), 77);
    let given = |inputs: &[Tensor]| -> BTreeMap<ValueId, Tensor> {
        let mut given: BTreeMap<ValueId, Tensor> = built.inputs.iter().copied().zip(inputs.iter().cloned()).collect();
        given.insert(built.seed, seed.clone());
        given
    };
    let objective = |inputs: &[Tensor]| -> f64 {
        let mut forward = Graph::new();
        let values: Vec<ValueId> =
            inputs.iter().enumerate().map(|(i, t)| forward.input(&i.to_string(), t.ty.clone())).collect();
        let outputs = forward.add(op, &values).unwrap();
        let result = evaluate(&forward, &values.iter().copied().zip(inputs.iter().cloned()).collect());
        result[outputs[0].0].data.iter().zip(&seed.data).map(|(a, b)| a * b).sum()
    };
    let analytic = evaluate(&built.graph, &given(&inputs));
    for &(index, gradient) in &built.gradients {
        let step = 1e-5;
        let elements = inputs[index].data.len();
        // Large examples are sampled: every element would take minutes.
        for element in (0..elements).step_by((elements / 60).max(1)) {
            let moved = |by: f64| {
                let mut inputs = inputs.clone();
                inputs[index].data[element] += by;
                objective(&inputs)
            };
            let numeric = (moved(step) - moved(-step)) / (2.0 * step);
            let exact = analytic[gradient.0].data[element];
            let error = (numeric - exact).abs() / (1.0 + exact.abs());
            assert!(
                error < 1e-6,
                "{}: gradient of input {index} at {element} is {exact}, differences say {numeric}",
                op.name()
            );
        }
    }
}
