//! Figures besides the findings: shapes, sequences, the queue, the critical path's segments, two devices compared.

use headroom_diagnosis::compare::compare;
use headroom_diagnosis::measures::critical_path::{On, critical_path};
use headroom_diagnosis::measures::view::View;

use crate::run::{H200, Run, assert_near, steps, steps_ahead};

#[test]
fn a_products_shape_has_its_rate_and_its_share_of_the_roof() {
    let mut run = Run { header: H200, ..Run::new() };
    for number in 0..4 {
        run.step(number, |run| run.product("c10::BFloat16", "nvjet_tst_128x256", 1000.0));
    }
    let analysis = run.analysis();
    let [row] = &analysis.measures.roofline.by_shape[..] else { panic!("there is one shape") };
    assert_eq!((row.kind, row.name.as_str(), row.calls, row.precision), ("product", "aten::mm", 4, "16 bits"));
    assert_eq!(row.input_dims, "[[4096,4096],[4096,4096]]");
    // 2 · 4096³ FLOPs in a millisecond, relative to the H200's datasheet rate of 989 TFLOP/s.
    let rate = 2.0 * 4096f64.powi(3) / 1e-3;
    assert_near(row.flops / row.seconds / rate, 1.0);
    assert_near(row.percent_of_roof.expect("the device is known") / 100.0, rate / 989e12);
}

#[test]
fn kernels_that_follow_each_other_are_found() {
    let analysis = steps(|run, _| {
        for _ in 0..5 {
            run.kernel("aten::mm", "gemm", 300.0);
            run.kernel("aten::mul", "scale", 50.0);
            run.kernel("aten::add", "shift", 50.0);
        }
    })
    .analysis();
    let first = analysis.measures.sequences.first().expect("there is one");
    assert_eq!(first.kernels.len() % 3, 0, "{:?}", first.kernels);
    assert!(["gemm", "scale", "shift"].iter().all(|name| first.kernels.iter().any(|found| found == name)));
    assert!(first.share > 0.5);
    let alone = steps(|run, _| run.work()).analysis();
    assert!(alone.measures.sequences.is_empty(), "one kernel repeated is not a sequence");
}

#[test]
fn a_host_before_a_full_queue_is_told_from_a_slow_one() {
    let analysis = steps_ahead(H200, |run| {
        for index in 0..1500 {
            run.kernel("aten::mul", "vectorized_elementwise_kernel", 100.0);
            if index > 1100 {
                // The launch does not return until there is room.
                let last = run.events.len() - 2;
                run.events[last] = run.events[last].replace("\"dur\":10.000", "\"dur\":95.000");
                run.host += 85.0;
            }
        }
    });
    let queue = analysis.analysis().measures.queue;
    assert!(queue.most > 500 && queue.blocked_calls > 100, "{} {}", queue.most, queue.blocked_calls);
    let calm = steps(|run, _| run.work()).analysis().measures.queue;
    assert_eq!((calm.blocked_calls, calm.most <= 10), (0, true));
}

#[test]
fn the_critical_paths_links_follow_each_other_and_fill_the_steps() {
    let run = steps(|run, _| run.work());
    let trace = run.trace();
    let view = View::new(&trace);
    let path = critical_path(&view);
    let range = view.steps.range();
    let covered: i64 = path.links.iter().map(|link| link.span.nanos()).sum();
    assert!(covered * 100 >= range.nanos() * 99 && covered <= range.nanos(), "{covered} of {}", range.nanos());
    assert!(path.links.windows(2).all(|pair| pair[0].span.end <= pair[1].span.start));
    let on_device = path.links.iter().filter(|link| matches!(link.on, On::Device(_))).map(|link| link.span.nanos());
    assert_near(on_device.sum::<i64>() as f64 / 1e9 / path.device_seconds, 1.0);
}

#[test]
fn traces_of_two_devices_are_said_to_differ() {
    let of = |header: &'static str| {
        let mut run = Run { header, ..Run::new() };
        (0..3).for_each(|number| run.step(number, Run::work));
        run.analysis()
    };
    let a100 =
        r#""deviceProperties":[{"id":0,"name":"NVIDIA A100-SXM4-80GB","totalGlobalMem":85000000000,"numSms":108}],"#;
    let comparison = compare(&of(H200), &of(a100));
    assert!(comparison.notes[0].contains("devices differ (NVIDIA H200 before, NVIDIA A100"), "{:?}", comparison.notes);
    assert!(compare(&of(H200), &of(H200)).notes.is_empty());
}

