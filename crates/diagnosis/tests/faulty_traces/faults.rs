//! One fault each: it is found with its share, and comes first if it costs most.

use headroom_diagnosis::measures::kinds::Kind;
use headroom_diagnosis::measures::steps::MeasuredOn;
use headroom_diagnosis::{Options, analyze};

use crate::run::{H200, Run, assert_near, codes, share, steps, steps_ahead};

#[test]
fn a_loader_that_the_device_waits_for_comes_first() {
    let analysis = steps(|run, _| {
        run.host_span("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 6000.0, None);
        run.host += 6000.0;
        run.work();
    })
    .analysis();
    assert_eq!(codes(&analysis)[0], "TR104", "{:?}", codes(&analysis));
    assert_near(share(&analysis, "TR104"), 6000.0 / 15_000.0);
}

#[test]
fn pageable_copies_are_named_with_their_speed() {
    let analysis = steps(|run, _| {
        let id = run.next_id;
        run.next_id += 1;
        run.host_span("cpu_op", "aten::copy_", 3050.0, Some(id));
        run.host_span("cuda_runtime", "cudaMemcpyAsync", 3000.0, Some(id));
        let (at, more) = (run.host + 10.0, r#","bytes":15000000,"memory bandwidth (GB/s)":5.0"#);
        run.device_span("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 7, at, 2980.0, id, more);
        run.device_free = at + 2980.0;
        run.host += 3050.0;
        run.work();
    })
    .analysis();
    let found = analysis.findings.iter().find(|finding| finding.code == "TR105").expect("the copies are found");
    assert!(found.message.contains("pageable") && found.evidence[0].contains("GB/s"), "{found:?}");
    assert_near(share(&analysis, "TR105"), 3000.0 / 12_050.0);
}

#[test]
fn reading_back_at_every_kernel_is_a_host_sync() {
    let analysis = steps(|run, _| {
        for _ in 0..10 {
            run.kernel("aten::mm", "nvjet_tst", 100.0);
            run.synchronise("cudaStreamSynchronize");
            run.host += 150.0;
        }
    })
    .analysis();
    assert!(codes(&analysis).contains(&"TR101"), "{:?}", codes(&analysis));
    assert!(analysis.measures.breakdown.busy_share < 0.5);
}

#[test]
fn the_same_fault_on_an_amd_device_is_the_same_finding() {
    let mut run = Run { vendor: "hip", ..Run::new() };
    for number in 0..4 {
        run.step(number, |run| {
            for _ in 0..10 {
                run.kernel("aten::mm", "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32", 100.0);
                run.synchronise("hipStreamSynchronize");
                run.host += 150.0;
            }
        });
    }
    let analysis = run.analysis();
    assert!(codes(&analysis).contains(&"TR101"), "{:?}", codes(&analysis));
    assert_near(analysis.measures.kernels.per_step, 10.0);
    assert!(analysis.measures.launches.per_step > 9.0);
}

#[test]
fn kernels_of_rocms_libraries_are_told_by_their_kinds() {
    // Names as in public traces of MI300X (TraceLens' tests, torch's tables in bug reports), cut short.
    let kernels = [
        ("aten::addmm", "Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT256x128x64_MI16x16x1", 300.0, Kind::Product),
        ("aten::bmm", "_ZN7ck_tile6kentryILi1ENS_19UniversalGemmKernelINS_29GemmTile", 100.0, Kind::Product),
        ("aten::_efficient_attention_forward", "attn_fwd", 90.0, Kind::Attention),
        ("aten::_efficient_attention_backward", "bwd_kernel_dk_dv", 150.0, Kind::Attention),
        (
            "aten::_flash_attention_forward",
            "_ZN7ck_tile6kentryILi256ELi2ENS_13FmhaFwdKernelINS_2",
            80.0,
            Kind::Attention,
        ),
        ("aten::miopen_convolution", "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32", 200.0, Kind::Convolution),
        ("aten::miopen_convolution", "miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1", 50.0, Kind::Convolution),
        ("aten::miopen_batch_norm", "MIOpenBatchNormFwdTrainSpatial", 70.0, Kind::Normalisation),
        (
            "aiter::rms_norm",
            "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOne",
            60.0,
            Kind::Normalisation,
        ),
        ("c10d::allreduce_", "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", 110.0, Kind::Communication),
        ("aten::fill_", "SubTensorOpWithScalar1d", 40.0, Kind::ElementWise),
    ];
    let mut run = Run { vendor: "hip", ..Run::new() };
    for number in 0..4 {
        run.step(number, |run| {
            kernels.iter().for_each(|(operator, kernel, micros, _)| run.kernel(operator, kernel, *micros));
        });
    }
    let rows = run.analysis().measures.kinds;
    let micros = |is_in: &dyn Fn(Kind) -> bool| -> f64 {
        kernels.iter().filter(|(.., kind)| is_in(*kind)).map(|(_, _, micros, _)| micros).sum()
    };
    for row in &rows {
        let share = micros(&|kind| kind == row.kind) / micros(&|_| true);
        assert!((row.share - share).abs() < 1e-6, "{row:?} is not {share}");
    }
    assert_eq!(rows.len(), 6, "{rows:?}");
}

#[test]
fn device_memory_that_is_allocated_in_the_loop_is_churn() {
    let analysis = steps(|run, _| {
        for _ in 0..4 {
            run.host_span("cuda_runtime", "cudaMalloc", 400.0, None);
            run.host += 400.0;
            run.host_span("cuda_runtime", "cudaFree", 300.0, None);
            run.host += 300.0;
        }
        run.work();
    })
    .analysis();
    assert!(codes(&analysis).contains(&"TR111"), "{:?}", codes(&analysis));
}

#[test]
fn memory_that_grows_from_step_to_step_is_seen() {
    let grows = |by: u64| {
        steps(move |run, number| {
            for piece in 0..4u64 {
                let live = 1_000_000_000 + by * u64::from(number) + piece;
                run.events.push(format!(
                    r#"{{"ph":"i","s":"t","name":"[memory]","cat":"cpu_instant_event","pid":1,"tid":1,"ts":{:.3},"args":{{"Addr":{},"Bytes":{},"Total Allocated":{live},"Total Reserved":{live},"Device Type":1,"Device Id":0}}}}"#,
                    run.host,
                    1000 + 10 * u64::from(number) + piece,
                    by.max(1)
                ));
                run.kernel("aten::mm", "nvjet_tst", 2000.0);
            }
        })
        .analysis()
    };
    assert!(codes(&grows(50_000_000)).contains(&"TR112"));
    assert!(!codes(&grows(0)).contains(&"TR112"));
}

#[test]
fn kernels_of_a_graph_are_counted_and_need_no_launch_each() {
    let analysis = steps(|run, _| {
        let id = run.next_id;
        run.next_id += 1;
        run.host_span("cuda_runtime", "cudaGraphLaunch", 40.0, Some(id));
        let mut at = run.host + 50.0;
        for _ in 0..200 {
            run.device_span("kernel", "vectorized_elementwise_kernel", 7, at, 20.0, id, r#","graph node id":3"#);
            at += 20.5;
        }
        run.device_free = at;
        run.host += 60.0;
    })
    .analysis();
    assert_near(analysis.measures.kernels.per_step, 200.0);
    assert_near(analysis.measures.kernels.in_graphs_share, 1.0);
    assert!(!codes(&analysis).contains(&"TR103"), "{:?}", codes(&analysis));
}

#[test]
fn a_step_that_takes_much_longer_is_named() {
    let analysis = steps(|run, number| {
        run.work();
        if number == 2 {
            run.host_span("cpu_op", "aten::save", 30_000.0, None);
            run.host += 30_000.0;
        }
    })
    .analysis();
    let found = analysis.findings.iter().find(|finding| finding.code == "TR118").expect("the step is found");
    assert!(
        found.message.contains("ProfilerStep#2") || found.evidence.iter().any(|line| line.contains("#2")),
        "{found:?}"
    );
}

#[test]
fn streams_side_by_side_are_never_busier_than_the_clock() {
    let analysis = steps(|run, _| {
        for stream in 0..8 {
            let id = run.next_id;
            run.next_id += 1;
            run.host_span("cuda_runtime", "cudaLaunchKernel", 10.0, Some(id));
            let at = run.host + 15.0;
            run.device_span("kernel", "nvjet_tst", 7 + stream, at, 5000.0, id, "");
            run.device_free = run.device_free.max(at + 5000.0);
            run.host += 12.0;
        }
    })
    .analysis();
    let breakdown = &analysis.measures.breakdown;
    assert!(breakdown.busy_share <= 1.0 && breakdown.busy_share > 0.9, "{}", breakdown.busy_share);
}

#[test]
fn a_threshold_decides_whether_a_rule_fires() {
    let trace = steps(|run, _| {
        run.host_span("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 1000.0, None);
        run.host += 1000.0;
        run.work();
    })
    .trace();
    let with = |text: &str| {
        let mut options = Options::default();
        options.thresholds.set(text).expect("a threshold");
        codes(&analyze(std::slice::from_ref(&trace), &options).expect("there is a trace")).contains(&"TR104")
    };
    assert!(with("TR104=5%"));
    assert!(!with("TR104=50%"));
}

#[test]
fn without_marks_or_waits_the_path_runs_through_the_device() {
    let mut run = Run::new();
    for _ in 0..5 {
        run.work();
    }
    let analysis = run.analysis();
    let path = &analysis.measures.critical_path;
    assert!(path.device_seconds > 0.9 * (path.device_seconds + path.host_seconds + path.launch_seconds), "{path:?}");
    assert!(matches!(analysis.steps.measured_on, MeasuredOn::Device | MeasuredOn::Host));
}

#[test]
fn products_without_tensor_cores_save_what_the_units_differ_by_also_where_the_host_runs_ahead() {
    let analysis =
        steps_ahead(H200, |run| (0..10).for_each(|_| run.product("float", "ampere_sgemm_128x64_nn", 2200.0)))
            .analysis();
    assert_eq!(analysis.steps.measured_on, MeasuredOn::Device);
    assert_eq!(codes(&analysis)[0], "TR106", "{:?}", codes(&analysis));
    // An H200 runs fp32 GEMMs in TF32 more than seven times as fast.
    assert!(analysis.roadmap.total_saving_bound_share > 0.8, "{:?}", analysis.roadmap);
    // Every GEMM of every step counts, though most were launched before the device reached them.
    assert_near(analysis.measures.roofline.flops_per_step / (20.0 * 4096f64.powi(3)), 1.0);
}

#[test]
fn an_operator_on_the_host_inside_another_of_its_name_counts_once() {
    let analysis = steps_ahead("", |run| {
        run.host_span("cpu_op", "aten::sort", 50_000.0, None);
        run.host += 10.0;
        run.host_span("cpu_op", "aten::sort", 49_980.0, None);
        run.host += 49_990.0;
        run.work();
    })
    .analysis();
    assert_eq!(codes(&analysis), ["TR119"], "idle time that it explains is not told again");
    // Four of the five lie between the device's first and last work.
    assert_near(share(&analysis, "TR119"), 4.0 * 41_300.0 / 210_200.0);
}

#[test]
fn one_long_stop_is_an_uneven_step_and_no_matter_of_launches() {
    let analysis = steps(|run, number| {
        (0..60).for_each(|_| run.kernel("aten::add", "vectorized_elementwise_kernel", 4.0));
        if number == 1 {
            run.host += 60_000.0;
            run.kernel("aten::add", "vectorized_elementwise_kernel", 4.0);
        }
    })
    .analysis();
    assert_eq!(codes(&analysis)[0], "TR118", "{:?}", codes(&analysis));
    assert!(!codes(&analysis).contains(&"TR103"), "{:?}", codes(&analysis));
}

#[test]
fn churn_comes_before_the_idle_time_that_it_explains() {
    let analysis = steps(|run, _| {
        for _ in 0..10 {
            run.kernel("aten::mm", "nvjet_tst", 900.0);
            run.synchronise("cudaFree");
            run.host_span("cuda_runtime", "cudaMalloc", 900.0, None);
            run.host += 900.0;
        }
    })
    .analysis();
    assert_eq!(codes(&analysis)[0], "TR111", "{:?}", codes(&analysis));
    assert!(!codes(&analysis).contains(&"TR102"), "{:?}", codes(&analysis));
}
