//! Reads real traces completely and damaged ones as far as possible, and rejects anything else in one sentence.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use headroom_trace::{
    CallKind, Category, GzipRatio, HOST_MEMORY, Label, Trace, read, read_bytes, read_file, read_packed,
};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(format!("{name}.pt.trace.json.gz"))
}

fn text_of(name: &str) -> Vec<u8> {
    let mut text = Vec::new();
    let file = std::fs::File::open(data(name)).expect("the data is there");
    flate2::read::GzDecoder::new(file).read_to_end(&mut text).expect("it unpacks");
    text
}

fn count(trace: &Trace, category: Category) -> usize {
    trace.host.category.iter().chain(&trace.device.category).filter(|one| **one == category).count()
}

/// Checks event counts per category against those from Python's json module.
fn check_counts(name: &str, events: u64, host: [usize; 4], device: [usize; 4], memory: usize) {
    let trace = read_file(&data(name)).expect("is a trace");
    assert_eq!(trace.reading.events, events);
    assert_eq!((trace.reading.damaged_events, trace.reading.impossible_durations), (0, 0));
    assert_eq!(trace.reading.truncated_at_byte, None);
    let categories = [Category::CpuOp, Category::PythonFunction, Category::Runtime, Category::UserAnnotation];
    assert_eq!(categories.map(|category| count(&trace, category)), host);
    let categories = [Category::Kernel, Category::Memcpy, Category::Memset, Category::GpuAnnotation];
    assert_eq!(categories.map(|category| count(&trace, category)), device);
    assert_eq!(trace.memory.len(), memory);
    assert_eq!(trace.header.devices[0].name, "NVIDIA H200");
    assert!(trace.header.records_stacks && trace.header.records_shapes && trace.header.records_memory);
}

#[test]
fn real_traces_are_read_whole() {
    check_counts("slow", 28_560, [7_902, 10_880, 1_585 + 78, 12], [993, 198, 123, 6], 2_615);
    check_counts("fixed", 26_550, [6_924, 11_587, 1_129 + 78, 12], [849, 39, 81, 6], 2_472);
    check_counts("tiny_llama_v1", 27_223, [9_477, 5_060, 1_702 + 87, 9], [1_638, 30, 27, 6], 3_390);
}

#[test]
fn the_figures_of_an_event_are_those_in_the_file() {
    let trace = read_file(&data("slow")).expect("is a trace");
    let step = (0..trace.host.len()).find(|&at| trace.name(trace.host.name[at]) == "ProfilerStep#5").expect("is there");
    assert_eq!((trace.host.start[step], trace.host.duration[step]), (3_843_902_023_030_052, 32_239_294));
    let copy = trace.device.bytes.iter().position(|bytes| *bytes == 33_024).expect("is there");
    assert_eq!(trace.name(trace.device.name[copy]), "Memcpy HtoD (Pageable -> Device)");
    assert_eq!((trace.device.correlation[copy], trace.device.external[copy]), (13_579, 73));
    assert_eq!(trace.track(trace.device.track[copy]).thread, Label::Number(7));
    let triu = trace.names.iter().find(|(_, name)| name.contains("triu_tril_kernel")).expect("is there").0;
    let kernel = trace.device.name.iter().position(|name| *name == triu).expect("is there");
    assert_eq!((trace.device.grid[kernel], trace.device.block[kernel]), ([64, 1, 1], [128, 1, 1]));
    assert_eq!(trace.device.occupancy[kernel], 3);
    let ones = (0..trace.host.len()).find(|&at| trace.name(trace.host.name[at]) == "aten::ones").expect("is there");
    assert!(trace.name(trace.host.concrete[ones]).contains("[128, 128]"));
    assert_eq!(trace.memory.device.iter().filter(|device| **device == HOST_MEMORY).count(), 59);
}

#[test]
fn spans_are_ordered_by_lane_and_start() {
    let trace = read_file(&data("slow")).expect("is a trace");
    let keys: Vec<_> = (0..trace.host.len()).map(|at| (trace.host.track[at], trace.host.start[at])).collect();
    assert!(keys.is_sorted());
    let keys: Vec<_> = (0..trace.device.len()).map(|at| (trace.device.track[at], trace.device.start[at])).collect();
    assert!(keys.is_sorted());
}

