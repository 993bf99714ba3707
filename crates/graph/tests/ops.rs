//! Checks every op by its examples: outputs, cost, updates, sent bytes, rejected inputs, and the nodes of its gradient.
//!
//! The engine's tests check gradients against finite differences; these tests pin down their nodes.

use std::collections::BTreeSet;
use std::fmt::Write;

use headroom_graph::op::Example;
use headroom_graph::{DType, Graph, GraphError, Op, TensorType, ValueId, differentiate};
use insta::assert_snapshot;

#[test]
fn every_op_has_examples_and_parses_back_from_its_attributes() {
    let with_example: BTreeSet<&str> = Op::examples().iter().map(|example| example.op.name()).collect();
    assert_eq!(with_example, Op::NAMES.iter().copied().collect());
    for example in Op::examples() {
        let attributes = example.op.attributes();
        let found: Vec<(&str, &str)> = attributes.iter().map(|(name, text)| (*name, text.as_str())).collect();
        assert_eq!(Op::parse(example.op.name(), &found), Ok(example.op));
        let unknown = [found.as_slice(), &[("sideways", "1")]].concat();
        assert!(Op::parse(example.op.name(), &unknown).is_err_and(|error| error.contains("sideways")));
        if let Some((first, rest)) = found.split_first() {
            assert!(Op::parse(example.op.name(), rest).is_err_and(|error| error.contains(first.0)));
        }
    }
}

#[test]
fn ops_make_cost_update_and_send() {
    let mut text = String::new();
    for example in Op::examples() {
        let (op, inputs) = (example.op, types(&example));
        let outputs = op.outputs(&inputs).unwrap_or_else(|error| panic!("{}: {error}", spelled(&example.op)));
        write!(text, "{}({}) makes {}", spelled(&op), list(&inputs), list(&outputs)).unwrap();
        write!(text, ": {} FLOPs, {} bytes", op.flops(&inputs, &outputs), op.bytes(&inputs, &outputs)).unwrap();
        let updates = op.updates();
        let parts = [
            (!updates.is_empty()).then(|| format!("updates {updates:?}")),
            op.is_product().then(|| "a product".to_string()),
            op.is_instrumentation().then(|| "instrumentation".to_string()),
            op.is_collective().then(|| format!("sends {} bytes", op.sent_bytes(&inputs, &outputs))),
        ];
        parts.iter().flatten().for_each(|part| write!(text, ", {part}").unwrap());
        text.push('\n');
    }
    assert_snapshot!(text);
}

/// Labels give input and axis: `1.0` is the second input with its first axis one longer; `1.deeper` that input with an
/// extra axis.
#[test]
fn ops_take_and_refuse_other_inputs() {
    let mut text = String::new();
    for example in Op::examples() {
        let (op, inputs) = (example.op, types(&example));
        let (mut taken, mut refused) = (Vec::new(), Vec::new());
        let mut tried = |what: String, inputs: &[TensorType]| match op.outputs(inputs) {
            Ok(_) => taken.push(what),
            Err(_) => refused.push(what),
        };
        tried("one fewer".into(), &inputs[..inputs.len() - 1]);
        tried("one more".into(), &[inputs.as_slice(), &inputs[..1]].concat());
        for (index, input) in inputs.iter().enumerate() {
            let mut with = |what: String, other: TensorType| {
                let mut changed = inputs.clone();
                changed[index] = other;
                tried(format!("{index}.{what}"), &changed);
            };
            for axis in 0..input.sizes().len() {
                let mut sizes = input.sizes().to_vec();
                sizes[axis] += 1;
                with(axis.to_string(), TensorType::new(input.dtype, &sizes));
            }
            with("deeper".into(), TensorType::new(input.dtype, &[&[1], input.sizes()].concat()));
            for dtype in [DType::F32, DType::Bf16, DType::I32].into_iter().filter(|dtype| *dtype != input.dtype) {
                with(dtype.to_string(), TensorType::new(dtype, input.sizes()));
            }
        }
        writeln!(text, "{}({})", spelled(&op), list(&inputs)).unwrap();
        writeln!(text, "  takes: {}\n  refuses: {}", taken.join(", "), refused.join(", ")).unwrap();
    }
    assert_snapshot!(text);
}

#[test]
fn ops_differentiate_to_these_nodes() {
    let mut text = String::new();
    for example in Op::examples() {
        writeln!(text, "{}({})", spelled(&example.op), list(&types(&example))).unwrap();
        match gradient(&example) {
            Ok(graph) => graph.to_string().lines().skip(example.inputs.len()).for_each(|line| {
                writeln!(text, "  {line}").unwrap();
            }),
            Err(error) => writeln!(text, "  {error}").unwrap(),
        }
    }
    assert_snapshot!(text);
}

/// The op with a gradient at each of its outputs, and the gradients of its floating-point inputs.
fn gradient(example: &Example) -> Result<Graph, GraphError> {
    let mut graph = Graph::new();
    let updates = example.op.updates();
    let mut inputs = Vec::new();
    for (index, (ty, _)) in example.inputs.iter().enumerate() {
        let name = format!("input{index}");
        inputs.push(match updates.contains(&index) {
            true => graph.parameter(&name, ty.clone()),
            false => graph.input(&name, ty.clone()),
        });
    }
    let outputs = graph.add(example.op, &inputs)?;
    // Only the backward pass reads the logsumexp that attention keeps.
    let count = if matches!(example.op, Op::FlashAttention(_)) { 1 } else { outputs.len() };
    let mut seeds = Vec::new();
    for &output in &outputs[..count] {
        let ty = graph.ty(output).clone();
        seeds.push((output, graph.input(&format!("seed{}", output.0), ty)));
    }
    // Rotation tables are constants of the model.
    let first_table = match example.op {
        Op::Rope(_) => 1,
        Op::FlashAttention(_) => 3,
        _ => usize::MAX,
    };
    let wanted: Vec<ValueId> = inputs
        .iter()
        .enumerate()
        .filter(|(index, input)| *index < first_table && graph.ty(**input).dtype.is_float())
        .map(|(_, input)| *input)
        .collect();
    let gradients = differentiate(&mut graph, &seeds, &wanted)?;
    graph.validate("differentiate")?;
    for (&value, gradient) in wanted.iter().zip(gradients) {
        let name = format!("d{}", graph.get(value).name);
        graph.output(&name, gradient);
    }
    Ok(graph)
}

fn types(example: &Example) -> Vec<TensorType> {
    example.inputs.iter().map(|(ty, _)| ty.clone()).collect()
}

fn list(types: &[TensorType]) -> String {
    let types: Vec<String> = types.iter().map(TensorType::to_string).collect();
    types.join(", ")
}

fn spelled(op: &Op) -> String {
    let attributes = op.attributes();
    let attributes: Vec<String> = attributes.iter().map(|(name, value)| format!("{name}={value}")).collect();
    if attributes.is_empty() { op.name().into() } else { format!("{}{{{}}}", op.name(), attributes.join(", ")) }
}
