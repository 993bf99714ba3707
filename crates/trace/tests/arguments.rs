//! Tests which event arguments are kept, where, and what a missing one becomes.

use headroom_trace::{CallKind, Category, HOST_MEMORY, NONE, Trace, read_bytes};

fn trace(events: &[String]) -> Trace {
    read_bytes(format!("[{}]", events.join(",")).as_bytes()).expect("is a trace")
}

fn operator(name: &str, arguments: &str) -> String {
    format!(r#"{{"ph":"X","cat":"cpu_op","name":"{name}","pid":1,"tid":1,"ts":1,"dur":2,"args":{{{arguments}}}}}"#)
}

fn kernel(start: usize, arguments: &str) -> String {
    format!(r#"{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":{start},"dur":1,"args":{{{arguments}}}}}"#)
}

#[test]
fn plain_inputs_are_kept_of_operators_whose_cost_hangs_on_them_alone() {
    let keeps = |name: &str| {
        let trace = trace(&[operator(name, r#""Concrete Inputs":["[2, 3]"]"#)]);
        !trace.host.concrete[0].is_none()
    };
    let kept = [
        "ones",
        "zeros",
        "full",
        "arange",
        "arange_out",
        "triu",
        "tril_",
        "eye",
        "empty_strided",
        "embedding_dense_backward",
        "linspace",
        "conv2d",
        "cudnn_convolution",
        "scaled_dot_product_attention",
        "_flash_attention_forward",
    ];
    for name in kept {
        assert!(keeps(&format!("aten::{name}")), "{name}");
        assert!(!keeps(name), "{name} of no library");
    }
    let left_out = [
        "ones_like",
        "zeros_like",
        "zero_",
        "full_like",
        "fill_",
        "add",
        "addmm",
        "transpose",
        "t",
        "to",
        "expand",
        "eq",
        "embedding",
        "exp",
        "linear",
        "layer_norm",
        "mm",
        "softmax",
        "",
    ];
    for name in left_out {
        assert!(!keeps(&format!("aten::{name}")), "{name}");
    }
}

#[test]
fn a_message_counts_in_bytes_of_its_type() {
    let widths = [
        ("Double", 8),
        ("Long", 8),
        ("double", 8),
        ("long", 8),
        ("Half", 2),
        ("BFloat16", 2),
        ("Short", 2),
        ("half", 2),
        ("bfloat16", 2),
        ("Byte", 1),
        ("Char", 1),
        ("Bool", 1),
        ("Float", 4),
        ("Int", 4),
        ("", 4),
    ];
    let events: Vec<String> = widths
        .iter()
        .enumerate()
        .map(|(at, (kind, _))| {
            let sizes = r#""In msg nelems":100,"Out msg nelems":300,"Group size":4"#;
            let names = r#""Collective name":"allreduce","Process Group Name":"0","Process Group Ranks":"[0, 1]""#;
            kernel(10 * (at + 1), &format!(r#"{sizes},{names},"dtype":"{kind}""#))
        })
        .collect();
    let trace = trace(&events);
    assert_eq!(trace.messages.len(), widths.len());
    for (at, (kind, width)) in widths.iter().enumerate() {
        let message = trace.message(at).unwrap_or_else(|| panic!("{kind} has a message"));
        assert_eq!((message.bytes_in, message.bytes_out, message.group_size), (100 * width, 300 * width, 4), "{kind}");
        assert_eq!(trace.device.bytes[at], 100 * width, "{kind}");
        let names = [message.collective, message.group, message.ranks].map(|name| trace.name(name));
        assert_eq!(names, ["allreduce", "0", "[0, 1]"]);
    }
    // A kernel's own byte count takes precedence; without a collective there is no message.
    let trace = self::trace(&[kernel(10, r#""bytes":7,"In msg nelems":100,"dtype":"Half""#), kernel(20, "")]);
    assert_eq!(trace.device.bytes, [7, 0]);
    assert!(trace.messages.is_empty() && trace.message(0).is_none());
}

#[test]
fn a_kernels_shape_and_occupancy_are_those_it_gives() {
    let given = kernel(
        10,
        r#""grid":[64, 2, 3],"block":[128, 4, 5],"est. achieved occupancy %":31,"correlation":5,"External id":6"#,
    );
    let odd = kernel(20, r#""est. achieved occupancy %":300,"correlation":-5,"External id":99999999999"#);
    let trace = trace(&[given, odd]);
    assert_eq!((trace.device.grid[0], trace.device.block[0]), ([64, 2, 3], [128, 4, 5]));
    assert_eq!(trace.device.occupancy, [31, 255]);
    assert_eq!((trace.device.correlation[0], trace.device.external[0]), (5, 6));
    assert_eq!((trace.device.correlation[1], trace.device.external[1]), (NONE, NONE));
}

#[test]
fn the_number_of_a_call_is_its_correlation_and_of_an_operator_its_external_id() {
    let numbers = r#""correlation":5,"External id":6,"Sequence number":9"#;
    let call = operator("cudaLaunchKernel", numbers).replace("cpu_op", "cuda_runtime");
    let read = |event: String| {
        let trace = trace(&[event]);
        (trace.host.id[0], trace.host.sequence[0])
    };
    assert_eq!(read(call), (5, 9));
    assert_eq!(read(operator("aten::mm", numbers)), (6, 9));
    assert_eq!(read(operator("aten::mm", "")), (NONE, NONE));
}

#[test]
fn memory_is_the_hosts_or_that_of_a_numbered_device() {
    let event = |start: u32, arguments: &str| {
        let head = format!(r#""ph":"i","cat":"cpu_instant_event","name":"[memory]","pid":1,"tid":1,"ts":{start}"#);
        format!(r#"{{{head},"args":{{{arguments}}}}}"#)
    };
    let trace = trace(&[
        operator("aten::empty", ""),
        event(1, r#""Bytes":64,"Addr":4096,"Total Allocated":100,"Total Reserved":200,"Device Type":1,"Device Id":3"#),
        event(2, r#""Bytes":-64,"Addr":4096,"Device Type":0,"Device Id":3"#),
        event(3, r#""Bytes":1"#),
        event(4, r#""Bytes":1,"Device Type":1"#),
        event(5, r#""Addr":4096"#),
    ]);
    assert_eq!(trace.memory.device, [3, HOST_MEMORY, HOST_MEMORY, 0]);
    assert_eq!(trace.memory.bytes, [64, -64, 1, 1]);
    assert_eq!((trace.memory.address[0], trace.memory.allocated[0], trace.memory.reserved[0]), (4096, 100, 200));
    assert_eq!((trace.memory.address[2], trace.memory.allocated[2], trace.memory.reserved[2]), (0, 0, 0));
    assert_eq!(trace.reading.damaged_events, 1);
}

#[test]
fn categories_lie_on_the_host_or_on_the_device_and_keep_their_names() {
    let on_device = [
        (Category::Kernel, true),
        (Category::Memcpy, true),
        (Category::Memset, true),
        (Category::GpuAnnotation, false),
        (Category::GpuSync, false),
    ];
    for (category, is_busy) in on_device {
        assert!(category.is_on_device(), "{category:?}");
        assert_eq!(category.keeps_device_busy(), is_busy, "{category:?}");
        assert_eq!(Category::from_kineto(category.kineto()), category);
    }
    let on_host = [
        Category::CpuOp,
        Category::UserAnnotation,
        Category::PythonFunction,
        Category::Runtime,
        Category::Overhead,
        Category::Other,
    ];
    for category in on_host {
        assert!(!category.is_on_device() && !category.keeps_device_busy(), "{category:?}");
        assert_eq!(Category::from_kineto(category.kineto()), category);
    }
}

#[test]
fn calls_that_put_work_on_a_stream_are_launches_copies_and_fills() {
    let kinds = [
        ("cudaLaunchCooperativeKernel", CallKind::Launch, true),
        ("cuLaunch", CallKind::Launch, true),
        ("urEnqueueKernelLaunch", CallKind::Launch, true),
        ("cudaGraphLaunch", CallKind::GraphLaunch, true),
        ("cudaMemcpyAsync", CallKind::Copy, true),
        ("cudaMemsetAsync", CallKind::Fill, true),
        ("cudaMemcpy", CallKind::Synchronise, false),
        ("cudaHostAlloc", CallKind::Allocate, false),
        ("cuMemAlloc_v2", CallKind::Allocate, false),
        ("cuMemFree_v2", CallKind::Free, false),
        ("cudaHostFree", CallKind::Free, false),
        ("cudaEventRecord", CallKind::Other, false),
    ];
    for (name, kind, queues) in kinds {
        assert_eq!((CallKind::of(name), kind.queues_work()), (kind, queues), "{name}");
    }
}

#[test]
fn a_counter_without_a_time_is_damage_and_one_with_it_a_sample() {
    let counter = |time: &str| format!(r#"{{"ph":"C","name":"GPU 0","pid":1,"tid":1{time},"args":{{"watts":300}}}}"#);
    let trace = trace(&[operator("aten::mm", ""), counter(r#","ts":5"#), counter("")]);
    assert_eq!(trace.reading.damaged_events, 1);
    assert_eq!(trace.counters.len(), 1);
    let sample = &trace.counters[0];
    assert_eq!((trace.name(sample.series), sample.time, sample.value), ("GPU 0: watts", 5_000, 300.0));
}

#[test]
fn categories_of_other_profilers_are_named_where_no_known_one_is() {
    let of = |category: &str| operator("work", "").replace("cpu_op", category);
    let foreign = trace(&[of("ours"), of("theirs"), of("ours"), of("Trace")]);
    assert_eq!(foreign.reading.foreign_categories, ["ours", "theirs"]);
    assert!(foreign.host.category.iter().all(|category| *category == Category::CpuOp));
    let known = trace(&[of("ours"), of("cpu_op")]);
    assert!(known.reading.foreign_categories.is_empty());
}

#[test]
fn memory_and_counters_come_in_the_order_of_time_whatever_the_files() {
    let memory = |start: u32| {
        let head =
            format!(r#""ph":"i","cat":"cpu_instant_event","name":"[memory]","pid":1,"tid":{start},"ts":{start}"#);
        let totals = format!(r#""Total Allocated":{},"Total Reserved":{}"#, 100 * start, 1_000 * start);
        let place = format!(r#""Addr":{},"Device Type":1,"Device Id":{start}"#, 10 * start);
        format!(r#"{{{head},"args":{{"Bytes":{start},{place},{totals}}}}}"#)
    };
    let counter =
        |start: u32| format!(r#"{{"ph":"C","name":"c","pid":1,"tid":1,"ts":{start},"args":{{"value":{start}}}}}"#);
    let trace = trace(&[memory(3), memory(1), counter(9), memory(2), counter(4)]);
    let columns = &trace.memory;
    assert_eq!(columns.time, [1_000, 2_000, 3_000]);
    assert_eq!((columns.bytes.as_slice(), columns.address.as_slice()), (&[1, 2, 3][..], &[10, 20, 30][..]));
    assert_eq!(
        (columns.allocated.as_slice(), columns.reserved.as_slice()),
        (&[100, 200, 300][..], &[1_000, 2_000, 3_000][..])
    );
    assert_eq!(columns.device, [1, 2, 3]);
    let threads: Vec<_> = columns.track.iter().map(|track| trace.track(*track).thread.number()).collect();
    assert_eq!(threads, [Some(1), Some(2), Some(3)]);
    assert_eq!(trace.counters.iter().map(|sample| sample.value).collect::<Vec<_>>(), [4.0, 9.0]);
}
