//! Traces made with one fault each: the fault is found, with its share, and a healthy run beside it is left alone.

use headroom_diagnosis::measures::steps::MeasuredOn;
use headroom_diagnosis::{Analysis, Options, analyze};
use headroom_trace::Trace;

/// A run in microseconds. The host orders ten kernels of 900 µs a step and keeps ahead; each test adds its fault.
struct Run {
    events: Vec<String>,
    rank: u32,
    world: u32,
    /// When the device's first stream is free again.
    device_free: f64,
    host: f64,
    next_id: u32,
    /// Names of the vendor: `cuda` or `hip`.
    vendor: &'static str,
}

impl Run {
    fn new() -> Run {
        Run { events: Vec::new(), rank: 0, world: 1, device_free: 0.0, host: 1000.0, next_id: 1, vendor: "cuda" }
    }

    fn host_span(&mut self, category: &str, name: &str, duration: f64, id: Option<u32>) {
        let arguments = match (category, id) {
            ("cpu_op", Some(id)) => format!(r#","args":{{"External id":{id}}}"#),
            (_, Some(id)) => format!(r#","args":{{"correlation":{id},"External id":{id}}}"#),
            _ => String::new(),
        };
        let at = self.host;
        self.events.push(format!(
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":1,"ts":{at:.3},"dur":{duration:.3}{arguments}}}"#
        ));
    }

    #[expect(clippy::too_many_arguments, reason = "an event's own fields, in the order of the file")]
    fn device_span(&mut self, category: &str, name: &str, stream: u32, at: f64, duration: f64, id: u32, more: &str) {
        self.events.push(format!(
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":0,"tid":{stream},"ts":{at:.3},"dur":{duration:.3},"args":{{"device":0,"stream":{stream},"correlation":{id}{more}}}}}"#
        ));
    }

    /// An operator that launches one kernel: 30 µs of the host.
    fn kernel(&mut self, operator: &str, name: &str, duration: f64) {
        let id = self.next_id;
        self.next_id += 1;
        self.host_span("cpu_op", operator, 30.0, Some(id));
        self.host += 10.0;
        self.host_span("cuda_runtime", &format!("{}LaunchKernel", self.vendor), 10.0, Some(id));
        let at = self.device_free.max(self.host + 12.0);
        self.device_span("kernel", name, 7, at, duration, id, "");
        self.device_free = at + duration;
        self.host += 20.0;
    }

    /// The host waits until the device has done everything.
    fn synchronise(&mut self, name: &str) {
        let waits = (self.device_free - self.host).max(0.0) + 8.0;
        self.host_span("cuda_runtime", name, waits, None);
        self.host += waits;
    }

    /// A step of `body` under the profiler's mark; the host then waits for the device, so that steps have one length.
    fn step(&mut self, number: u32, body: impl FnOnce(&mut Run)) {
        let start = self.host;
        body(self);
        let wait = format!("{}DeviceSynchronize", self.vendor);
        self.synchronise(&wait);
        let duration = self.host - start;
        self.events.push(format!(
            r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{number}","pid":1,"tid":1,"ts":{start:.3},"dur":{duration:.3}}}"#
        ));
    }

    fn work(&mut self) {
        for _ in 0..10 {
            self.kernel("aten::mm", "nvjet_tst_128x256_h_bz_coopA_NNT", 900.0);
        }
    }

    fn trace(&self) -> Trace {
        let text = format!(
            r#"{{"schemaVersion":1,"distributedInfo":{{"backend":"nccl","rank":{},"world_size":{}}},"traceEvents":[{}]}}"#,
            self.rank,
            self.world,
            self.events.join(",")
        );
        headroom_trace::read_bytes(text.as_bytes()).expect("is a trace")
    }

    fn analysis(&self) -> Analysis {
        analyze(&[self.trace()], &Options::default()).expect("there is a trace")
    }
}

fn steps(body: impl Fn(&mut Run, u32)) -> Run {
    let mut run = Run::new();
    for number in 0..4 {
        run.step(number, |run| body(run, number));
    }
    run
}

fn codes(analysis: &Analysis) -> Vec<&'static str> {
    analysis.findings.iter().map(|finding| finding.code).collect()
}

/// The share of the first finding of a rule.
fn share(analysis: &Analysis, code: &str) -> f64 {
    let found = analysis.findings.iter().find(|finding| finding.code == code);
    found.unwrap_or_else(|| panic!("no {code} among {:?}", codes(analysis))).share_of_step.unwrap_or(0.0)
}

fn assert_near(found: f64, want: f64) {
    assert!((found - want).abs() < 0.03, "{found} is not {want}");
}

#[test]
fn a_well_tuned_run_gets_no_alarm() {
    let run = steps(|run, _| run.work());
    let analysis = run.analysis();
    assert!(analysis.measures.breakdown.busy_share > 0.97);
    assert_eq!(codes(&analysis), Vec::<&str>::new());
}

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

/// A rank whose collective of a step takes `duration`, after its own work.
fn rank(number: u32, duration: f64) -> Trace {
    let mut run = Run { rank: number, world: 2, ..Run::new() };
    for step in 0..4 {
        run.step(step, |run| {
            run.work();
            let id = run.next_id;
            run.next_id += 1;
            run.host_span("cuda_runtime", "cudaLaunchKernel", 10.0, Some(id));
            let at = run.device_free;
            run.device_span("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, at, duration, id, "");
            run.device_free = at + duration;
            run.host += 20.0;
        });
    }
    run.trace()
}

#[test]
fn the_rank_that_the_others_wait_for_is_named() {
    let analysis = analyze(&[rank(0, 4000.0), rank(1, 500.0)], &Options::default()).expect("there are traces");
    let found = analysis.findings.iter().find(|finding| finding.code == "TR116").expect("a straggler is found");
    assert!(found.message.starts_with("rank 1 "), "{}", found.message);
    let even = analyze(&[rank(0, 500.0), rank(1, 500.0)], &Options::default()).expect("there are traces");
    assert!(!codes(&even).contains(&"TR116"), "{:?}", codes(&even));
}

#[test]
fn collectives_that_nothing_hides_are_exposed() {
    let analysis = analyze(&[rank(0, 4000.0)], &Options::default()).expect("there is a trace");
    assert_near(share(&analysis, "TR115"), 4000.0 / 13_050.0);
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