#[test]
fn a_card_whose_tf32_is_no_faster_than_fp32_is_not_advised_tf32() {
    let advice = |header: &'static str| {
        let run =
            steps_ahead(header, |run| (0..10).for_each(|_| run.product("float", "ampere_sgemm_128x64_nn", 3000.0)));
        let findings = run.analysis().findings;
        findings.iter().find(|finding| finding.code == "TR106").expect("runs without tensor cores").advice.clone()
    };
    let geforce = r#""deviceProperties":[{"id":0,"name":"NVIDIA GeForce RTX 4070 Laptop GPU","totalGlobalMem":8000000000,"numSms":36}],"#;
    assert!(advice(geforce).contains("bf16") && advice(geforce).contains("TF32 is no faster"), "{}", advice(geforce));
    assert!(advice(H200).contains("allow TF32"), "{}", advice(H200));
}

#[test]
fn compiled_steps_are_not_told_to_compile() {
    let advice = |kernel: &'static str| {
        let run = steps(|run, _| {
            for _ in 0..300 {
                run.kernel("aten::add", kernel, 2.0);
            }
        });
        let findings = run.analysis().findings;
        let found = findings.iter().find(|finding| finding.code == "TR103").expect("is bound by launches");
        found.advice.clone()
    };
    assert!(advice("vectorized_elementwise_kernel").contains("torch.compile"));
    let compiled = advice("triton_poi_fused_add_0");
    assert!(!compiled.contains("torch.compile") && compiled.contains("compiled already"), "{compiled}");
}

#[test]
fn products_of_eight_bits_are_held_against_the_peak_of_eight_bits() {
    let run = steps_ahead(H200, |run| {
        (0..10).for_each(|_| run.product("c10::Float8_e4m3fn", "nvjet_qqtst_128x256", 3000.0));
    });
    let roofline = run.analysis().measures.roofline;
    assert_eq!(roofline.peak_flops_per_second, Some(1979e12));
    assert!(roofline.peak_source.unwrap().ends_with("MFU refers to the fp8 peak"));
}

#[test]
fn a_run_is_held_against_the_peak_of_its_own_precision_and_the_text_says_which() {
    for (element, kernel, peak, word) in [
        ("float", "ampere_sgemm_128x64_nn", 67e12, "fp32"),
        ("float", "sm90_xmma_gemm_f32f32_tf32f32_f32_nn", 494e12, "tf32"),
        ("c10::BFloat16", "nvjet_tst_128x256_h_bz", 989e12, "bf16"),
    ] {
        let run = steps_ahead(H200, |run| (0..10).for_each(|_| run.product(element, kernel, 3000.0)));
        let roofline = run.analysis().measures.roofline;
        assert_eq!(roofline.peak_flops_per_second, Some(peak), "{kernel}");
        let source = roofline.peak_source.unwrap();
        assert!(source.ends_with(&format!("MFU refers to the {word} peak")), "{kernel}: {source}");
        let rate = roofline.flops_per_step / (10.0 * 3000e-6);
        let mfu = roofline.mfu_percent.unwrap();
        assert!((mfu / (100.0 * rate / peak) - 1.0).abs() < 0.05, "{kernel}: {mfu}");
    }
}

#[test]
fn values_that_are_read_one_after_the_other_are_one_stop() {
    let analysis = steps(|run, _| {
        run.work();
        run.kernel("aten::mm", "gemm", 3_000.0);
        for _ in 0..40 {
            let id = run.next_id;
            run.next_id += 1;
            // Only the first waits for the product.
            let at = run.device_free.max(run.host + 10.0);
            let until = (at + 5.0).max(run.host + 40.0);
            run.host_span("cpu_op", "aten::item", until - run.host, Some(id));
            run.host_span("cuda_runtime", "cudaMemcpyAsync", 8.0, Some(id));
            run.device_span("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 7, at, 2.0, id, r#","bytes":4"#);
            run.device_free = at + 2.0;
            run.host += 9.0;
            run.host_span("cuda_runtime", "cudaStreamSynchronize", until - run.host - 1.0, None);
            // The host's work on the value could run beside the product.
            run.host = until + 20.0;
        }
    })
    .analysis();
    let read = analysis.findings.iter().find(|finding| finding.code == "TR101").expect("reads values back");
    let step = 1e6 * analysis.true_step.recorded_seconds;
    assert!((read.saving_expected_share - 39.0 * 60.0 / step).abs() < 0.05, "{read:?} of {step}");
    assert_eq!(analysis.roadmap.items[0].code, "TR101", "{:?}", analysis.roadmap.items);
}