#[test]
fn one_line_or_many_plain_or_packed_it_is_the_same_trace() {
    let text = text_of("fixed");
    let value: serde_json::Value = serde_json::from_slice(&text).expect("is JSON");
    let compact = serde_json::to_vec(&value).expect("is JSON");
    let (pretty, compact) = (read_bytes(&text).expect("is a trace"), read_bytes(&compact).expect("is a trace"));
    assert_eq!(pretty.host.start, compact.host.start);
    assert_eq!(pretty.device.duration, compact.device.duration);
    assert_eq!(pretty.reading.events, compact.reading.events);
    let packed = read_file(&data("fixed")).expect("is a trace");
    assert_eq!(pretty.host.start, packed.host.start);
}

#[test]
fn a_trace_larger_than_many_blocks_is_read_whole() {
    // Seven copies of the events make some 60 MB. Block boundaries must not change the result.
    let text = text_of("slow");
    let open = text.windows(16).position(|window| window == b"\"traceEvents\": [").expect("is there") + 16;
    let close = text.windows(4).rposition(|window| window == b"\n  ]").expect("is there");
    let mut large = text[..open].to_vec();
    for copy in 0..7 {
        large.extend_from_slice(if copy == 0 { b"" } else { b"," });
        large.extend_from_slice(&text[open..close]);
    }
    large.extend_from_slice(&text[close..]);
    let trace = read_bytes(&large).expect("is a trace");
    assert_eq!((trace.reading.events, trace.reading.damaged_events), (7 * 28_560, 0));
    assert_eq!(trace.reading.truncated_at_byte, None);
    assert_eq!(count(&trace, Category::Kernel), 7 * 993);
}

#[test]
fn strings_that_look_like_the_end_of_an_event_do_not_mislead() {
    let name = "},{\\\"ph\\\": \\\"X\\\"".repeat(400_000);
    let event = |name: &str| format!(r#"{{"ph":"X","cat":"cpu_op","name":"{name}","pid":1,"tid":1,"ts":1,"dur":1}}"#);
    let text = format!(r#"{{"traceEvents": [{},{},{}]}}"#, event("a"), event(&name), event("b"));
    let trace = read_bytes(text.as_bytes()).expect("is a trace");
    assert_eq!((trace.reading.events, trace.reading.damaged_events), (3, 0));
    assert_eq!(trace.name(trace.host.name[1]).len(), "},{\"ph\": \"X\"".len() * 400_000);
}

#[test]
fn a_trace_cut_anywhere_is_read_up_to_there_and_said_to_be_cut() {
    let text = text_of("slow");
    let mut last = 0;
    for cut in (2_000..text.len() - 200).step_by(text.len() / 150 + 1) {
        let trace = read_bytes(&text[..cut]).expect("is a trace");
        assert_eq!(trace.reading.truncated_at_byte, Some(cut as u64));
        assert_eq!(trace.reading.damaged_events, 0, "cut at {cut}");
        assert!(trace.reading.events >= last);
        last = trace.reading.events;
    }
    assert!(last > 28_000);
}

#[test]
fn cutting_the_first_bytes_byte_by_byte_never_panics() {
    let text = text_of("slow");
    for cut in 0..4_000 {
        let _ = read_bytes(&text[..cut]);
    }
}

#[test]
fn damage_costs_the_event_it_is_in_and_few_others() {
    let text = text_of("fixed");
    let damages: [(&str, &[u8]); 6] = [
        ("bad UTF-8", b"\xff\xfe\xff"),
        ("an open quote", b"\""),
        ("an open bracket", b"["),
        ("a closing brace", b"}"),
        ("zeros", b"\0\0\0\0\0\0\0\0\0\0\0\0"),
        ("a backslash", b"\\"),
    ];
    for (what, bytes) in damages {
        for place in [3_000_017, 5_432_109] {
            let mut damaged = text.clone();
            damaged.splice(place..place + 1, bytes.iter().copied());
            let trace = read_bytes(&damaged).expect("is a trace");
            assert!(trace.reading.events > 26_550 - 12, "{what} at {place}: {:?}", trace.reading);
        }
    }
}

#[test]
fn a_packed_file_cut_short_is_read_as_far_as_it_goes() {
    let packed = std::fs::read(data("slow")).expect("the data is there");
    let folder = tempfile::tempdir().expect("a folder");
    for (numerator, least) in [(1, 5_000), (2, 13_000), (3, 20_000)] {
        let path = folder.path().join("cut.json.gz");
        std::fs::write(&path, &packed[..packed.len() * numerator / 4]).expect("can be written");
        let trace = read_file(&path).expect("is a trace");
        assert!(trace.reading.events > least, "{:?}", trace.reading);
        assert!(trace.reading.truncated_at_byte.is_some());
    }
}

#[test]
fn hostile_values_are_survived() {
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let text = format!(
        r#"{{"traceEvents": [
        {{"ph":"X","cat":"cpu_op","name":"deep","pid":1,"tid":1,"ts":1,"dur":1,"args":{{"Input Dims":{deep}}}}},
        {{"ph":"X","cat":"cpu_op","name":"huge","pid":1e400,"tid":99999999999999999999999,"ts":1e308,"dur":1}},
        {{"ph":"X","cat":"kernel","name":"wrapped","pid":0,"tid":7,"ts":5,"dur":18446744073709551.615}},
        {{"ph":"X","cat":"kernel","name":"no duration","pid":0,"tid":7,"ts":5}},
        {{"ph":"X"}}, {{}}, 17, "text", null, [1, 2],
        {{"ph":"X","cat":3,"name":{{"a":1}},"pid":[],"tid":null,"ts":"7","dur":"2.5","args":[1]}},
        {{"ph":"X","cat":"kernel","name":"last","pid":0,"tid":7,"ts":6,"dur":2}}
        ]}}"#
    );
    let trace = read_bytes(text.as_bytes()).expect("is a trace");
    assert_eq!(trace.reading.impossible_durations, 1);
    assert_eq!(trace.device.len(), 1);
    assert_eq!(trace.name(trace.device.name[0]), "last");
    assert_eq!(trace.name(trace.host.name[0]), "deep");
}

