//! Checks every op's gradient against finite differences, in double precision with the reference kernels. A new op is
//! covered through its examples.

use headroom_engine::examples as fill;
use headroom_engine::reference::{Tensor, evaluate, run};
use headroom_graph::op::{Example, Fill, Op};
use headroom_graph::{Graph, GraphError, ValueId, differentiate};
use std::collections::{BTreeMap, BTreeSet};

/// Ops of the backward pass and the optimizer. Everything else must have a gradient.
const WITHOUT_GRADIENT: [&str; 39] = [
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "arrive",
    "cached_attention",
    "embedding_grad",
    "rms_norm_grad",
    "causal_softmax_grad",
    "silu_grad",
    "cross_entropy_grad",
    "accumulate",
    "zero",
    "squared_norm",
    "clip_scale",
    "gradient_norm",
    "adamw",
    "adamw_all",
    "sgd",
    "muon_momentum",
    "unit_norm",
    "blend",
    "muon_update",
    "choose",
    "adamw_chosen",
    "linears_grad_input",
    "linears_grad_weights",
    "swiglu_grad",
    "add_rms_norm_grad",
    "flash_attention_grad",
    "linear_cross_entropy",
    // Computes its own gradients: tested below.
    "linear_cross_entropy_train",
    // Inserted after differentiation, as a precision of the products.
    "rms_scales",
    "quantize",
    "fp8_product",
    "update_scales",
    "layer_norm_grad",
    "gelu_grad",
    "sum_rows",
    "join",
];

#[test]
fn the_fused_loss_makes_the_gradients_of_its_loss() {
    for example in Op::examples().iter().filter(|example| matches!(example.op, Op::LinearCrossEntropyTrain(_))) {
        let inputs = fill::inputs(example);
        let outputs_of = |inputs: &[Tensor]| {
            let types: Vec<_> = inputs.iter().map(|input| input.ty.clone()).collect();
            let mut outputs: Vec<Tensor> = example.op.outputs(&types).unwrap().iter().map(Tensor::zeros).collect();
            run(&example.op, &mut inputs.to_vec(), &mut outputs);
            outputs
        };
        let (made, arrived, step) = (outputs_of(&inputs), inputs[3].data[0], 1e-5);
        for index in 0..2 {
            for element in (0..inputs[index].data.len()).step_by(7) {
                let moved = |by: f64| {
                    let mut inputs = inputs.clone();
                    inputs[index].data[element] += by;
                    outputs_of(&inputs)[0].data[0]
                };
                let numeric = arrived * (moved(step) - moved(-step)) / (2.0 * step);
                let exact = made[1 + index].data[element];
                assert!(
                    (numeric - exact).abs() < 1e-8,
                    "input {index} at {element}: {exact}, differences say {numeric}"
                );
            }
        }
    }
}

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
    /// Outputs that have a gradient, each with the value of that gradient.
    seeds: Vec<(ValueId, ValueId)>,
    /// For each differentiable input, its index in the example and its gradient.
    gradients: Vec<(usize, ValueId)>,
}

fn built(example: &Example) -> Result<Built, GraphError> {
    let mut graph = Graph::new();
    let updates = example.op.updates();
    let inputs: Vec<ValueId> = example
        .inputs
        .iter()
        .enumerate()
        .map(|(index, (ty, _))| match updates.contains(&index) {
            true => graph.parameter(&format!("input{index}"), ty.clone()),
            false => graph.input(&format!("input{index}"), ty.clone()),
        })
        .collect();
    let outputs = graph.add(example.op, &inputs)?;
    let seeds: Vec<(ValueId, ValueId)> = outputs
        .iter()
        .take(differentiable_outputs(&example.op, outputs.len()))
        .map(|&output| (output, graph.input(&format!("seed{}", output.0), graph.ty(output).clone())))
        .collect();
    if seeds.is_empty() {
        return Err(GraphError::NotDifferentiable { op: example.op.name(), module: String::new() });
    }
    let wanted: Vec<usize> = (0..inputs.len()).filter(|&index| is_differentiable(example, index)).collect();
    let values: Vec<ValueId> = wanted.iter().map(|&index| inputs[index]).collect();
    let gradients = differentiate(&mut graph, &seeds, &values)?;
    graph.validate("differentiate")?;
    Ok(Built { graph, inputs, seeds, gradients: wanted.into_iter().zip(gradients).collect() })
}

/// Only the backward pass reads the logsumexp that attention keeps.
fn differentiable_outputs(op: &Op, outputs: usize) -> usize {
    if matches!(op, Op::FlashAttention(_)) { 1 } else { outputs }
}

/// True for floats except the rotation tables, which are constants of the model.
fn is_differentiable(example: &Example, index: usize) -> bool {
    let first_table = match example.op {
        Op::Rope(_) => 1,
        Op::FlashAttention(_) => 3,
        _ => usize::MAX,
    };
    example.inputs[index].0.dtype.is_float() && index < first_table
}

fn check(example: &Example) {
    let op = example.op;
    let built = built(example).unwrap_or_else(|error| panic!("{}: {error}", op.name()));
    let inputs = fill::inputs(example);
    let seeds: Vec<Tensor> = (77..)
        .zip(&built.seeds)
        .map(|(seed, (output, _))| fill::tensor(built.graph.ty(*output), Fill::Normal, seed))
        .collect();
    let mut given: BTreeMap<ValueId, Tensor> = built.inputs.iter().copied().zip(inputs.iter().cloned()).collect();
    given.extend(built.seeds.iter().map(|&(_, value)| value).zip(seeds.iter().cloned()));
    let analytic = evaluate(&built.graph, &given);
    let objective = |inputs: &[Tensor]| -> f64 {
        let types: Vec<_> = inputs.iter().map(|input| input.ty.clone()).collect();
        let mut outputs: Vec<Tensor> = op.outputs(&types).unwrap().iter().map(Tensor::zeros).collect();
        run(&op, &mut inputs.to_vec(), &mut outputs);
        let dot =
            |(output, seed): (&Tensor, &Tensor)| output.data.iter().zip(&seed.data).map(|(a, b)| a * b).sum::<f64>();
        outputs.iter().zip(&seeds).map(dot).sum()
    };
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
