//! Traces not written by Kineto: JAX's, PyTorch's before Kineto, begin/end events, categories of other programs.

use std::path::Path;

use headroom_trace::{CallKind, Category, NONE, Trace, read, read_bytes, read_file};

fn names(trace: &Trace, category: Category) -> Vec<&str> {
    let host = (0..trace.host.len()).filter(|&at| trace.host.category[at] == category);
    let device = (0..trace.device.len()).filter(|&at| trace.device.category[at] == category);
    host.map(|at| trace.name(trace.host.name[at])).chain(device.map(|at| trace.name(trace.device.name[at]))).collect()
}

#[test]
fn a_trace_of_jax_on_the_cpu_has_steps_operations_and_functions() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/jax_cpu.trace.json.gz");
    let trace = read_file(&path).expect("is a trace");
    assert_eq!((trace.reading.events, trace.reading.damaged_events, trace.reading.impossible_durations), (368, 0, 0));
    let steps: Vec<&str> =
        names(&trace, Category::UserAnnotation).into_iter().filter(|name| name.starts_with("ProfilerStep")).collect();
    assert_eq!(steps, ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3"]);
    let operations = names(&trace, Category::CpuOp);
    assert_eq!(operations.iter().filter(|name| **name == "dot").count(), 4);
    assert!(names(&trace, Category::PythonFunction).contains(&"profiler.py(151): start_trace"));
}

#[test]
fn a_trace_of_jax_on_an_h200_ties_kernels_to_the_graphs_that_hold_them() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/jax_gpu.trace.json.gz");
    let trace = read_file(&path).expect("is a trace");
    assert_eq!((trace.reading.events, trace.reading.damaged_events), (771, 0));
    assert_eq!((names(&trace, Category::Kernel).len(), names(&trace, Category::Memcpy).len()), (294, 3));
    let launches: Vec<usize> = (0..trace.host.len())
        .filter(|&at| CallKind::of(trace.name(trace.host.name[at])) == CallKind::GraphLaunch)
        .collect();
    assert_eq!(launches.len(), 6);
    let of_launch = |at: usize| trace.device.correlation.iter().filter(|id| **id == trace.host.id[at]).count();
    assert_eq!(launches.iter().map(|&at| of_launch(at)).sum::<usize>(), 294);
    // 1.365 ms in total, as summed with Python's json module.
    let nanos: i64 = trace.device.duration.iter().sum();
    assert_eq!(nanos / 1000, 1365);
}