#[test]
fn traces_of_amd_gpus_are_read_the_same() {
    let text = br#"{"traceEvents": [
        {"ph":"X","cat":"cuda_runtime","name":"hipLaunchKernel","pid":9,"tid":9,"ts":1,"dur":2,"args":{"correlation":5}},
        {"ph":"X","cat":"kernel","name":"Cijk_Ailk_Bljk","pid":2,"tid":0,"ts":3,"dur":4,"args":{"correlation":5}},
        {"ph":"X","cat":"hip_runtime","name":"hipStreamSynchronize","pid":9,"tid":9,"ts":4,"dur":2}]}"#;
    let trace = read_bytes(text).expect("is a trace");
    assert_eq!((count(&trace, Category::Runtime), count(&trace, Category::Kernel)), (2, 1));
    assert_eq!(CallKind::of(trace.name(trace.host.name[0])), CallKind::Launch);
    assert_eq!(trace.host.id[0], trace.device.correlation[0]);
}

#[test]
fn a_list_of_events_without_a_header_is_a_trace_too() {
    let trace =
        read_bytes(br#"[{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1}]"#).expect("is one");
    assert_eq!((trace.host.len(), trace.reading.truncated_at_byte), (1, None));
}

#[test]
fn what_is_no_trace_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let refusal = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("can be written");
        read(&path).expect_err("is no trace").to_string()
    };
    assert!(refusal("a.json", b"").contains("it is empty"));
    assert!(refusal("b.json", b"import torch\n").contains("it is not JSON"));
    assert!(refusal("c.json", b"{\"loss\": 1.5}").contains("has no \"traceEvents\""));
    assert!(refusal("d.json", b"{\"loss\": [1.5").contains("it ends before its first event"));
    assert!(refusal("e.json", b"\x7fELF\x02\x01").contains("is not a profiler trace"));
    assert!(read(&folder.path().join("missing.json")).expect_err("is missing").to_string().contains("cannot read"));
}

#[test]
fn a_folder_gives_one_trace_a_rank_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    for rank in [2, 0, 1] {
        let text = format!(r#"{{"distributedInfo": {{"rank": {rank}, "world_size": 3}}, "traceEvents": []}}"#);
        let name = format!("host{}.pt.trace.json.gz", 9 - rank);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(text.as_bytes()).expect("packs");
        std::fs::write(folder.path().join(name), packed.finish().expect("packs")).expect("can be written");
    }
    std::fs::write(folder.path().join("config.json"), "{}").expect("can be written");
    let ranks: Vec<u32> = read(folder.path()).expect("are traces").iter().map(Trace::rank).collect();
    assert_eq!(ranks, [0, 1, 2]);
    let empty = tempfile::tempdir().expect("a folder");
    assert!(read(empty.path()).expect_err("is empty").to_string().contains("holds no trace"));
}

