//! Backward passes through trained and untrained networks, made up by hand.

use super::*;
use crate::fabricated::{Fabricated, MICRO};

const NODE: &str = "autograd::engine::evaluate_function";

/// A head and eight trunk layers are differentiated, the head first; then comes an optimizer's list of tensors.
fn step(list: &str, operator: &str) -> Recomputed {
    step_updated_in(0, list, operator)
}

/// The same, with this many microseconds in the optimizer's kernel.
fn step_updated_in(micros: i64, list: &str, operator: &str) -> Recomputed {
    let mut made = Fabricated::on("NVIDIA H200");
    made.step(1, 0, 20_000 * MICRO);
    for layer in 0..9 {
        let (start, sizes) = ((10 + 200 * layer) * MICRO, if layer == 0 { "[14,256]" } else { "[256,256]" });
        let number = format!(r#""Sequence number":{}"#, 90 - layer);
        made.span("cpu_op", &format!("{NODE}: AddmmBackward0"), 1, start, start + 60 * MICRO, &number);
        made.shaped("aten::mm", start + 5 * MICRO, start + 20 * MICRO, "[[256,64],[64,256]]", "float");
        made.launch((start + 10 * MICRO, start + 15 * MICRO), "gemm", (start + 20 * MICRO, start + 50 * MICRO));
        made.operator(&format!("{NODE}: {ACCUMULATES}"), start + 70 * MICRO, start + 90 * MICRO);
        made.shaped(ACCUMULATES, start + 71 * MICRO, start + 89 * MICRO, &format!("[{sizes}]"), "float");
        made.launch((start + 72 * MICRO, start + 75 * MICRO), "add", (start + 80 * MICRO, start + 85 * MICRO));
    }
    made.span("user_annotation", "Optimizer.step#Adam.step", 1, 4_000 * MICRO, 4_100 * MICRO, "");
    made.span("cpu_op", operator, 1, 4_010 * MICRO, 4_090 * MICRO, &format!(r#""Input Dims":[{list},[]]"#));
    if micros > 0 {
        let call = (4_020 * MICRO, 4_025 * MICRO);
        made.launch(call, "multi_tensor_apply_kernel", (4_030 * MICRO, (4_030 + micros) * MICRO));
    }
    let trace = made.trace();
    unread_gradients(&View::new(&trace), &[Span { start: 4_000 * MICRO, end: 4_100 * MICRO }], &[])
}

#[test]
fn a_quick_update_leaves_the_largest_gradients_unread() {
    // The trunk's gradients and parameters, read and written, are 6.3 MB, and its head's 43 kB.
    let found = step_updated_in(1, "[]", "aten::_fused_adam_");
    assert_eq!((found.parts_per_step, found.kernels.len()), (8.0, 16));
    assert!(step_updated_in(2, "[]", "aten::_fused_adam_").kernels.is_empty(), "9.6 MB can be moved");
}

/// A head and eight trunk layers of 131,072 elements, whose update has this many blocks of 65,536.
fn updated_by_blocks(blocks: u32) -> Recomputed {
    let mut made = Fabricated::on("NVIDIA H200");
    made.step(1, 0, 20_000 * MICRO);
    for layer in 0..9 {
        let (start, sizes) = ((10 + 200 * layer) * MICRO, if layer == 0 { "[14,256]" } else { "[256,512]" });
        let number = format!(r#""Sequence number":{}"#, 90 - layer);
        made.span("cpu_op", &format!("{NODE}: CompiledFunctionBackward"), 1, start, start + 60 * MICRO, &number);
        made.launch((start + 10 * MICRO, start + 15 * MICRO), "gemm", (start + 20 * MICRO, start + 50 * MICRO));
        made.operator(&format!("{NODE}: {ACCUMULATES}"), start + 70 * MICRO, start + 90 * MICRO);
        made.shaped(ACCUMULATES, start + 71 * MICRO, start + 89 * MICRO, &format!("[{sizes}]"), "float");
    }
    made.span("cpu_op", "aten::_fused_adam_", 1, 4_010 * MICRO, 4_090 * MICRO, r#""Input Dims":[[],[]]"#);
    let call = r#""correlation":900"#;
    made.span("cuda_runtime", "cudaLaunchKernel", 1, 4_020 * MICRO, 4_025 * MICRO, call);
    let work = format!(r#"{call},"grid":[{blocks},1,1],"block":[512,1,1]"#);
    made.span("kernel", "multi_tensor_apply_kernel", 7, 4_030 * MICRO, 4_200 * MICRO, &work);
    let trace = made.trace();
    unread_gradients(&View::new(&trace), &[Span { start: 4_000 * MICRO, end: 4_100 * MICRO }], &[])
}

#[test]
fn gradients_beyond_the_blocks_of_an_update_are_unread() {
    // The head needs one block, and each layer of the trunk two.
    assert_eq!((updated_by_blocks(1).parts_per_step, updated_by_blocks(1).kernels.len()), (8.0, 8));
    assert_eq!(updated_by_blocks(5).parts_per_step, 6.0);
    assert!(updated_by_blocks(17).kernels.is_empty(), "all are updated");
    assert!(updated_by_blocks(4).kernels.is_empty(), "no gradient ends there");
}

#[test]
fn a_pass_through_what_nobody_trains_goes_from_the_last_gradient_that_is_read() {
    let found = step("[[14,256],[14]]", "aten::_fused_adam_");
    assert!((found.parts_per_step - 8.0).abs() < 1e-9);
    assert_eq!(found.kernels.len(), 16, "products of the trunk and their sums");
}

#[test]
fn before_it_only_the_products_of_unread_gradients_go() {
    // The innermost layer is a trained adapter.
    let mut made = Fabricated::on("NVIDIA H200");
    made.step(1, 0, 20_000 * MICRO);
    for layer in 0..9 {
        let (start, sizes) = ((10 + 200 * layer) * MICRO, if layer == 8 { "[8,256]" } else { "[256,512]" });
        let number = format!(r#""Sequence number":{}"#, 90 - layer);
        made.span("cpu_op", &format!("{NODE}: MmBackward0"), 1, start, start + 60 * MICRO, &number);
        made.shaped("aten::mm", start + 2 * MICRO, start + 20 * MICRO, "[[64,512],[512,256]]", "float");
        made.launch((start + 10 * MICRO, start + 15 * MICRO), "gemm", (start + 20 * MICRO, start + 50 * MICRO));
        made.shaped("aten::mm", start + 30 * MICRO, start + 50 * MICRO, "[[512,64],[64,256]]", "float");
        made.launch((start + 40 * MICRO, start + 45 * MICRO), "gemm", (start + 50 * MICRO, start + 80 * MICRO));
        made.operator(&format!("{NODE}: {ACCUMULATES}"), start + 70 * MICRO, start + 90 * MICRO);
        made.shaped(ACCUMULATES, start + 71 * MICRO, start + 89 * MICRO, &format!("[{sizes}]"), "float");
    }
    made.span("cpu_op", "aten::_fused_adam_", 1, 4_010 * MICRO, 4_090 * MICRO, r#""Input Dims":[[[8,256]],[]]"#);
    let trace = made.trace();
    let found = unread_gradients(&View::new(&trace), &[Span { start: 4_000 * MICRO, end: 4_100 * MICRO }], &[]);
    assert_eq!(found.kernels.len(), 8, "one product of two in each layer but the last");
}

#[test]
fn gradients_that_are_read_or_whose_reader_does_not_say_are_none() {
    assert!(step("[[14,256],[256,256]]", "aten::_fused_adam_").kernels.is_empty());
    assert!(step("[[14,256]]", "triton_for_fused_0").kernels.is_empty());
    assert!(step("[]", "aten::_fused_adam_").kernels.is_empty(), "no sizes are recorded");
}
/// Nine layers of a judge network and one trained layer behind them, in two steps; the optimizer's list has no sizes.
/// `added` says which gradients of a step are added to existing ones.
fn behind_a_judge(added: impl Fn(i64, i64) -> bool, zeroed: bool) -> Recomputed {
    let mut made = Fabricated::on("NVIDIA H200");
    let zeroing = Span { start: 7_900 * MICRO, end: 7_950 * MICRO };
    for turn in 0..2 {
        let begin = turn * 10_000;
        made.step(turn as u32 + 1, begin * MICRO, (begin + 10_000) * MICRO);
        for layer in 0..10 {
            let start = (begin + 10 + 300 * layer) * MICRO;
            let number = format!(r#""Sequence number":{}"#, 1_000 * (turn + 1) - layer);
            made.span("cpu_op", &format!("{NODE}: ConvolutionBackward0"), 1, start, start + 60 * MICRO, &number);
            let sizes = "[[8,64,12,12],[8,64,12,12],[64,64,3,3]]";
            made.shaped("aten::convolution_backward", start + 2 * MICRO, start + 58 * MICRO, sizes, "float");
            for (nth, kernel) in ["sm90_xmma_dgrad", "sm90_xmma_wgrad"].into_iter().enumerate() {
                let call = start + (5 + 20 * nth as i64) * MICRO;
                made.launch((call, call + 4 * MICRO), kernel, (call + 5 * MICRO, call + 15 * MICRO));
            }
            let cast = format!("{NODE}: ToCopyBackward0");
            made.operator(&cast, start + 70 * MICRO, start + 90 * MICRO);
            made.launch((start + 72 * MICRO, start + 75 * MICRO), "cast", (start + 80 * MICRO, start + 85 * MICRO));
            made.operator(&format!("{NODE}: {ACCUMULATES}"), start + 100 * MICRO, start + 120 * MICRO);
            made.shaped(ACCUMULATES, start + 101 * MICRO, start + 119 * MICRO, "[[64,64,3,3]]", "float");
            if added(turn, layer) {
                made.operator("aten::add_", start + 102 * MICRO, start + 118 * MICRO);
                let call = (start + 103 * MICRO, start + 106 * MICRO);
                made.launch(call, "add", (start + 110 * MICRO, start + 115 * MICRO));
            }
        }
    }
    if zeroed {
        made.operator("aten::_foreach_zero_", zeroing.start + MICRO, zeroing.end - MICRO);
    }
    let trace = made.trace();
    let optimizer = Span { start: 8_000 * MICRO, end: 8_100 * MICRO };
    unread_gradients(&View::new(&trace), &[optimizer], &[zeroing])
}

/// An untrained model of five layers, called after a trained one; `first` is the node that its pass ends with.
fn beside_a_reference(first: &str) -> Recomputed {
    let mut made = Fabricated::on("NVIDIA H200");
    made.step(1, 0, 20_000 * MICRO);
    for layer in 0..10 {
        let start = (10 + 200 * layer) * MICRO;
        let number = format!(r#""Sequence number":{}"#, 90 - layer);
        let name = if layer == 4 { first } else { "MmBackward0" };
        made.span("cpu_op", &format!("{NODE}: {name}"), 1, start, start + 60 * MICRO, &number);
        made.shaped("aten::mm", start + 2 * MICRO, start + 20 * MICRO, "[[64,512],[512,256]]", "float");
        made.launch((start + 10 * MICRO, start + 15 * MICRO), "gemm", (start + 20 * MICRO, start + 50 * MICRO));
        made.shaped("aten::mm", start + 30 * MICRO, start + 50 * MICRO, "[[512,64],[64,256]]", "float");
        made.launch((start + 40 * MICRO, start + 45 * MICRO), "gemm", (start + 50 * MICRO, start + 80 * MICRO));
        made.operator(&format!("{NODE}: {ACCUMULATES}"), start + 70 * MICRO, start + 90 * MICRO);
        let sizes = if layer < 5 { "[256,512]" } else { "[8,256]" };
        made.shaped(ACCUMULATES, start + 71 * MICRO, start + 89 * MICRO, &format!("[{sizes}]"), "float");
    }
    made.span("cpu_op", "aten::_fused_adam_", 1, 4_010 * MICRO, 4_090 * MICRO, r#""Input Dims":[[[8,256]],[]]"#);
    let trace = made.trace();
    unread_gradients(&View::new(&trace), &[Span { start: 4_000 * MICRO, end: 4_100 * MICRO }], &[])
}

/// Three steps of a critic whose pass continues through the painter, and of the painter's own pass. The critic's update
/// names its tensors, the painter's does not. `kept` says whether the painter's pass adds to what the critic's left.
fn critic_and_painter(kept: bool) -> Recomputed {
    let mut made = Fabricated::on("NVIDIA H200");
    let mut optimizer = Vec::new();
    for turn in 0..3 {
        let begin = turn * 10_000;
        made.step(turn as u32 + 1, begin * MICRO, (begin + 10_000) * MICRO);
        // The critic has two layers and the painter six; its own pass comes second.
        for layer in 0..14i64 {
            let start = (begin + 10 + 200 * layer + if layer < 8 { 0 } else { 1_000 }) * MICRO;
            let number = 1_000 * (turn + 1) - layer + if layer < 8 { 0 } else { 100 };
            let number = format!(r#""Sequence number":{number}"#);
            made.span("cpu_op", &format!("{NODE}: MmBackward0"), 1, start, start + 60 * MICRO, &number);
            made.shaped("aten::mm", start + 2 * MICRO, start + 50 * MICRO, "[[64,512],[512,256]]", "float");
            made.launch((start + 10 * MICRO, start + 15 * MICRO), "gemm", (start + 20 * MICRO, start + 50 * MICRO));
            made.operator(&format!("{NODE}: {ACCUMULATES}"), start + 70 * MICRO, start + 90 * MICRO);
            let sizes = if layer < 2 { "[6,64]" } else { "[256,256]" };
            made.shaped(ACCUMULATES, start + 71 * MICRO, start + 89 * MICRO, &format!("[{sizes}]"), "float");
            if (2..8).contains(&layer) || (layer >= 8 && kept) {
                made.operator("aten::add_", start + 72 * MICRO, start + 88 * MICRO);
            }
        }
        for (at, list) in [(begin + 1_700, "[[6,64],[6,64]]"), (begin + 5_000, "[]")] {
            let span = Span { start: at * MICRO, end: (at + 100) * MICRO };
            let list = format!(r#""Input Dims":[{list},[]]"#);
            made.span("cpu_op", "aten::_fused_adam_", 1, span.start + MICRO, span.end - MICRO, &list);
            optimizer.push(span);
        }
    }
    let trace = made.trace();
    unread_gradients(&View::new(&trace), &optimizer, &[])
}

#[test]
fn gradients_that_are_cleared_before_an_optimizer_reads_them_are_for_nothing() {
    let found = critic_and_painter(false);
    assert_eq!((found.parts_per_step, found.kernels.len()), (6.0, 3 * 6), "the critic's pass through the painter");
    assert!(critic_and_painter(true).kernels.is_empty(), "the painter learns from both passes");
}

#[test]
fn a_model_beside_the_one_that_is_trained_is_differentiated_for_nothing() {
    assert_eq!(beside_a_reference("EmbeddingBackward0").kernels.len(), 10, "both products of its five layers");
    assert_eq!(beside_a_reference("MmBackward0").kernels.len(), 5, "its gradient may be wanted before it");
}

#[test]
fn gradients_that_grow_from_step_to_step_are_read_by_nobody() {
    let found = behind_a_judge(|_, layer| layer < 9, false);
    assert!((found.parts_per_step - 9.0).abs() < 1e-9);
    assert_eq!(
        found.kernels.len(),
        2 * 9 * 3,
        "the gradient by the weight, its cast and its sum; not the one that goes on"
    );
}

#[test]
fn sums_of_micro_batches_and_gradients_that_are_filled_with_zeros_do_not_tell() {
    assert!(behind_a_judge(|turn, _| turn == 1, false).kernels.is_empty(), "an update every other step");
    assert!(behind_a_judge(|turn, layer| turn == 1 && layer < 9, false).kernels.is_empty());
    assert!(behind_a_judge(|_, _| true, false).kernels.is_empty());
    assert!(behind_a_judge(|_, layer| layer < 9, true).kernels.is_empty());
}
