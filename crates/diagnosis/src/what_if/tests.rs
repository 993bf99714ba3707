//! Models of fixes on an H200 (494 TFLOP/s in TF32, 989 in bf16, 4.8 TB/s), calculated by hand.

use super::*;
use crate::fabricated::{Fabricated, MICRO};
use crate::finding::{Confidence, Effort, Severity};
use crate::trace_rules::Found;
use headroom_trace::Trace;

/// One step of 10 ms on an H200.
fn step() -> Fabricated {
    let mut made = Fabricated::on("NVIDIA H200");
    made.step(1, 0, 10_000 * MICRO);
    made
}

fn finding(cause: Cause, removal: Removal) -> TraceFinding {
    let mut found = Found::new(None, "a cost".to_string(), "do less");
    found.removal = removal;
    TraceFinding {
        code: "TR000",
        name: "a-cost",
        cause,
        severity: Severity::Low,
        share_of_step: None,
        saving_bound_share: None,
        saving_expected_share: 0.0,
        message: String::new(),
        function: None,
        place: None,
        sources: Vec::new(),
        evidence: Vec::new(),
        advice: String::new(),
        effort: Effort::Low,
        confidence: Confidence::High,
        found,
    }
}

/// Bound and expected removal of a finding that asks for `asked`.
fn filled(trace: &Trace, cause: Cause, asked: Removal, measures: &Measures) -> (Removal, Removal) {
    let mut findings = [finding(cause, asked)];
    fill(&View::new(trace), measures, &mut findings);
    let [finding] = findings;
    (finding.found.removal, finding.found.expected.expect("is filled in"))
}

fn device(spans: &[(usize, i64)]) -> Removal {
    Removal { device: spans.iter().copied().collect(), ..Removal::default() }
}

fn host(spans: &[(i64, i64)]) -> Removal {
    let spans = spans.iter().map(|&(start, end)| Span { start: start * MICRO, end: end * MICRO });
    Removal { host: spans.collect(), ..Removal::default() }
}

/// Checks the nanoseconds left of a device span, within 1 ns.
fn assert_left(removal: &Removal, at: usize, wanted: f64) {
    let left = removal.device.get(&at).copied().unwrap_or(-1) as f64;
    assert!((left - wanted).abs() <= 1.0, "span {at}: {left}, wanted {wanted}");
}

#[test]
fn attention_goes_by_the_flash_roof() {
    // 2 · 64 · 2048 · 128 · 2048 = 68.7 GFLOP: 347,746 ns at 40% of 494 TFLOP/s; half of it at the full rate takes
    // 69,549.
    let mut made = step();
    made.shaped("aten::bmm", 0, 40 * MICRO, "[[64,2048,128],[64,128,2048]]", "float");
    made.launch((5 * MICRO, 10 * MICRO), "gemm", (20 * MICRO, 2_020 * MICRO));
    made.operator("aten::softmax", 50 * MICRO, 90 * MICRO);
    made.launch((55 * MICRO, 60 * MICRO), "softmax", (2_020 * MICRO, 3_020 * MICRO));
    made.operator("aten::copy_", 100 * MICRO, 140 * MICRO);
    made.launch((105 * MICRO, 110 * MICRO), "copy_kernel", (3_020 * MICRO, 3_420 * MICRO));
    let mut measures = Measures::default();
    measures.patterns.attention.products = vec![0];
    let (bound, expected) = filled(&made.trace(), Cause::AttentionMaterialised, device(&[(1, 0)]), &measures);
    let flops = 2.0 * 64.0 * 2048.0 * 128.0 * 2048.0;
    assert_left(&expected, 0, flops / (0.4 * 494e12) * 1e9);
    assert_left(&bound, 0, 0.5 * flops / 494e12 * 1e9);
    assert_left(&expected, 1, 0.0);
    assert_eq!((expected.device.get(&2), bound.device.get(&2)), (None, None), "copies stay");
    // For an unknown part, nothing but the requested removal is known.
    made.header = made.header.replace("H200", "of tomorrow");
    let (bound, expected) = filled(&made.trace(), Cause::AttentionMaterialised, device(&[(1, 0)]), &measures);
    assert_eq!((bound.device.len(), expected.device.len()), (1, 1));
}

