//! The printed form of a graph: it parses back to the same graph, and parse errors say where.

use headroom_graph::Graph;

const LAYER: &str = "\
input x: f32[4, 6]
parameter w: f32[6]
parameter up: f32[8, 6]
%3: f32[4, 6] = rms_norm{eps=0.000001}(x, w) @ forward norm
%4: f32[4, 8] = matmul{form=nt}(%3, up) @ forward mlp.up_proj
input seed: f32[4, 8]
state first_moment.w: f32[6] optimizer_state
%7: f32[4, 6] = matmul{form=nn}(seed, up) @ backward mlp.up_proj
%8: f32[4, 6], %9: f32[6] = rms_norm_grad{eps=0.000001}(x, w, %7) @ backward norm
accumulate(first_moment.w, %9) @ optimizer optimizer
output y = %4
output dx = %8
";

#[test]
fn a_graph_prints_as_it_was_parsed() {
    let graph: Graph = LAYER.parse().unwrap();
    assert_eq!(graph.to_string(), LAYER);
    assert_eq!(graph.to_string().parse::<Graph>().unwrap(), graph);
}

#[test]
fn a_mistake_is_named_with_its_line() {
    let check = |text: &str, line: &str, what: &str| {
        let error = text.parse::<Graph>().unwrap_err().to_string();
        assert!(error.contains(line) && error.contains(what), "{error}");
    };
    check("input x: f32[2\n", "line 1", "closing bracket");
    check("input x: f32[2]\ninput x: f32[2]\n", "line 2", "named twice");
    check("input x: f32[2, 3]\n%1: f32[2, 3] = sliu(x) @ forward m\n", "line 2", "no op `sliu`");
    check("input x: f32[2, 3]\n%1: f32[2, 2] = silu(x) @ forward m\n", "line 2", "the op makes f32[2, 3]");
    check("input x: f32[2, 3]\n%1: f32[2, 3] = silu(y) @ forward m\n", "line 2", "`y` is not known here");
    check("input x: f32[2, 3]\n%1: f32[2, 3] = silu(x) @ sideways m\n", "line 2", "no phase `sideways`");
    check("input x: f32[2, 3]\n%1: f32[2, 3] = mul(x) @ forward m\n", "line 2", "takes 2 inputs, has 1");
    check(
        "input x: f32[2, 3]\n%1: f32[2, 3] = rms_norm{epsilon=1}(x, x) @ forward m\n",
        "line 2",
        "no attribute `epsilon`",
    );
    check(
        "input a: f32[2, 3]\ninput b: f32[2, 3]\n%2: f32[2, 2] = matmul{form=nn}(a, b) @ forward m\n",
        "line 3",
        "inner sizes",
    );
}
