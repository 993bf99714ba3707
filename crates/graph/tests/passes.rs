//! The pass driver: it finds at once what a pass breaks, and names the pass.

use headroom_graph::pass::{DROP_UNUSED, Pass, apply};
use headroom_graph::{Graph, GraphError};

const GRAPH: &str = "\
input x: f32[2, 3]
parameter w: f32[3]
%2: f32[2, 3] = rms_norm{eps=0.1}(x, w) @ forward norm
%3: f32[2, 3] = silu(%2) @ forward act
%4: f32[2, 3] = mul(%2, %2) @ forward dead
output y = %3
";

#[test]
fn nodes_that_nothing_uses_are_dropped() {
    let (graph, log) = apply(GRAPH.parse().unwrap(), &[DROP_UNUSED]).unwrap();
    let left: Vec<&str> = graph.nodes().iter().map(|node| node.op.name()).collect();
    assert_eq!(left, ["rms_norm", "silu"]);
    assert_eq!((log[0].name, log[0].nodes_before, log[0].nodes_after), ("drop-unused", 3, 2));
}

#[test]
fn a_pass_that_loses_a_parameter_is_named() {
    let lossy = Pass {
        name: "lossy",
        rewrite: |_| "input x: f32[2, 3]\n%1: f32[2, 3] = silu(x) @ forward act\noutput y = %1\n".parse(),
    };
    let error = apply(GRAPH.parse().unwrap(), &[lossy]).unwrap_err();
    assert!(matches!(&error, GraphError::Invalid { after, .. } if after == "lossy"), "{error}");
}

#[test]
fn an_error_of_a_pass_stops_the_list() {
    let failing = Pass { name: "failing", rewrite: |_| Err(GraphError::NoGradient { name: "w".into() }) };
    assert!(apply(GRAPH.parse().unwrap(), &[DROP_UNUSED, failing, DROP_UNUSED]).is_err());
}

#[test]
fn a_parameter_is_not_read_after_its_update() {
    let text = "\
input x: f32[2, 3]
parameter w: f32[2, 3]
accumulate(w, x) @ optimizer optimizer
%2: f32[2, 3] = silu(w) @ optimizer late
output y = %2
";
    let error = text.parse::<Graph>().unwrap_err().to_string();
    assert!(error.contains("touches w after its update"), "{error}");
}