#[test]
fn attention_in_half_precision_goes_by_its_own_rate() {
    let mut made = step();
    made.shaped("aten::bmm", 0, 40 * MICRO, "[[64,2048,128],[64,128,2048]]", "c10::BFloat16");
    made.launch((5 * MICRO, 10 * MICRO), "gemm", (20 * MICRO, 2_020 * MICRO));
    let mut measures = Measures::default();
    measures.patterns.attention.products = vec![0];
    let (bound, expected) = filled(&made.trace(), Cause::AttentionMaterialised, device(&[(0, 0)]), &measures);
    let flops = 2.0 * 64.0 * 2048.0 * 128.0 * 2048.0;
    assert_left(&expected, 0, flops / (0.4 * 989e12) * 1e9);
    assert_left(&bound, 0, 0.5 * flops / 989e12 * 1e9);
}

#[test]
fn products_go_by_the_tensor_cores_rate_for_their_shape() {
    // 137.4 GFLOP: 428 µs at 65% of 494 TFLOP/s, 139 at bf16's full rate. A kernel that is already shorter does not
    // grow.
    let mut made = step();
    made.shaped("aten::mm", 0, 40 * MICRO, "[[4096,4096],[4096,4096]]", "float");
    made.launch((5 * MICRO, 10 * MICRO), "sgemm", (20 * MICRO, 2_620 * MICRO));
    made.shaped("aten::mm", 50 * MICRO, 90 * MICRO, "[[4096,4096],[4096,4096]]", "float");
    made.launch((55 * MICRO, 60 * MICRO), "sgemm", (2_620 * MICRO, 2_720 * MICRO));
    made.operator("aten::relu", 100 * MICRO, 140 * MICRO);
    made.launch((105 * MICRO, 110 * MICRO), "relu", (2_720 * MICRO, 2_820 * MICRO));
    let asked = device(&[(0, 700 * MICRO), (1, 50 * MICRO)]);
    let (bound, expected) = filled(&made.trace(), Cause::NoTensorCores, asked, &Measures::default());
    let flops = 2.0 * 4096f64.powi(3);
    assert_left(&expected, 0, flops / (0.65 * 494e12) * 1e9);
    assert_left(&bound, 0, flops / 989e12 * 1e9);
    assert_left(&expected, 1, 100e3);
    assert_eq!((expected.device.get(&2), bound.device.get(&2)), (None, None), "nothing else gets shorter");
}

#[test]
fn a_product_that_memory_bounds_goes_by_its_bytes() {
    // A column: 2 · 16384² FLOPs, and 4 · (16384² + 2 · 16384) bytes at 4.8 TB/s: 223.7 µs.
    let mut made = step();
    made.shaped("aten::mm", 0, 40 * MICRO, "[[16384,16384],[16384,1]]", "float");
    made.launch((5 * MICRO, 10 * MICRO), "gemv", (20 * MICRO, 1_020 * MICRO));
    let (_, expected) = filled(&made.trace(), Cause::NoTensorCores, device(&[(0, 0)]), &Measures::default());
    assert_left(&expected, 0, 4.0 * (16384.0 * 16384.0 + 2.0 * 16384.0) / 4.8e12 * 1e9);
}

#[test]
fn kernels_of_one_operator_share_its_flops_by_their_time() {
    let mut made = step();
    made.shaped("aten::mm", 0, 40 * MICRO, "[[4096,4096],[4096,4096]]", "float");
    made.launch((5 * MICRO, 10 * MICRO), "sgemm_a", (20 * MICRO, 1_520 * MICRO));
    made.launch((15 * MICRO, 18 * MICRO), "sgemm_b", (1_520 * MICRO, 2_020 * MICRO));
    let asked = device(&[(0, 0), (1, 0)]);
    let (_, expected) = filled(&made.trace(), Cause::NoTensorCores, asked, &Measures::default());
    let whole = 2.0 * 4096f64.powi(3) / (0.65 * 494e12) * 1e9;
    assert_left(&expected, 0, 0.75 * whole);
    assert_left(&expected, 1, 0.25 * whole);
}

