//! Faults whose fix has a model: the expected saving, and the bound.

use headroom_diagnosis::Analysis;
use headroom_diagnosis::trace_rules::TraceFinding;

use crate::run::{H200, Run, assert_near, codes, steps, steps_ahead};

fn found<'a>(analysis: &'a Analysis, code: &str, said: &str) -> &'a TraceFinding {
    let mut all = analysis.findings.iter().filter(|finding| finding.code == code && finding.message.contains(said));
    all.next().unwrap_or_else(|| panic!("no {code} of {said:?} among {:?}", codes(analysis)))
}

fn has(analysis: &Analysis, code: &str) -> bool {
    codes(analysis).contains(&code)
}

/// An operator with sizes and types that launches one kernel: 20 µs on the host.
fn shaped(run: &mut Run, operator: &str, dims: &str, types: &str, kernel: &str, duration: f64) {
    let id = run.next_id;
    run.next_id += 1;
    let at = run.host;
    run.events.push(format!(
        r#"{{"ph":"X","cat":"cpu_op","name":"{operator}","pid":1,"tid":1,"ts":{at:.3},"dur":18,"args":{{"External id":{id},"Input Dims":{dims},"Input type":{types}}}}}"#
    ));
    run.host += 4.0;
    run.host_span("cuda_runtime", "cudaLaunchKernel", 8.0, Some(id));
    let at = run.device_free.max(run.host + 6.0);
    run.device_span("kernel", kernel, 7, at, duration, id, "");
    run.device_free = at + duration;
    run.host += 16.0;
}

const IMAGES: &str = "[[256,64,112,112],[256,64,112,112],[64]]";
const HALVES: &str = r#"["c10::BFloat16","c10::BFloat16","float"]"#;
const BY_PLANE: &str = "void at::native::batch_norm_backward_kernel<c10::BFloat16, float, float, int>";

/// Ten GEMMs of 900 µs, and four norms of 411 MB with five passes each: 428 µs at 4.8 TB/s.
fn with_norms(kernel: &'static str, each: f64) -> Analysis {
    steps_ahead(H200, |run| {
        run.work();
        for _ in 0..4 {
            shaped(run, "aten::native_batch_norm_backward", IMAGES, HALVES, kernel, each);
            run.kernel("aten::cudnn_convolution", "void cudnn::engines_precompiled::nchwToNhwcKernel<bf16>", 100.0);
        }
    })
    .analysis()
}

#[test]
fn norms_far_below_the_memorys_rate_are_found_with_their_layout() {
    let analysis = with_norms(BY_PLANE, 3_000.0);
    let wall = 9_000.0 + 4.0 * 3_100.0;
    let norms = found(&analysis, "TR113", "norms run at 14% of the memory bandwidth");
    assert!(norms.message.contains("NCHW") && norms.advice.contains("channels_last"), "{norms:?}");
    // At 70% of the memory bandwidth each would take 612 µs; at best what its bytes need.
    assert_near(norms.saving_expected_share, 4.0 * (3_000.0 - 428.1 / 0.7) / wall);
    assert_near(norms.saving_bound_share.expect("says something"), 4.0 * (3_000.0 - 428.1) / wall);
}

#[test]
fn norms_near_the_memorys_rate_are_left_alone() {
    assert!(!has(&with_norms(BY_PLANE, 900.0), "TR113"));
    let analysis = with_norms("void at::native::batch_norm_backward_reduce_channels_last_kernel<4>", 3_000.0);
    assert!(!found(&analysis, "TR113", "norms run at").message.contains("NCHW"));
}

#[test]
fn an_operator_that_moves_bytes_is_held_against_the_memorys_rate() {
    // 1,000,000 rows of 64 and half as many values: 640 MB with an output, 133 µs at 4.8 TB/s; 381 at 35% of it.
    let put = |each: f64| {
        steps_ahead(H200, move |run| {
            run.work();
            let dims = "[[1000000,64],[],[500000,64]]";
            shaped(
                run,
                "aten::_index_put_impl_",
                dims,
                r#"["float","TensorList","float"]"#,
                "indexing_backward_kernel",
                each,
            );
        })
        .analysis()
    };
    let analysis = put(4_000.0);
    let moved = found(&analysis, "TR113", "`aten::_index_put_impl_` runs at 3% of the memory bandwidth");
    assert_near(moved.saving_expected_share, (4_000.0 - 381.0) / 13_000.0);
    assert_near(moved.saving_bound_share.expect("says something"), (4_000.0 - 133.0) / 13_000.0);
    assert!(!has(&put(500.0), "TR113"), "{:?}", codes(&put(500.0)));
}

