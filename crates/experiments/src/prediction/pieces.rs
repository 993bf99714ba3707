//! Splits a fused operator into the separate calls that would do the same.

use headroom_graph::ops::matmul::{Form, MatMul};
use headroom_graph::{Op, TensorType};

/// One part of a fused call.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// A separate matrix product.
    Product { op: MatMul, left: TensorType, right: TensorType },
    /// Arithmetic at the rate of these operators' FLOPs.
    Flops { like: &'static [&'static str], flops: f64 },
    /// Data moved at the rate of these operators' bytes.
    Bytes { like: &'static [&'static str], bytes: f64 },
}

/// Empty for an operator that does not consist of others.
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
        // The scores again, and the four products of the gradients.
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

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_graph::ops::adamw::Decays;
    use headroom_graph::ops::flash_attention::{FlashAttention, FlashAttentionGrad, Rotation};
    use headroom_graph::ops::{
        adamw_all, adamw_chosen, add_rms_norm, linear_cross_entropy, linears, rms_scales, silu, swiglu,
    };
    use headroom_graph::{Among, Rule};

    /// The form of a product and the sizes of both operands.
    type Product = (Form, [usize; 2], [usize; 2]);

    fn products(pieces: &[Piece]) -> Vec<Product> {
        let sizes = |of: &TensorType| [of.sizes()[0], of.sizes()[1]];
        let one = |piece: &Piece| match piece {
            Piece::Product { op, left, right } => Some((op.form, sizes(left), sizes(right))),
            _ => None,
        };
        pieces.iter().filter_map(one).collect()
    }

    #[test]
    fn joined_products_are_those_that_they_join() {
        let [x, a, b] = [[4, 8], [6, 8], [2, 8]];
        let typed = |sizes: &[[usize; 2]]| sizes.iter().map(|sizes| TensorType::f32(sizes)).collect::<Vec<_>>();
        let of = |op: Op, inputs: &[[usize; 2]]| products(&pieces(&op, &typed(inputs), 0));
        assert_eq!(of(linears::Linears {}.into(), &[x, a, b]), [(Form::Nt, x, a), (Form::Nt, x, b)]);
        let [da, db] = [[4, 6], [4, 2]];
        assert_eq!(of(linears::LinearsGradInput {}.into(), &[da, a, db, b]), [(Form::Nn, da, a), (Form::Nn, db, b)]);
        assert_eq!(of(linears::LinearsGradWeights {}.into(), &[x, da, db]), [(Form::Tn, da, x), (Form::Tn, db, x)]);
    }

    #[test]
    fn a_head_with_its_loss_is_three_products_and_the_logits_moved_three_times() {
        let (x, weight) = (TensorType::f32(&[4, 8]), TensorType::f32(&[10, 8]));
        let inputs = [x, weight, TensorType::i32(&[4]), TensorType::f32(&[1])];
        let found = pieces(&linear_cross_entropy::LinearCrossEntropyTrain { rows: 2 }.into(), &inputs, 99);
        let wanted = [(Form::Nt, [4, 8], [10, 8]), (Form::Nn, [4, 10], [10, 8]), (Form::Tn, [4, 10], [4, 8])];
        assert_eq!(products(&found), wanted);
        let moved = Piece::Bytes { like: &["cross_entropy", "cross_entropy_grad"], bytes: 480.0 };
        assert_eq!((found.len(), &found[3]), (4, &moved));
    }

    #[test]
    fn tiled_attention_is_two_products_of_visible_pairs_and_five_backwards() {
        // Two sequences of 3, two heads of 4: 24 pairs.
        let (heads, kv_heads, seq, scale, rotation) = (2, 1, 3, 0.5, Rotation::Before);
        let q = [TensorType::f32(&[6, 8])];
        let found = pieces(&FlashAttention { heads, kv_heads, seq, scale, rotation }.into(), &q, 7);
        let wanted = [
            Piece::Flops { like: ATTENTION, flops: 4.0 * 24.0 * 4.0 },
            Piece::Bytes { like: &["causal_softmax"], bytes: 8.0 * 24.0 },
        ];
        assert_eq!(found, wanted);
        let found = pieces(&FlashAttentionGrad { heads, kv_heads, seq, scale, rotation }.into(), &q, 7);
        let wanted = [
            Piece::Flops { like: ATTENTION, flops: 10.0 * 24.0 * 4.0 },
            Piece::Bytes { like: &["causal_softmax", "causal_softmax_grad"], bytes: 20.0 * 24.0 },
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn other_fused_operators_move_their_bytes_like_what_they_replace() {
        let like = |op: Op| match pieces(&op, &[], 96).as_slice() {
            [] => None,
            [Piece::Bytes { like, bytes }] if *bytes == 96.0 => Some(like.join(" and ")),
            other => panic!("{other:?}"),
        };
        let (eps, beta1, beta2, weight_decay, decays) = (1e-6, 0.9, 0.999, 0.01, Decays::All);
        assert_eq!(like(swiglu::SwiGlu {}.into()).as_deref(), Some("silu and mul"));
        assert_eq!(like(swiglu::SwiGluGrad {}.into()).as_deref(), Some("silu_grad and mul"));
        assert_eq!(like(add_rms_norm::AddRmsNorm { eps }.into()).as_deref(), Some("rms_norm and add"));
        assert_eq!(like(rms_scales::RmsScales { eps }.into()).as_deref(), Some("rms_norm and add"));
        assert_eq!(like(add_rms_norm::AddRmsNormGrad { eps }.into()).as_deref(), Some("rms_norm_grad and add"));
        let (max_norm, bf16_copies, parameters) = (0.0, 0, 2);
        let all = adamw_all::AdamWAll { parameters, beta1, beta2, eps, weight_decay, decays, max_norm, bf16_copies };
        assert_eq!(like(all.into()).as_deref(), Some("adamw and squared_norm"));
        let (rule, seed) = (Rule::All, 0);
        let chosen = adamw_chosen::AdamWChosen {
            rule,
            among: Among::Parameters,
            seed,
            beta1,
            beta2,
            eps,
            weight_decay,
            decays,
            max_norm,
            bf16_copies,
            parameters,
        };
        assert_eq!(like(chosen.into()).as_deref(), Some("adamw and squared_norm"));
        assert_eq!(like(silu::Silu {}.into()), None);
    }
}
