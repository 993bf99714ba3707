//! What a fused operator is made of: the calls that would do the same apart.

use headroom_graph::ops::matmul::{Form, MatMul};
use headroom_graph::{Op, TensorType};

/// One part of a fused call.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// A product of its own.
    Product { op: MatMul, left: TensorType, right: TensorType },
    /// Arithmetic at the rate of these operators' FLOPs.
    Flops { like: &'static [&'static str], flops: f64 },
    /// Data moved at the rate of these operators' bytes.
    Bytes { like: &'static [&'static str], bytes: f64 },
}

/// None for an operator that is not made of others.
pub fn pieces(op: &Op, inputs: &[TensorType], bytes: u64) -> Vec<Piece> {
    let bytes = bytes as f64;
    let moved = |like: &'static [&'static str]| vec![Piece::Bytes { like, bytes }];
    match op {
        Op::Linears(_) => inputs[1..].iter().map(|weight| product(Form::Nt, &inputs[0], weight)).collect(),
        Op::LinearsGradInput(_) => inputs.chunks_exact(2).map(|pair| product(Form::Nn, &pair[0], &pair[1])).collect(),
        Op::LinearsGradWeights(_) => inputs[1..].iter().map(|dy| product(Form::Tn, dy, &inputs[0])).collect(),
        Op::LinearCrossEntropyTrain(_) => head_and_loss(&inputs[0], &inputs[1]),
        Op::FlashAttention(op) => op.sizes(&inputs[0]).map_or(vec![], |sizes| {
            let (pairs, width) = (sizes.visible_pairs() as f64, sizes.head_dim as f64);
            vec![
                Piece::Flops { like: ATTENTION, flops: 4.0 * pairs * width },
                Piece::Bytes { like: &["causal_softmax"], bytes: 8.0 * pairs },
            ]
        }),
        // Scores once more, and the four products of the gradients.
        Op::FlashAttentionGrad(op) => op.forward().sizes(&inputs[0]).map_or(vec![], |sizes| {
            let (pairs, width) = (sizes.visible_pairs() as f64, sizes.head_dim as f64);
            vec![
                Piece::Flops { like: ATTENTION, flops: 10.0 * pairs * width },
                Piece::Bytes { like: &["causal_softmax", "causal_softmax_grad"], bytes: 20.0 * pairs },
            ]
        }),
        Op::SwiGlu(_) => moved(&["silu", "mul"]),
        Op::SwiGluGrad(_) => moved(&["silu_grad", "mul"]),
        Op::AddRmsNorm(_) => moved(&["rms_norm", "add"]),
        Op::RmsScales(_) => moved(&["rms_norm", "add"]),
        Op::AddRmsNormGrad(_) => moved(&["rms_norm_grad", "add"]),
        Op::AdamWAll(_) | Op::AdamWChosen(_) => moved(&["adamw", "squared_norm"]),
        _ => vec![],
    }
}

const ATTENTION: &[&str] = &["attention_scores", "attention_mix", "attention_mix_back"];

fn product(form: Form, left: &TensorType, right: &TensorType) -> Piece {
    Piece::Product { op: MatMul { form }, left: left.clone(), right: right.clone() }
}

/// Logits, loss, and the gradients of input and weight.
fn head_and_loss(x: &TensorType, weight: &TensorType) -> Vec<Piece> {
    let logits = TensorType::new(x.dtype, &[x.sizes()[0], weight.sizes()[0]]);
    let moved = 3.0 * logits.bytes() as f64;
    vec![
        product(Form::Nt, x, weight),
        product(Form::Nn, &logits, weight),
        product(Form::Tn, &logits, x),
        Piece::Bytes { like: &["cross_entropy", "cross_entropy_grad"], bytes: moved },
    ]
}