#[test]
fn damage_that_repeats_is_passed_in_one_go() {
    // Each object stays open and contains the next: searching for the end of each would take hours.
    for (unit, events) in
        [("{\"x\":[{},", 0), ("{\"x\":[{},{\"a\":1},", 300_000), ("{\"x\":[{},{\"a\":1}{\"y\":[", 300_000)]
    {
        let text = format!("{{\"traceEvents\":[{}", unit.repeat(300_000));
        let trace = read_bytes(text.as_bytes()).expect("is a trace");
        assert_eq!(trace.reading.events, events, "{unit}");
        assert!(trace.reading.damaged_events >= 300_000 - 1, "{unit}: {:?}", trace.reading);
        assert_eq!(trace.reading.truncated_at_byte, Some(text.len() as u64));
    }
}

#[test]
fn more_threads_than_any_machine_has_are_all_told_apart() {
    let event = |thread: u32| {
        format!(r#"{{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":{thread},"ts":{},"dur":1}}"#, thread % 1000)
    };
    let text = format!("[{}]", (0..140_000).map(|at| event(at % 70_000)).collect::<Vec<_>>().join(","));
    let trace = read_bytes(text.as_bytes()).expect("is a trace");
    assert_eq!((trace.tracks.len(), trace.reading.damaged_events), (70_000, 0));
    assert!(trace.host.track.chunks(2).all(|pair| pair[0] == pair[1]), "two events each, side by side");
    assert_eq!(trace.track(trace.host.track[2 * 69_999]).thread, Label::Number(69_999));
}

#[test]
fn times_that_no_clock_shows_are_left_out() {
    let event = |start: &str| format!(r#"{{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":{start},"dur":1}}"#);
    let starts = ["-9.2e15", "9.21e15", "1e15", "-1e6", "0"];
    let trace = read_bytes(format!("[{}]", starts.map(event).join(",")).as_bytes()).expect("is a trace");
    assert_eq!(trace.reading.damaged_events, 2);
    assert_eq!(trace.host.start, [-1_000_000_000, 0, 1_000_000_000_000_000_000]);
}

#[test]
fn a_file_that_unpacks_to_hundreds_of_times_its_size_is_asked_about() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("dense.json.gz");
    let event = r#"{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1}"#;
    let text = format!("[{event}{}]", " ".repeat(20 << 20));
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(text.as_bytes()).expect("packs");
    std::fs::write(&path, packed.finish().expect("packs")).expect("can be written");
    let refusal = read(&path).expect_err("is too dense").to_string();
    assert!(refusal.contains("over 200 times") && refusal.contains("--allow-gz-ratio"), "{refusal}");
    let allowed = read_packed(&path, GzipRatio::Any).expect("is a trace");
    assert_eq!((allowed[0].host.len(), allowed[0].reading.bytes), (1, text.len() as u64));
}

#[test]
fn a_long_trace_that_packs_as_traces_do_is_read_without_a_question() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("long.json.gz");
    let count = 240_000u64;
    let event = |at: u64| {
        let noise = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        format!(r#"{{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":{at}.{noise},"dur":0.5}}"#)
    };
    let events: Vec<String> = (0..count).map(event).collect();
    let text = format!("[{}]", events.join(","));
    assert!(text.len() > 16 << 20, "{}", text.len());
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text.as_bytes()).expect("packs");
    std::fs::write(&path, packed.finish().expect("packs")).expect("can be written");
    let trace = read_file(&path).expect("is a trace");
    assert_eq!((trace.host.len() as u64, trace.reading.bytes), (count, text.len() as u64));
}

/// Traces are untrusted: a header may name its own file as the light trace, or one outside its folder.
#[test]
fn a_trace_that_names_itself_or_a_stranger_as_its_light_one_is_read_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let named = |name: &str| {
        format!(
            r#"{{"headroom_recording": {{"light_trace": "{name}"}}, "traceEvents": [
            {{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1,"dur":9}}]}}"#
        )
    };
    let path = folder.path().join("own.json");
    std::fs::write(&path, named("own.json")).expect("is written");
    let trace = read_file(&path).expect("is a trace");
    assert!(trace.light.is_some_and(|light| light.light.is_none()));
    std::fs::create_dir(folder.path().join("within")).expect("is made");
    let path = folder.path().join("within/other.json");
    std::fs::write(&path, named("../own.json")).expect("is written");
    assert!(read_file(&path).expect("is a trace").light.is_none());
}