#[test]
fn an_optimizer_goes_by_the_bytes_of_its_parameters() {
    // Two tensors of a million elements: each operator touches both, so two million, 28 bytes each at 4.8 TB/s: 11.7
    // µs.
    let mut made = step();
    for (nth, name) in ["aten::mul_", "aten::mul_", "aten::addcdiv_", "aten::addcdiv_"].iter().enumerate() {
        let start = 100 * MICRO * nth as i64;
        made.shaped(name, start, start + 40 * MICRO, "[[1000,1000]]", "float");
        made.launch((start + 5 * MICRO, start + 10 * MICRO), "k", (start + 20 * MICRO, start + 60 * MICRO));
    }
    made.operator("aten::relu", 1_000 * MICRO, 1_040 * MICRO);
    made.launch((1_005 * MICRO, 1_010 * MICRO), "k", (1_020 * MICRO, 1_060 * MICRO));
    let (bound, expected) =
        filled(&made.trace(), Cause::OptimizerPerParameter, host(&[(0, 400)]), &Measures::default());
    let least = 2e6 * 28.0 / 4.8e12 * 1e9;
    for at in 0..4 {
        assert_left(&expected, at, least / 0.8 / 4.0);
        assert_left(&bound, at, least / 4.0);
    }
    assert_eq!((expected.device.get(&4), &expected.host), (None, &host(&[(0, 400)]).host));
}

