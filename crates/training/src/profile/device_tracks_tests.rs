//! Tests of a GPU's trace, on synthetic recordings.

use super::*;
use crate::data::BatchShape;
use crate::models::Size;
use crate::optimizer::OptimizerConfig;
use crate::profile::trace_file::{TraceAbout, alone, write_trace};
use crate::program::{Keep, StepConfig, TrainingProgram, training_program};
use crate::recording::Recording;
use headroom_engine::Target;
use headroom_engine::recorder::{CallId, Recorder};
use headroom_graph::Precision;
use headroom_graph::passes::PassList;
use headroom_trace::validate::perfetto_problems;
use headroom_trace::{Category, DeviceProperties, NONE, Trace, read_bytes};

fn program() -> TrainingProgram {
    let size = Size::named("nano").unwrap();
    let optimizer = OptimizerConfig { weight_decay: 0.0, ..OptimizerConfig::default() };
    let step = StepConfig {
        model: size.model(),
        shape: BatchShape { batch_size: size.batch_size, seq_len: size.seq_len },
        optimizer,
        passes: PassList::all(),
        recomputed_layers: 0,
        precision: Precision::Fp32,
        target: Target::Cuda,
    };
    training_program(&step, Keep::OnlyTheLoss).unwrap()
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn kernel(name: &str, (start, end): (u64, u64), call: Option<u32>, correlation: u32) -> Activity {
    Activity {
        what: ActivityKind::Kernel { stream: 7, grid: [2, 1, 1], block: [64, 1, 1] },
        name: name.into(),
        start: micros(start),
        end: micros(end),
        correlation,
        call: call.map(|call| CallId { program: 0, call }),
    }
}

fn driver(name: &str, span: (u64, u64), call: Option<u32>, correlation: u32) -> Activity {
    Activity { what: ActivityKind::DriverCall, ..kernel(name, span, call, correlation) }
}

/// One step that starts at 100 µs: each call is one kernel of 8 µs, 2 µs apart, with one launch at 110 µs or a launch
/// per call.
fn recording(program: &TrainingProgram, timing: Timing) -> Recording {
    let calls = program.program.plan.calls.len() as u64;
    let at = |call: u64| (200 + 10 * call, 208 + 10 * call);
    let mut activities = vec![];
    if timing == Timing::ReplayedKernels {
        activities.push(driver("cuGraphLaunch", (110, 130), None, 5));
        activities.push(kernel("take_inputs", (190, 195), None, 5));
    }
    for call in 0..calls {
        let correlation = if timing == Timing::ReplayedKernels { 5 } else { 10 + call as u32 };
        if timing == Timing::Kernels {
            activities.push(driver("cuLaunchKernel", (110 + 3 * call, 112 + 3 * call), Some(call as u32), correlation));
        }
        activities.push(kernel("a_kernel", at(call), Some(call as u32), correlation));
    }
    let end = at(calls).1;
    activities.push(driver("cuStreamSynchronize", (end - 20, end - 1), None, 4));
    activities.sort_by_key(|one| one.start);
    let span =
        |call: u64| CallSpan { program: 0, call: call as u32, start: micros(at(call).0), end: micros(at(call).1) };
    let recorder = Recorder::of(timing, (0..calls).map(span).collect(), activities);
    Recording::of_one_step(&program.program, recorder, (micros(100), micros(105), micros(end)))
}

fn profiled<'a>(training: &'a TrainingProgram, recording: &'a Recording) -> Profiled<'a> {
    Profiled { training, recording, accumulation: 1 }
}

fn traced(profiled: &Profiled) -> Trace {
    let device = Some(DeviceProperties { name: "a GPU".into(), ..DeviceProperties::default() });
    let about = TraceAbout {
        process: 40,
        name: "t".into(),
        headroom: headroom_trace::RunHeader::default(),
        device,
        distributed: alone(),
    };
    let mut text = vec![];
    write_trace(profiled, &about, &mut text).unwrap();
    assert_eq!(perfetto_problems(std::str::from_utf8(&text).unwrap()), Vec::<String>::new());
    read_bytes(&text).unwrap()
}

/// How many kernels are linked to an operator, and how many to a launch.
fn ties(trace: &Trace) -> (usize, usize) {
    let host = |category: Category| -> HashSet<u32> {
        let spans = 0..trace.host.len();
        spans.filter(|&at| trace.host.category[at] == category).map(|at| trace.host.id[at]).collect()
    };
    let (operators, launches) = (host(Category::CpuOp), host(Category::Runtime));
    let kernels: Vec<usize> =
        (0..trace.device.len()).filter(|&at| trace.device.category[at] == Category::Kernel).collect();
    let count = |ids: &HashSet<u32>, column: &[u32]| kernels.iter().filter(|&&at| ids.contains(&column[at])).count();
    assert!(kernels.iter().all(|&at| trace.device.correlation[at] >= 100_000 && trace.device.external[at] != NONE));
    (count(&operators, &trace.device.external), count(&launches, &trace.device.correlation))
}

#[test]
fn kernels_of_a_replay_name_their_operators_and_its_one_launch() {
    let program = program();
    let recording = recording(&program, Timing::ReplayedKernels);
    let calls = program.program.plan.calls.len();
    let trace = traced(&profiled(&program, &recording));
    assert_eq!(ties(&trace), (calls, calls + 1));
    let waits = (0..trace.host.len()).filter(|&at| trace.host.category[at] == Category::Overhead).count();
    assert_eq!(waits, 1, "the recorder's own wait is none of the program's");
}

#[test]
fn call_by_call_an_operator_lies_where_the_host_launched_it() {
    let program = program();
    let recording = recording(&program, Timing::Kernels);
    let trace = traced(&profiled(&program, &recording));
    let calls = program.program.plan.calls.len();
    assert_eq!(ties(&trace), (calls, calls));
    let operator = (0..trace.host.len()).find(|&at| trace.host.category[at] == Category::CpuOp).unwrap();
    assert_eq!((trace.host.start[operator], trace.host.duration[operator]), (110_000, 2_000));
}
