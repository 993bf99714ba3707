//! Checks that a written trace reads back unchanged, obeys Perfetto's rules and has the keys that readers look for.

use headroom_trace::run::{PeaksHeader, PlanHeader, Timing};
use headroom_trace::validate::perfetto_problems;
use headroom_trace::write::{
    DevicePlace, HostPlace, Queues, TraceWriter, WrittenCall, WrittenHeader, WrittenKernel, WrittenMemory,
    WrittenMessage, WrittenOperator, WrittenTransfer,
};
use headroom_trace::{Category, DeviceProperties, Distributed, HOST_MEMORY, Phase, RunHeader, read_bytes};

fn host(start_nanos: u64, duration_nanos: u64) -> HostPlace {
    HostPlace { process: 40, thread: 41, start_nanos, duration_nanos }
}

fn device(start_nanos: u64, duration_nanos: u64) -> DevicePlace {
    DevicePlace { device: 0, stream: 7, start_nanos, duration_nanos }
}

fn run_header() -> RunHeader {
    RunHeader {
        device: "a GPU".into(),
        timing: Timing::ReplayedKernels,
        peaks: PeaksHeader { product_flops: 7e14, call_seconds: 1e-6, ..PeaksHeader::default() },
        plan: PlanHeader { peak_bytes: 17, largest_batch_that_fits: Some(3), ..PlanHeader::default() },
        ..RunHeader::default()
    }
}

fn written() -> String {
    let header = WrittenHeader {
        devices: vec![DeviceProperties { id: 0, name: "NVIDIA H200".into(), ..DeviceProperties::default() }],
        distributed: Distributed { backend: "none".into(), rank: 3, world_size: 4 },
        base_nanos: 1_790_857_026_000_000_000,
        headroom: Some(run_header()),
    };
    let mut out = Vec::new();
    let mut writer = TraceWriter::start(&mut out, &header).expect("memory takes it");
    let mut write = || {
        writer.process(40, "headroom", "CPU")?;
        writer.thread(40, 41, "main")?;
        writer.step(5, host(1_000, 9_000), 1)?;
        writer.operator(&WrittenOperator {
            name: "matmul \"q\"\n",
            place: host(1_500, 2_001),
            external_id: 2,
            sequence: Some(9),
            input_dims: &[vec![4, 8], vec![8, 16]],
            input_types: &["float", "float"],
            flops: 1_024,
            bytes: 640,
            is_product: true,
            phase: Phase::Forward,
            module: "layers.0.attention.q+k",
            shares: &[0.75, 0.25],
            live: [1, 2, 3, 4, 5],
        })?;
        writer.call(&WrittenCall {
            name: "cudaLaunchKernel",
            place: host(1_600, 500),
            external_id: 2,
            correlation: 100_000,
            queues_work: Queues::Work,
        })?;
        writer.kernel(&WrittenKernel {
            message: Some(WrittenMessage {
                collective: "allreduce",
                elements_in: 640,
                elements_out: 640,
                element_type: "Float",
                ranks: 2,
            }),
            name: "gemm",
            place: device(2_500, 700),
            external_id: 2,
            correlation: 100_000,
            grid: [4, 2, 1],
            block: [128, 1, 1],
        })?;
        let copy = WrittenTransfer {
            name: "Memcpy HtoD (Pinned -> Device)",
            place: device(4_000, 100),
            external_id: 2,
            correlation: 100_001,
            bytes: 4_096,
        };
        writer.copy(&copy)?;
        writer.memory(&WrittenMemory {
            process: 40,
            thread: 41,
            time_nanos: 1_700,
            address: 0xff,
            bytes: -64,
            total_allocated: 128,
            total_reserved: 256,
            device: None,
        })
    };
    write().expect("memory takes it");
    writer.finish("a trace").expect("memory takes it");
    String::from_utf8(out).expect("is text")
}

#[test]
fn what_is_written_is_read_back() {
    let trace = read_bytes(written().as_bytes()).expect("is a trace");
    assert_eq!((trace.reading.damaged_events, trace.reading.truncated_at_byte), (0, None));
    assert_eq!((trace.rank(), trace.header.devices[0].name.as_str()), (3, "NVIDIA H200"));
    assert_eq!(trace.header.headroom, Some(run_header()));
    let operator = trace.host.category.iter().position(|one| *one == Category::CpuOp).expect("is there");
    assert_eq!(trace.name(trace.host.name[operator]), "matmul \"q\"");
    assert_eq!((trace.host.start[operator], trace.host.duration[operator]), (1_500, 2_001));
    assert_eq!((trace.host.id[operator], trace.host.sequence[operator]), (2, 9));
    assert_eq!(trace.name(trace.host.dims[operator]), "[[4, 8], [8, 16]]");
    let stated = trace.stated(operator).expect("the operator says what it is");
    assert_eq!(trace.name(stated.module), "layers.0.attention.q+k");
    assert_eq!(trace.name(stated.shares), "[0.75,0.25]");
    assert_eq!((stated.flops, stated.bytes, stated.is_product), (1_024, 640, true));
    assert_eq!((stated.phase, stated.live), (Some(Phase::Forward), [1, 2, 3, 4, 5]));
    assert_eq!((trace.device.correlation[0], trace.device.grid[0]), (100_000, [4, 2, 1]));
    let message = trace.message(0).expect("the kernel tells its message");
    assert_eq!((trace.name(message.collective), message.group_size), ("allreduce", 2));
    assert_eq!((message.bytes_in, message.bytes_out), (2_560, 2_560));
    assert_eq!(trace.device.bytes[1], 4_096);
    assert_eq!((trace.memory.bytes[0], trace.memory.device[0]), (-64, HOST_MEMORY));
}

#[test]
fn what_is_written_keeps_perfettos_rules_and_the_order_of_keys() {
    let text = written();
    assert_eq!(perfetto_problems(&text), Vec::<String>::new());
    assert!(text.starts_with("{\"schemaVersion\": 1"));
    assert!(text.contains("\"rank\": 3"));
    let keys = [
        "schemaVersion",
        "deviceProperties",
        "distributedInfo",
        "record_shapes",
        "profile_memory",
        "with_flops",
        "displayTimeUnit",
        "baseTimeNanoseconds",
        "traceEvents",
        "traceName",
    ];
    let places: Vec<Option<usize>> = keys.iter().map(|key| text.find(&format!("\"{key}\":"))).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
    assert!(text.contains("\"ts\": 1.500, \"dur\": 2.001"));
    let flows = text.matches("\"ac2g\", \"name\"").count();
    assert_eq!(flows, 3, "one from the launch, one to the kernel, one to the copy");
}

#[test]
fn the_file_reads_so() {
    insta::assert_snapshot!(written());
}