#[test]
fn older_profilers_on_rocm_link_calls_and_work_by_external_ids() {
    let links = |call: &str, of_call: &str, of_kernel: &str| {
        let text = format!(
            r#"{{"traceEvents":[
            {{"ph":"X","cat":"cuda_runtime","name":"{call}","pid":1,"tid":1,"ts":2,"dur":3,"args":{{{of_call}}}}},
            {{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":6,"dur":3,"args":{{{of_kernel}}}}}]}}"#
        );
        let trace = read_bytes(text.as_bytes()).expect("is a trace");
        (trace.host.id[0], trace.device.correlation[0])
    };
    assert_eq!(links("hipLaunchKernel", r#""External id":3"#, r#""External id":3"#), (3, 3));
    let both = r#""External id":3,"correlation":8"#;
    assert_eq!(links("hipLaunchKernel", both, both), (8, 8));
    // Elsewhere it is the number of the operator around the call.
    assert_eq!(links("cudaLaunchKernel", r#""External id":3"#, r#""External id":3"#), (NONE, NONE));
}

#[test]
fn a_trace_of_jax_on_a_gpu_has_kernels_copies_and_their_launches() {
    let text = br#"{"displayTimeUnit":"ns","traceEvents":[
        {"ph":"M","pid":1,"name":"process_name","args":{"name":"/device:GPU:0"}},
        {"ph":"M","pid":1,"tid":20,"name":"thread_name","args":{"name":"Stream #20(Compute)"}},
        {"ph":"M","pid":1,"tid":2,"name":"thread_name","args":{"name":"XLA Ops"}},
        {"ph":"M","pid":701,"name":"process_name","args":{"name":"/host:CPU"}},
        {"ph":"X","pid":701,"tid":7,"ts":1.0,"dur":50,"name":"train","args":{"step_num":"4"}},
        {"ph":"X","pid":701,"tid":7,"ts":2.0,"dur":3,"name":"cuLaunchKernel","args":{"correlation_id":"9"}},
        {"ph":"X","pid":1,"tid":20,"ts":10.5,"dur":4.25,"name":"loop_fusion","args":{"correlation_id":"9","hlo_op":"fusion.1",
            "kernel_details":"regs:16 static_shared:0 dynamic_shared:0 grid:8,1,1 block:128,1,1 occ_pct:50"}},
        {"ph":"X","pid":1,"tid":20,"ts":20,"dur":2,"name":"MemcpyH2D","args":{"memcpy_details":"kind_src:pinned size:4096 async:1"}},
        {"ph":"X","pid":1,"tid":2,"ts":10.5,"dur":4.25,"name":"fusion.1","args":{"hlo_op":"fusion.1"}},{}]}"#;
    let trace = read_bytes(text).expect("is a trace");
    assert_eq!(names(&trace, Category::UserAnnotation), ["ProfilerStep#4"]);
    assert_eq!(names(&trace, Category::Runtime), ["cuLaunchKernel"]);
    assert_eq!(names(&trace, Category::Kernel), ["loop_fusion"]);
    assert_eq!(names(&trace, Category::Memcpy), ["MemcpyH2D"]);
    assert_eq!(names(&trace, Category::GpuAnnotation), ["fusion.1"], "the derived track is not work a second time");
    let kernel = (0..trace.device.len()).find(|&at| trace.device.category[at] == Category::Kernel).expect("is there");
    let device = &trace.device;
    assert_eq!((device.correlation[kernel], device.grid[kernel], device.block[kernel]), (9, [8, 1, 1], [128, 1, 1]));
    assert_eq!((device.start[kernel], device.duration[kernel], device.occupancy[kernel]), (10_500, 4_250, 50));
    assert!(device.bytes.contains(&4096));
}

#[test]
fn a_tpus_operations_are_its_work() {
    let text = br#"{"traceEvents":[
        {"ph":"M","pid":3,"name":"process_name","args":{"name":"/device:TPU:0"}},
        {"ph":"M","pid":3,"tid":1,"name":"thread_name","args":{"name":"XLA Modules"}},
        {"ph":"M","pid":3,"tid":2,"name":"thread_name","args":{"name":"XLA Ops"}},
        {"ph":"X","pid":3,"tid":1,"ts":0,"dur":9,"name":"jit_step"},
        {"ph":"X","pid":3,"tid":2,"ts":0,"dur":9,"name":"fusion.2"}]}"#;
    let trace = read_bytes(text).expect("is a trace");
    assert_eq!(
        (names(&trace, Category::Kernel), names(&trace, Category::GpuAnnotation)),
        (vec!["fusion.2"], vec!["jit_step"])
    );
}

#[test]
fn pytorch_before_kineto_names_processes_and_gives_no_category() {
    let text = br#"[{"name":"mm","ph":"X","ts":1,"dur":4,"tid":0,"pid":"CPU functions","args":{}},
        {"name":"mm","ph":"X","ts":3,"dur":9,"tid":"0","pid":"CUDA functions","args":{}}]"#;
    let trace = read_bytes(text).expect("is a trace");
    assert_eq!((names(&trace, Category::CpuOp), names(&trace, Category::Kernel)), (vec!["mm"], vec!["mm"]));
}

#[test]
fn a_span_may_begin_and_end_in_two_events() {
    let text = br#"[{"ph":"B","cat":"cpu_op","name":"outer","pid":1,"tid":1,"ts":10},
        {"ph":"B","cat":"kernel","name":"k","pid":0,"tid":7,"ts":11},
        {"ph":"B","name":"inner","pid":1,"tid":1,"ts":12},
        {"ph":"E","pid":1,"tid":1,"ts":15}, {"ph":"E","pid":0,"tid":7,"ts":31}, {"ph":"E","pid":1,"tid":1,"ts":20},
        {"ph":"B","cat":"cpu_op","name":"endless","pid":1,"tid":1,"ts":30}]"#;
    let trace = read_bytes(text).expect("is a trace");
    let spans: Vec<(&str, i64)> =
        (0..trace.host.len()).map(|at| (trace.name(trace.host.name[at]), trace.host.duration[at])).collect();
    assert_eq!(spans, [("outer", 10_000), ("inner", 3_000), ("endless", 0)]);
    assert_eq!((trace.device.duration[0], trace.reading.damaged_events), (20_000, 1));
}

#[test]
fn spans_of_another_program_are_taken_for_operators_and_that_is_said() {
    let text = br#"[{"ph":"X","cat":"PERF","name":"a","pid":1,"tid":1,"ts":1,"dur":1},
        {"ph":"X","cat":"io","name":"b","pid":1,"tid":1,"ts":5,"dur":1}]"#;
    let trace = read_bytes(text).expect("is a trace");
    assert_eq!(names(&trace, Category::CpuOp), ["a", "b"]);
    assert_eq!(trace.reading.foreign_categories, ["PERF", "io"]);
    let mixed = read_bytes(
        br#"[{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1},
        {"ph":"X","cat":"io","name":"b","pid":1,"tid":1,"ts":5,"dur":1}]"#,
    )
    .expect("is a trace");
    assert_eq!((names(&mixed, Category::CpuOp), mixed.reading.foreign_categories.len()), (vec!["a"], 0));
}

#[test]
fn what_a_folder_skips_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let event = r#"[{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1}]"#;
    std::fs::write(folder.path().join("rank0.json"), event).expect("is written");
    std::fs::write(folder.path().join("summary.json"), r#"{"loss": 1}"#).expect("is written");
    std::fs::create_dir(folder.path().join("older")).expect("is made");
    let traces = read(folder.path()).expect("is a folder of traces");
    assert_eq!(traces.len(), 1);
    assert_eq!(
        traces[0].reading.skipped_files,
        ["older/: subfolders are not read", "summary.json: it has no \"traceEvents\""]
    );
}
