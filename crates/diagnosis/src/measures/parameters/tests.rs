//! Steps with a backward pass over 24 parameters and a loop over them.

use super::*;
use crate::fabricated::{Fabricated, MICRO};

const PARAMETERS: i64 = 24;

/// Sizes of the parameter at a place: alternately a matrix and a vector.
fn size(place: i64) -> &'static str {
    if place % 2 == 0 { "64,16" } else { "64" }
}

/// One step: gradients of all parameters on the second thread, then `operators` on each of the `sizes`, 10 µs apart.
fn step(operators: &[&str], sizes: impl Fn(i64) -> String) -> Fabricated {
    let mut made = Fabricated::on("NVIDIA H200");
    made.step(1, 0, 10_000 * MICRO);
    for place in 0..PARAMETERS {
        // The gradient of a linear layer is transposed.
        let dims = if place % 2 == 0 { "16,64" } else { "64" };
        let arguments = format!(r#""Input Dims":[[{dims}]],"Input type":["float"]"#);
        let start = place * 20 * MICRO;
        made.span("cpu_op", "torch::autograd::AccumulateGrad", 2, start, start + 5 * MICRO, &arguments);
    }
    let mut at = 1_000 * MICRO;
    for place in 0..PARAMETERS {
        for operator in operators {
            made.shaped(operator, at, at + 8 * MICRO, &format!("[[{}]]", sizes(place)), "float");
            made.launch(
                (at + MICRO, at + 5 * MICRO),
                "vectorized_elementwise_kernel",
                (at + 6 * MICRO, at + 8 * MICRO),
            );
            at += 10 * MICRO;
        }
    }
    made
}

fn loops(made: &Fabricated, optimizer: &[Span]) -> ParameterLoops {
    let trace = made.trace();
    let view = View::new(&trace);
    parameter_loops(&view, &parameters(&view), optimizer)
}

#[test]
fn parameters_are_what_gradients_are_accumulated_for() {
    let trace = step(&[], |_| String::new()).trace();
    let found = parameters(&View::new(&trace));
    assert_eq!(found.shapes, HashSet::from([vec![16, 64], vec![64]]));
    assert_eq!(found.elements, 12.0 * (16.0 * 64.0 + 64.0));
}

#[test]
fn averages_of_weights_one_by_one_are_a_loop() {
    let found = loops(&step(&["aten::mul_", "aten::add_"], |place| size(place).to_string()), &[]);
    assert_eq!(found.operators_per_step, 48.0);
    assert_eq!(found.operators, ["aten::mul_", "aten::add_"]);
    assert_eq!(found.host, [Span { start: 1_000 * MICRO, end: 1_478 * MICRO }]);
}

#[test]
fn averages_that_replace_the_data_of_parameters_are_a_loop() {
    let operators = ["aten::mul", "aten::mul", "aten::add", "aten::_has_compatible_shallow_copy_type"];
    assert_eq!(loops(&step(&operators, |place| size(place).to_string()), &[]).operators_per_step, 72.0);
}

#[test]
fn activations_one_size_and_optimizers_are_not() {
    let none = |found: ParameterLoops| found.host.is_empty() && found.operators_per_step == 0.0;
    let both = ["aten::mul_", "aten::add_"];
    let activations = |place: i64| if place % 2 == 0 { "32,128" } else { "32,1" }.to_string();
    assert!(none(loops(&step(&both, activations), &[])), "sizes of no parameter");
    assert!(none(loops(&step(&both, |_| "64".to_string()), &[])), "one size again and again is a recurrence");
    let made = step(&both, |place| size(place).to_string());
    assert!(none(loops(&made, &[Span { start: 900 * MICRO, end: 2_000 * MICRO }])), "the optimizer's own");
    assert!(none(loops(&step(&["aten::mm", "aten::add_"], |place| size(place).to_string()), &[])), "products");
}

#[test]
fn values_read_beside_it_do_not_end_a_loop() {
    let mut made = step(&["aten::linalg_vector_norm"], |place| size(place).to_string());
    for place in 0..PARAMETERS {
        let at = 1_000 * MICRO + place * 10 * MICRO + 8 * MICRO + 500;
        made.shaped("aten::item", at, at + MICRO, "[[]]", "float");
    }
    assert_eq!(loops(&made, &[]).operators_per_step, 24.0);
}

#[test]
fn one_update_moves_a_tensor_for_each_operator_and_two_more() {
    let bytes = |operators: &[&str]| {
        let trace = step(operators, |place| size(place).to_string()).trace();
        let view = View::new(&trace);
        let found = update(&view, &parameters(&view), &[view.steps.range()]);
        assert_eq!(found.kernels.len(), operators.len() * 24);
        assert_eq!(found.nanos, 2 * MICRO * found.kernels.len() as i64);
        found.fused_bytes
    };
    let elements = 12.0 * (16.0 * 64.0 + 64.0);
    assert_eq!(bytes(&["aten::lerp_"]), 12.0 * elements);
    assert_eq!(bytes(&["aten::mul_", "aten::add_"]), 16.0 * elements);
    assert_eq!(bytes(&["aten::mul_", "aten::addcmul_", "aten::addcdiv_"]), 28.0 * elements, "two moments");
    let twice = bytes(&["aten::mul_", "aten::mul_", "aten::addcmul_", "aten::addcdiv_"]);
    assert_eq!(twice, 28.0 * elements, "an operator that comes to each of them twice");
}

#[test]
fn lists_of_tensors_go_by_the_parameters() {
    let mut made = step(&[], |_| String::new());
    made.operator("aten::_foreach_addcdiv_", 2_000 * MICRO, 2_040 * MICRO);
    made.launch((2_005 * MICRO, 2_010 * MICRO), "multi_tensor_apply_kernel", (2_020 * MICRO, 2_060 * MICRO));
    let trace = made.trace();
    let view = View::new(&trace);
    let found = update(&view, &parameters(&view), &[view.steps.range()]);
    assert_eq!((found.kernels.len(), found.fused_bytes), (1, 28.0 * 12.0 * (16.0 * 64.0 + 64.0)));
}
