//! Norms on an H200 (4.8 TB/s), calculated by hand.

use super::*;
use crate::fabricated::{Fabricated, MICRO};

/// One step of 10 ms with one norm on `dims`, whose kernels take 1 and 3 ms.
fn norm(operator: &str, kernel: &str, dims: &str) -> Norms {
    let mut made = Fabricated::on("NVIDIA H200");
    made.step(1, 0, 10_000 * MICRO);
    made.shaped(operator, 0, 40 * MICRO, dims, "c10::BFloat16");
    made.launch((5 * MICRO, 10 * MICRO), kernel, (20 * MICRO, 1_020 * MICRO));
    made.launch((15 * MICRO, 18 * MICRO), kernel, (1_020 * MICRO, 4_020 * MICRO));
    made.operator("aten::convolution", 50 * MICRO, 90 * MICRO);
    made.launch((55 * MICRO, 60 * MICRO), "nchwToNhwcKernel<bf16>", (4_020 * MICRO, 4_120 * MICRO));
    norms(&View::new(&made.trace()))
}

#[test]
fn a_norm_needs_its_bytes_times_its_passes() {
    // 256 · 64 · 112 · 112 in bf16: 411 MB, 85.6 µs per pass.
    let images = "[[256,64,112,112],[64],[64]]";
    let once = 2.0 * (256.0 * 64.0 * 112.0 * 112.0) / 4.8e12;
    for (operator, usual, fewest) in [
        ("aten::native_batch_norm", 3.0, 2.0),
        ("aten::cudnn_batch_norm", 3.0, 2.0),
        ("aten::native_batch_norm_backward", 5.0, 3.0),
        ("aten::native_group_norm", 3.0, 2.0),
        ("aten::native_layer_norm", 2.0, 2.0),
        ("aten::_fused_rms_norm_backward", 5.0, 3.0),
    ] {
        let found = norm(operator, "batch_norm_kernel", images);
        assert!((found.least_seconds - usual * once).abs() < 1e-8, "{operator}: {}", found.least_seconds);
        assert!((found.seconds - 4e-3).abs() < 1e-12 && found.calls == 1);
        let fewest_nanos: i64 = found.kernels.iter().map(|kernel| kernel.fewest_nanos).sum();
        assert!((fewest_nanos as f64 / 1e9 - fewest * once).abs() < 1e-8, "{operator}: {fewest_nanos}");
        // In proportion to their time: a quarter and three quarters.
        assert!((found.kernels[1].expected_nanos - 3 * found.kernels[0].expected_nanos).abs() <= 3);
        let expected_nanos: i64 = found.kernels.iter().map(|kernel| kernel.expected_nanos).sum();
        assert!((0.7 * expected_nanos as f64 / 1e9 - usual * once).abs() < 1e-8, "{operator}: {expected_nanos}");
        assert_eq!(found.operator, operator);
    }
}

#[test]
fn images_by_plane_are_told_from_channels_last() {
    let images = "[[256,64,112,112],[64],[64]]";
    let by_plane = |kernel: &str, dims: &str| norm("aten::native_batch_norm", kernel, dims).is_by_plane;
    assert!(by_plane("void at::native::batch_norm_backward_kernel<c10::BFloat16>", images));
    assert!(by_plane("void cudnn::bn_bw_1C11_kernel_new<float>", images));
    assert!(!by_plane("void at::native::batch_norm_backward_reduce_channels_last_kernel<4>", images));
    assert!(!by_plane("void cudnn::batchnorm_fwtr_nhwc_semiPersist<__nv_bfloat16>", images));
    assert!(!by_plane("void at::native::batch_norm_backward_kernel<float>", "[[4096,1024],[1024]]"), "no images");
    assert_eq!(norm("aten::native_batch_norm", "batch_norm", images).conversions, [2]);
}

#[test]
fn a_short_kernel_is_held_against_the_shortest_there_is() {
    let found = norm("aten::native_layer_norm", "layer_norm", "[[8,8],[8]]");
    assert!((found.least_seconds - 6e-6).abs() < 1e-12, "{}", found.least_seconds);
}

#[test]
fn without_shapes_or_a_norm_there_is_nothing_to_hold() {
    assert_eq!(norm("aten::native_layer_norm", "layer_norm", "[]").calls, 0);
    assert_eq!(norm("aten::relu", "relu", "[[256,64,112,112]]").calls, 0);
}

#[test]
fn batch_norms_replayed_from_a_graph_are_held_against_the_kernel_that_applies_them() {
    let mut made = Fabricated::on("NVIDIA H200");
    made.step(1, 0, 20_000 * MICRO);
    let mut at = 100 * MICRO;
    for (kernel, micros) in [
        ("void at::native::batch_norm_collect_statistics_kernel<float>", 1_700),
        ("void at::native::batch_norm_transform_input_kernel<float>", 300),
        ("void at::native::batch_norm_backward_kernel<float>", 3_700),
        ("cudnn::nhwcToNchwKernel<float>", 100),
    ] {
        made.launch((at - 10 * MICRO, at - 5 * MICRO), kernel, (at, at + micros * MICRO));
        at += micros * MICRO;
    }
    let found = norms(&View::new(&made.trace()));
    assert!(found.is_by_plane && found.calls == 2);
    assert!((found.seconds - 5.7e-3).abs() < 1e-9, "{}", found.seconds);
    // A pass takes 150 µs: one for the statistics, five for the gradient, two for the kernel itself.
    assert!((found.least_seconds - 1.2e-3).abs() < 1e-9, "{}", found.least_seconds);
    let expected: Vec<i64> = found.kernels.iter().map(|kernel| kernel.expected_nanos / MICRO).collect();
    assert_eq!((expected, found.conversions), (vec![150, 750], vec![3]));
    assert_eq!(found.kernels[1].fewest_nanos, 300 * MICRO);
}