/// A step with a forward pass of ten GEMMs and a backward pass that recomputes them, with `peak` bytes in use.
fn checkpointed(operator: &'static str, peak: u64) -> Analysis {
    steps_ahead(H200, move |run| {
        let at = run.host;
        run.events.push(format!(
            r#"{{"ph":"i","cat":"cpu_instant_event","name":"[memory]","pid":1,"tid":1,"ts":{at:.3},"args":{{"Device Type":1,"Device Id":0,"Addr":1,"Bytes":1000,"Total Allocated":{peak},"Total Reserved":{peak}}}}}"#
        ));
        run.work();
        run.host_span("cpu_op", "autograd::engine::evaluate_function: AddBackward0", 700.0, None);
        run.host += 5.0;
        for _ in 0..10 {
            run.host_span("cpu_op", operator, 40.0, None);
            run.host += 5.0;
            run.kernel("aten::addmm", "nvjet_tst_128x256_h_bz_coopA_NNT", 900.0);
            run.host += 15.0;
        }
        for _ in 0..4 {
            run.kernel("aten::mm", "nvjet_tst_128x256_h_bz_coopA_NNT", 900.0);
        }
        run.host += 200.0;
        run.work();
    })
    .analysis()
}

#[test]
fn a_forward_pass_that_is_computed_again_with_free_memory_is_found() {
    let gigabyte = 1_000_000_000;
    let analysis = checkpointed("aten::linear", 20 * gigabyte);
    let again = found(&analysis, "TR132", "recomputes 1 part(s) of the forward pass");
    // Ten of 34 kernels; the four of the gradient itself remain.
    assert_near(again.share_of_step.unwrap_or(0.0), 10.0 / 34.0);
    assert_near(again.saving_expected_share, 10.0 / 34.0);
    assert!(!has(&checkpointed("aten::linear", 120 * gigabyte), "TR132"), "the memory is needed");
    assert!(!has(&checkpointed("aten::t", 20 * gigabyte), "TR132"), "a gradient's own operators");
}

/// Gradients of 40 parameters, alternately a weight and a bias, in a step whose device is idle for long.
fn parameters(run: &mut Run) {
    for place in 0..40 {
        let (at, dims) = (run.host, if place % 2 == 0 { "[[384,1536]]" } else { "[[384]]" });
        run.events.push(format!(
            r#"{{"ph":"X","cat":"cpu_op","name":"torch::autograd::AccumulateGrad","pid":1,"tid":1,"ts":{at:.3},"dur":5,"args":{{"Input Dims":{dims},"Input type":["float"]}}}}"#
        ));
        run.host += 10.0;
    }
}