#[test]
fn a_loaders_work_is_done_beside_the_rest_of_the_step() {
    let mut made = step();
    let name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
    made.span("user_annotation", name, 1, 0, 800 * MICRO, "");
    made.operator("aten::x", 900 * MICRO, 940 * MICRO);
    made.launch((905 * MICRO, 910 * MICRO), "k", (920 * MICRO, 980 * MICRO));
    let (bound, expected) = filled(&made.trace(), Cause::DataLoading, host(&[(0, 800)]), &Measures::default());
    assert_eq!(expected.host, host(&[(25, 800)]).host, "a batch is handed over");
    assert_eq!(bound.host, host(&[(0, 800)]).host);
    // Eight workers share 9,600 µs, 1,200 each; 400 of those overlap with the rest of the step.
    let mut made = step();
    made.span("user_annotation", name, 1, 0, 9_600 * MICRO, "");
    made.operator("aten::x", 9_700 * MICRO, 9_740 * MICRO);
    let (_, expected) = filled(&made.trace(), Cause::DataLoading, host(&[(0, 9_600)]), &Measures::default());
    assert_eq!(expected.host, host(&[(800, 9_600)]).host);
    // On four cores there are four workers, 2,400 µs each; on one core a single worker, which gains the overlap alone.
    for (cores, waited) in [(4, 2_000), (64, 800), (1, 9_200), (0, 9_200)] {
        made.header = format!(r#""headroom_recording":{{"true_step_seconds":[],"profiler":"full","cores":{cores}}},"#);
        let (_, expected) = filled(&made.trace(), Cause::DataLoading, host(&[(0, 9_600)]), &Measures::default());
        assert_eq!(expected.host, host(&[(waited, 9_600)]).host, "{cores} cores");
    }
}

#[test]
fn a_pass_saves_its_share_of_what_is_above_the_roof() {
    let mut made = step();
    made.operator("aten::x", 0, 40 * MICRO);
    made.launch((5 * MICRO, 10 * MICRO), "k", (20 * MICRO, 120 * MICRO));
    let asked = Removal { device: device(&[(0, 50 * MICRO)]).device, ..host(&[(100, 200)]) };
    let (bound, expected) = filled(&made.trace(), Cause::PassMissing, asked.clone(), &Measures::default());
    assert_eq!((&bound.device, &bound.host), (&asked.device, &asked.host));
    assert_left(&expected, 0, 69e3);
    assert_eq!(expected.host, host(&[(138, 200)]).host);
}

#[test]
fn an_operator_is_brought_to_most_of_its_roof() {
    let mut made = step();
    made.operator("aten::x", 0, 40 * MICRO);
    made.launch((5 * MICRO, 10 * MICRO), "k", (20 * MICRO, 120 * MICRO));
    made.launch((15 * MICRO, 18 * MICRO), "k", (120 * MICRO, 220 * MICRO));
    let asked = device(&[(0, 35 * MICRO), (1, 90 * MICRO)]);
    let (bound, expected) = filled(&made.trace(), Cause::BelowRoof, asked.clone(), &Measures::default());
    assert_eq!(bound.device, asked.device);
    assert_eq!(expected.device, device(&[(0, 50 * MICRO), (1, 100 * MICRO)]).device, "no longer than it is");
}

#[test]
fn a_finding_that_removes_nothing_is_left_alone() {
    let mut made = step();
    made.operator("aten::x", 0, 40 * MICRO);
    let mut findings = [finding(Cause::MemoryNearLimit, Removal::default())];
    fill(&View::new(&made.trace()), &Measures::default(), &mut findings);
    assert!(findings[0].found.removal.is_empty() && findings[0].found.expected.is_none());
}

#[test]
fn a_copy_to_another_layout_leaves_half_of_a_second_reading() {
    // A transposed tensor of 256 MB in fp32: reading it once at 80% of 4.8 TB/s takes 69.9 µs of the copy's 500, and
    // half of that is expected to remain. A copy that keeps the order leaves nothing.
    let mut made = step();
    made.shaped("aten::copy_", 0, 40 * MICRO, "[[8192,8192],[8192,8192]]", "float");
    made.launch((5 * MICRO, 10 * MICRO), "copy_kernel", (20 * MICRO, 520 * MICRO));
    made.operator("aten::copy_", 50 * MICRO, 90 * MICRO);
    made.launch((55 * MICRO, 60 * MICRO), "copy_kernel", (520 * MICRO, 620 * MICRO));
    let id = r#""correlation":77,"bytes":19200000"#;
    made.span("cuda_runtime", "cudaMemcpyAsync", 1, 100 * MICRO, 105 * MICRO, r#""correlation":77"#);
    made.span("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 7, 620 * MICRO, 720 * MICRO, id);
    let asked = device(&[(0, 0), (1, 0), (2, 0)]);
    let (bound, expected) = filled(&made.trace(), Cause::DeviceCopies, asked.clone(), &Measures::default());
    assert_eq!(bound.device, asked.device);
    assert_left(&expected, 0, 0.5 * 4.0 * 8192.0 * 8192.0 / (0.8 * 4.8e12) * 1e9);
    assert_left(&expected, 1, 25e3);
    assert_left(&expected, 2, 0.0);
}

#[test]
fn every_rule_has_a_model_or_is_known_to_lie_outside_of_the_bound() {
    let outside: Vec<&str> = crate::trace_rules::TRACE_RULES
        .iter()
        .filter(|rule| model(rule.cause).is_none())
        .map(|rule| rule.code)
        .collect();
    assert_eq!(outside, ["TR110", "TR112", "TR117", "TR120", "TR129", "TR130"]);
}

#[test]
fn copies_of_pageable_memory_take_the_links_time_once_they_are_pinned() {
    let mut made = step();
    for (nth, kind) in [(1, "Pageable"), (2, "Pinned")] {
        let id = format!(r#""correlation":{nth},"bytes":54400000"#);
        let start = 4_000 * MICRO * (nth - 1);
        made.span("cuda_runtime", "cudaMemcpyAsync", 1, start, start + 10 * MICRO, &id);
        made.span(
            "gpu_memcpy",
            &format!("Memcpy HtoD ({kind} -> Device)"),
            7,
            start + 10 * MICRO,
            start + 3_000 * MICRO,
            &id,
        );
    }
    let (bound, expected) = filled(&made.trace(), Cause::HostCopies, device(&[(0, 0), (1, 0)]), &Measures::default());
    assert_left(&expected, 0, 54.4e6 / (0.85 * 64e9) * 1e9);
    assert_left(&expected, 1, 0.0);
    assert_left(&bound, 0, 0.0);
    // A part whose link is unknown: same as the bound.
    made.header = made.header.replace("H200", "of tomorrow");
    let (_, expected) = filled(&made.trace(), Cause::HostCopies, device(&[(0, 0)]), &Measures::default());
    assert_left(&expected, 0, 0.0);
}

#[test]
fn a_rule_with_a_model_of_its_own_keeps_it() {
    let mut made = step();
    made.operator("aten::x", 0, 40 * MICRO);
    made.launch((5 * MICRO, 10 * MICRO), "k", (20 * MICRO, 120 * MICRO));
    let mut findings = [finding(Cause::BelowRoof, device(&[(0, 10 * MICRO)]))];
    findings[0].found.expected = Some(device(&[(0, 60 * MICRO)]));
    fill(&View::new(&made.trace()), &Measures::default(), &mut findings);
    assert_eq!(findings[0].found.removal.device, device(&[(0, 10 * MICRO)]).device);
    assert_eq!(findings[0].found.expected.as_ref().map(|kept| &kept.device), Some(&device(&[(0, 60 * MICRO)]).device));
}