fn over_parameters(run: &mut Run, operators: &[&str]) {
    for place in 0..40 {
        let dims = if place % 2 == 0 { "[[1536,384],[1536,384]]" } else { "[[384],[384]]" };
        for operator in operators {
            shaped(run, operator, dims, r#"["float","float"]"#, "vectorized_elementwise_kernel", 2.0);
        }
    }
}

#[test]
fn averages_of_weights_one_by_one_cost_what_the_host_loses_to_them() {
    let averaged = |work: f64| {
        steps_ahead(H200, move |run| {
            run.kernel("aten::mm", "nvjet_tst_128x256_h_bz_coopA_NNT", work);
            parameters(run);
            over_parameters(run, &["aten::mul_", "aten::add_"]);
        })
        .analysis()
    };
    // 30 for the GEMM, 400 for the gradients, 80 operators of 20.
    let analysis = averaged(50.0);
    let of_loop = found(&analysis, "TR109", "a loop over the parameters");
    assert!(of_loop.message.contains("80 operators per step"), "{}", of_loop.message);
    assert!(
        of_loop.evidence[0].contains("`aten::add_`, `aten::mul_`")
            || of_loop.evidence[0].contains("`aten::mul_`, `aten::add_`")
    );
    assert_near(of_loop.share_of_step.unwrap_or(0.0), 1_600.0 / 2_030.0);
    assert_near(of_loop.saving_expected_share, 1_600.0 / 2_030.0);
    assert_eq!(of_loop.saving_bound_share, Some(of_loop.saving_expected_share), "nothing else gets quicker");
    // If the device is the bottleneck, the loop costs nothing.
    assert!(!has(&averaged(9_000.0), "TR109"));
}

#[test]
fn an_optimizer_over_lists_that_goes_through_memory_too_often_is_found() {
    // 20 · 1536 · 384 parameters and biases, 28 bytes each: 86 µs at 80% of 4.8 TB/s; sixteen passes take 1,600.
    let analysis = steps_ahead(H200, |run| {
        run.work();
        parameters(run);
        let start = run.host;
        for _ in 0..16 {
            run.kernel("aten::_foreach_addcdiv_", "void at::native::multi_tensor_apply_kernel<BinaryOp>", 100.0);
        }
        let duration = run.host - start;
        run.events.push(format!(
            r#"{{"ph":"X","cat":"user_annotation","name":"Optimizer.step#AdamW.step","pid":1,"tid":1,"ts":{start:.3},"dur":{duration:.3}}}"#
        ));
    })
    .analysis();
    let passes = found(&analysis, "TR109", "several passes");
    assert_near(passes.share_of_step.unwrap_or(0.0), (1_600.0 - 86.0) / 10_600.0);
    assert_near(passes.saving_expected_share, (1_600.0 - 86.0) / 10_600.0);
}

#[test]
fn hooks_before_the_update_are_not_the_optimizers() {
    let analysis = steps_ahead(H200, |run| {
        let start = run.host;
        run.host_span("python_function", "lightning/pytorch/plugins/precision/precision.py(97): _wrap_closure", 8_060.0, None);
        run.host_span("python_function", "lightning/pytorch/loops/optimization/automatic.py(126): closure", 50.0, None);
        run.host += 50.0;
        parameters(run);
        run.host += 10.0;
        for _ in 0..190 {
            over_parameters_once(run);
        }
        run.host += 3_900.0;
        run.kernel("aten::_fused_adamw_", "multi_tensor_apply_kernel", 100.0);
        let duration = run.host - start;
        run.events.push(format!(
            r#"{{"ph":"X","cat":"user_annotation","name":"Optimizer.step#AdamW.step","pid":1,"tid":1,"ts":{start:.3},"dur":{duration:.3}}}"#
        ));
    })
    .analysis();
    assert!(analysis.measures.patterns.optimizer.kernels_per_step < 2.0, "{:?}", analysis.measures.patterns.optimizer);
}

fn over_parameters_once(run: &mut Run) {
    shaped(run, "aten::linalg_vector_norm", "[[384,1536]]", r#"["float"]"#, "reduce_kernel", 2.0);
}

#[test]
fn a_copy_by_torchs_own_kernel_is_a_copy_unless_it_converts() {
    let copied = |types: &'static str| {
        steps_ahead(H200, move |run| {
            run.work();
            let kernel = "void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)";
            shaped(run, "aten::copy_", "[[8192,8192],[8192,8192]]", types, kernel, 2_000.0);
        })
        .analysis()
    };
    let analysis = copied(r#"["float","float"]"#);
    let copies = found(&analysis, "TR131", "device-to-device copies");
    // Half of a second read of 268 MB at 80% of 4.8 TB/s remains: 35 µs.
    assert_near(copies.saving_expected_share, (2_000.0 - 35.0) / 11_000.0);
    assert!(!has(&copied(r#"["c10::BFloat16","float"]"#), "TR131"), "a conversion is not a copy");
}

#[test]
fn a_constant_costs_what_the_device_takes_to_make_it() {
    let analysis = steps_ahead(H200, |run| {
        run.work();
        shaped(run, "aten::ones", "[[],[]]", r#"["",""]"#, "vectorized_elementwise_kernel", 600.0);
        shaped(run, "aten::triu", "[[8192,8192],[]]", r#"["float",""]"#, "triu_tril_kernel", 600.0);
    })
    .analysis();
    let constant = found(&analysis, "TR114", "is rebuilt in every step");
    assert_near(constant.share_of_step.unwrap_or(0.0), 1_200.0 / 10_200.0);
    assert_near(constant.saving_expected_share, 1_200.0 / 10_200.0);
}

#[test]
fn several_operators_on_the_hosts_own_tensors_are_found_together() {
    let augmented = |each: f64| {
        steps_ahead(H200, move |run| {
            for operator in ["aten::flip", "aten::mul", "aten::grid_sampler_2d"] {
                run.host_span("cpu_op", operator, each, None);
                run.host += 1_000.0;
            }
            run.kernel("aten::mm", "nvjet_tst_128x256_h_bz_coopA_NNT", 4_000.0);
            run.synchronise("cudaDeviceSynchronize");
        })
        .analysis()
    };
    let analysis = augmented(900.0);
    let own = found(&analysis, "TR119", "operators that launch nothing");
    assert_near(own.share_of_step.unwrap_or(0.0), 3_000.0 / 7_050.0);
    assert!((own.saving_expected_share - 3_000.0 / 7_050.0).abs() < 0.01, "with the Python between them: {own:?}");
    assert!(!has(&augmented(90.0), "TR119"), "views and sizes");
}

#[test]
fn a_constant_goes_on_through_arithmetic_on_its_own_sizes() {
    let analysis = steps_ahead(H200, |run| {
        run.work();
        shaped(run, "aten::arange", "[[]]", r#"[""]"#, "arange_kernel", 100.0);
        shaped(run, "aten::unsqueeze", "[[8192],[]]", r#"["long int",""]"#, "copy", 100.0);
        shaped(
            run,
            "aten::sub",
            "[[1,8192],[8192,1]]",
            r#"["long int","long int"]"#,
            "vectorized_elementwise_kernel",
            500.0,
        );
        shaped(run, "aten::mul", "[[8192,8192],[]]", r#"["float",""]"#, "vectorized_elementwise_kernel", 500.0);
        // The model's own operator: it has sizes that the constant lacks.
        shaped(run, "aten::mul", "[[16,8192,512],[]]", r#"["float",""]"#, "vectorized_elementwise_kernel", 700.0);
    })
    .analysis();
    let constant = found(&analysis, "TR114", "is rebuilt in every step");
    assert!(
        constant.message.ends_with("`aten::arange`, `aten::unsqueeze`, `aten::sub`, `aten::mul`"),
        "{}",
        constant.message
    );
    assert_near(constant.saving_expected_share, 1_200.0 / 10_900.0);
}

#[test]
fn a_large_value_copied_to_pageable_memory_takes_its_wait_with_it() {
    let analysis = steps_ahead(H200, |run| {
        run.work();
        let id = run.next_id;
        run.next_id += 1;
        let waits = run.device_free - run.host + 3_000.0;
        run.host_span("cpu_op", "aten::to", waits + 30.0, None);
        run.host += 5.0;
        run.host_span("cpu_op", "aten::copy_", waits + 20.0, Some(id));
        run.host += 5.0;
        let at = run.device_free;
        run.host_span("cuda_runtime", "cudaMemcpyAsync", 10.0, Some(id));
        run.device_span("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 7, at, 2_900.0, id, r#","bytes":15000000"#);
        run.device_free = at + 2_900.0;
        run.host += 10.0;
        run.host_span("cuda_runtime", "cudaStreamSynchronize", waits, None);
        run.host += waits + 10.0;
        run.host_span("python_function", "train.py(9): metrics", 4_000.0, None);
        run.host += 4_000.0;
    })
    .analysis();
    let copies = found(&analysis, "TR105", "to the host");
    // The link takes 276 µs for them, and the host's own work overlaps with the device's.
    assert_near(copies.saving_expected_share, (2_900.0 - 276.0 + 4_000.0) / 15_950.0);
}

/// Steps with 9 ms on the device, after which a tensor is copied to the host for 1 ms and processed there for 4.
fn worked_on_by_the_host(bytes: u64) -> Analysis {
    steps(|run, _| {
        run.work();
        let id = run.next_id;
        run.next_id += 1;
        let waits = (run.device_free - run.host).max(0.0) + 1_000.0;
        run.host_span("cpu_op", "aten::to", waits + 20.0, Some(id));
        run.host_span("cuda_runtime", "cudaMemcpyAsync", 8.0, Some(id));
        let (at, more) = (run.device_free.max(run.host + 10.0), format!(r#","bytes":{bytes}"#));
        run.device_span("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 7, at, 1_000.0, id, &more);
        run.host += 10.0;
        run.host_span("cuda_runtime", "cudaStreamSynchronize", waits, None);
        run.device_free = at + 1_000.0;
        run.host = run.device_free + 30.0 + 4_000.0;
    })
    .analysis()
}

#[test]
fn what_the_host_does_with_a_copied_tensor_goes_with_the_copy() {
    let analysis = worked_on_by_the_host(1 << 22);
    let copies = found(&analysis, "TR105", "the host works on them");
    assert_eq!(codes(&analysis)[0], "TR105");
    let step = analysis.true_step.recorded_seconds;
    assert!((copies.saving_expected_share - 5e-3 / step).abs() < 0.02, "{copies:?}");
    assert!(copies.saving_bound_share >= Some(copies.saving_expected_share));
    let reads = found(&analysis, "TR101", "reads a value back");
    assert!(reads.saving_expected_share <= copies.saving_expected_share, "the host's work is the copy's: {reads:?}");
    assert!(!has(&analysis, "TR102"), "idle time is explained: {:?}", codes(&analysis));
    // A single value is a read-back, and the idle time after it is the host's.
    let single = worked_on_by_the_host(8);
    assert!(!has(&single, "TR105") && has(&single, "TR102"), "{:?}", codes(&single));
}

#[test]
fn a_table_with_a_dense_gradient_is_told_with_what_its_used_rows_need() {
    let mut run = Run { header: H200, ..Run::new() };
    for number in 0..4 {
        run.step_ahead(number, |run| {
            shaped(run, "aten::mm", "[[1024,1024],[1024,1024]]", r#"["float","float"]"#, "nvjet_tst", 500.0);
            let at = run.host;
            run.events.push(format!(
                r#"{{"ph":"X","cat":"cpu_op","name":"aten::embedding_dense_backward","pid":1,"tid":1,"ts":{at:.3},"dur":45,"args":{{
                "Input Dims":[[4096,64],[4096],[],[],[]],"Input type":["float","long int","Scalar","Scalar","Scalar"],
                "Concrete Inputs":["","","1000000","-1","False"]}}}}"#
            ));
            shaped(run, "aten::zero_", "[[1000000,64]]", r#"["float"]"#, "FillFunctor", 400.0);
            shaped(run, "aten::sum", "[[4096,64]]", r#"["float"]"#, "sum_and_scatter", 100.0);
            run.host += 20.0;
            let at = run.host;
            run.events.push(format!(
                r#"{{"ph":"X","cat":"cpu_op","name":"torch::autograd::AccumulateGrad","pid":1,"tid":1,"ts":{at:.3},"dur":5,"args":{{
                "Input Dims":[[1000000,64]],"Input type":["float"]}}}}"#
            ));
            run.host += 10.0;
            run.host_span("user_annotation", "Optimizer.step#Adagrad.step", 21.0, None);
            run.host += 1.0;
            shaped(run, "aten::_foreach_addcdiv_", "[[],[],[]]", r#"["TensorList","TensorList","TensorList"]"#, "multi_tensor_apply_kernel", 3_000.0);
        });
    }
    let analysis = run.analysis();
    let table = found(&analysis, "TR109", "dense gradient");
    assert!(table.message.contains("1000000 rows") && table.message.contains("4096"), "{}", table.message);
    // The 3.4 ms of fill and update in each step shrink to twice 0.41%; at best the 0.1 ms of summing goes as well.
    let share = |millis: f64| (4e-3 * millis / analysis.measures.breakdown.wall_seconds).min(1.0);
    assert_near(table.share_of_step.unwrap_or(0.0), share(3.4 * (1.0 - 0.004_096)));
    assert_near(table.saving_expected_share, share(3.4 * (1.0 - 2.0 * 0.004_096)));
    assert!(table.saving_bound_share > Some(table.saving_expected_share), "{table:?}");
}

/// Steps with four layers forward, each with a backward node, after `times` passes through them without gradients.
fn evaluated(times: usize, frozen: bool) -> Analysis {
    let layer = |run: &mut Run, sequence: i64, width: u32| {
        let (at, id) = (run.host, run.next_id);
        run.next_id += 1;
        run.events.push(format!(
            r#"{{"ph":"X","cat":"cpu_op","name":"aten::linear","pid":1,"tid":1,"ts":{at:.3},"dur":18,"args":{{"External id":{id},"Sequence number":{sequence},"Fwd thread id":0,"Input Dims":[[64,512],[{width},512],[]],"Input type":["float","float",""]}}}}"#
        ));
        run.host += 4.0;
        run.host_span("cuda_runtime", "cudaLaunchKernel", 8.0, Some(id));
        let start = run.device_free.max(run.host + 6.0);
        run.device_span("kernel", "nvjet_tst", 7, start, 500.0, id, "");
        run.device_free = start + 500.0;
        run.host += 16.0;
    };
    let mut run = Run { header: H200, ..Run::new() };
    for number in 0..4 {
        run.step_ahead(number, |run| {
            for _ in 0..times {
                for width in [512, 1_024, 512, if frozen { 768 } else { 2_048 }] {
                    layer(run, -1, width);
                }
            }
            for (nth, width) in [512, 1_024, 512, 2_048].into_iter().enumerate() {
                layer(run, i64::from(number) * 10 + nth as i64 + 1, width);
            }
            run.host_span("cpu_op", "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 2.0, None);
            run.host += 4.0;
            for nth in 0..4 {
                let (at, id, sequence) = (run.host, run.next_id, i64::from(number) * 10 + 4 - nth);
                run.next_id += 1;
                run.events.push(format!(
                    r#"{{"ph":"X","cat":"cpu_op","name":"autograd::engine::evaluate_function: AddmmBackward0","pid":1,"tid":1,"ts":{at:.3},"dur":18,"args":{{"External id":{id},"Sequence number":{sequence},"Fwd thread id":1}}}}"#
                ));
                run.host += 4.0;
                run.host_span("cuda_runtime", "cudaLaunchKernel", 8.0, Some(id));
                let start = run.device_free.max(run.host + 6.0);
                run.device_span("kernel", "nvjet_tst", 7, start, 1_000.0, id, "");
                run.device_free = start + 1_000.0;
                run.host += 16.0;
            }
        });
    }
    run.analysis()
}

#[test]
fn a_forward_pass_without_a_gradient_beside_the_trained_one_is_told() {
    let analysis = evaluated(1, false);
    let again = found(&analysis, "TR135", "produce no gradient");
    // 2 of 8 ms.
    assert_near(again.share_of_step.unwrap_or(0.0), 0.25);
    assert_near(again.saving_expected_share, 0.25);
    assert!(!has(&evaluated(0, false), "TR135"));
    assert!(!has(&evaluated(1, true), "TR135"), "other layers below the trained ones");
    assert!(!has(&evaluated(3, false), "TR135"), "episodes are played");
}

/// Steps with 9 ms on the device, and a function whose 30 iterations each launch `kernels` short kernels and read a
/// value.
fn reads_in_a_loop(kernels: usize) -> Analysis {
    steps(move |run, _| {
        run.work();
        run.host = run.host.max(run.device_free);
        run.host_span("python_function", "train.py(47): targets", 30.0 * (30.0 * kernels as f64 + 50.0) + 10.0, None);
        for _ in 0..30 {
            for _ in 0..kernels {
                run.kernel("aten::mul", "elementwise_kernel", 2.0);
            }
            let id = run.next_id;
            run.next_id += 1;
            run.host_span("cpu_op", "aten::item", 40.0, Some(id));
            run.host_span("cuda_runtime", "cudaMemcpyAsync", 8.0, Some(id));
            let at = run.device_free.max(run.host + 10.0);
            run.device_span("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 7, at, 2.0, id, r#","bytes":4"#);
            run.device_free = at + 2.0;
            run.host += 15.0;
            run.host_span("cuda_runtime", "cudaStreamSynchronize", 10.0, None);
            run.host += 35.0;
        }
    })
    .analysis()
}

#[test]
fn a_loop_that_reads_back_in_every_round_goes_with_its_read_backs() {
    let analysis = reads_in_a_loop(6);
    let read =
        found(&analysis, "TR101", "a loop reads values back from the device in every iteration, 30 times per step");
    assert_eq!(read.function.as_deref(), Some("train.py(47): targets"));
    // All iterations except what precedes the first value: 29 of 230 µs, and the last one's 40.
    let step = 1e6 * analysis.true_step.recorded_seconds;
    assert!((read.saving_expected_share - 6_710.0 / step).abs() < 0.05, "{read:?} of {step}");
    assert_eq!(analysis.roadmap.items[0].code, "TR101", "{:?}", analysis.roadmap.items);
    assert!(!analysis.findings.iter().any(|finding| finding.message.starts_with("`aten::item`")), "told once");
    let few = reads_in_a_loop(1);
    assert!(!few.findings.iter().any(|finding| finding.message.starts_with("a loop reads")), "the wait is the cost");
}
