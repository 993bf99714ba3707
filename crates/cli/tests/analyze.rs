//! Tests `headroom analyze` and `compare` as programs use them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data").join(format!("{name}.pt.trace.json.gz"))
}

fn headroom(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headroom")).args(arguments).output().expect("headroom starts")
}

fn path_of(name: &str) -> String {
    data(name).to_string_lossy().into_owned()
}

#[test]
fn json_has_the_keys_that_programs_rely_on() {
    let output = headroom(&["analyze", &path_of("slow"), "--format", "json"]);
    assert!(output.status.success());
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    for key in ["trust", "steps", "measures", "findings", "roadmap"] {
        assert!(!value[key].is_null(), "{key}");
    }
    let finding = &value["findings"][0];
    let keys =
        ["code", "name", "severity", "share_of_step", "place", "sources", "evidence", "advice", "effort", "confidence"];
    for key in keys {
        assert!(finding.get(key).is_some(), "{key}");
    }
    let shares: Vec<f64> =
        value["findings"].as_array().expect("a list").iter().filter_map(|one| one["share_of_step"].as_f64()).collect();
    assert!(shares.is_sorted_by(|left, right| left >= right), "{shares:?}");
}

#[test]
fn with_the_source_findings_carry_their_lines() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/slow_train");
    let output = headroom(&["analyze", &path_of("slow"), "--source", &source.to_string_lossy(), "--format", "json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    let lines = |code: &str| -> Vec<u64> {
        let findings = value["findings"].as_array().expect("a list").iter();
        findings.filter(|one| one["code"] == code).filter_map(|one| one["place"]["line"].as_u64()).collect()
    };
    assert_eq!(lines("TR101"), [43, 46, 22]);
    assert_eq!(lines("TR114"), [21]);
}

#[test]
fn figures_that_a_broken_trace_spoils_are_withheld() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("graphs.json");
    let events = r#"{"traceEvents": [
        {"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":0,"dur":100},
        {"ph":"X","cat":"cpu_op","name":"aten::copy_","pid":1,"tid":1,"ts":1,"dur":2},
        {"ph":"X","cat":"cuda_runtime","name":"cudaGraphLaunch","pid":1,"tid":1,"ts":5,"dur":9,"args":{"correlation":1}},
        {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":3,"dur":1,"args":{"correlation":7}}]}"#;
    std::fs::write(&path, events).expect("can be written");
    let output = headroom(&["analyze", &path.to_string_lossy(), "--format", "json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    assert_eq!(value["trust"]["verdict"], "broken");
    assert!(value["measures"]["breakdown"].is_null());
    let shown = headroom(&["analyze", &path.to_string_lossy()]).stdout;
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("cannot be trusted") && shown.contains("Withheld: "), "{shown}");
    assert!(shown.contains("does not show what sets the pace"), "{shown}");
}

#[test]
fn a_gate_on_severity_and_one_on_change_exit_with_1() {
    let code = |arguments: &[&str]| headroom(arguments).status.code();
    assert_eq!(code(&["analyze", &path_of("slow"), "--fail-on", "critical"]), Some(1));
    assert_eq!(code(&["analyze", &path_of("slow")]), Some(0));
    let (slow, fixed) = (path_of("slow"), path_of("fixed"));
    assert_eq!(code(&["compare", &fixed, &slow, "--fail-if", "kernels>5%"]), Some(1));
    assert_eq!(code(&["compare", &fixed, &slow, "--fail-if", "step>5%"]), Some(0));
    assert_eq!(code(&["compare", &fixed, &slow, "--fail-if", "speed>5%"]), Some(2));
}

#[test]
fn the_text_ends_with_commands_that_can_be_typed() {
    let output = headroom(&["analyze", &path_of("slow")]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let next: Vec<&str> = shown.lines().filter_map(|line| line.strip_prefix("  headroom ")).collect();
    assert!(next.iter().any(|command| command.starts_with("explain TR103")), "{shown}");
    let verbose = next.iter().find(|command| command.contains("--verbose")).expect("is offered");
    let words: Vec<&str> = verbose.split(' ').collect();
    let all = String::from_utf8_lossy(&headroom(&words).stdout).into_owned();
    for part in ["More notes on the trace:", "Roadmap", "host/step", "launched by", "critical path"] {
        assert!(all.contains(part) && !shown.contains(part), "{part}\n{all}");
    }
    assert!(!all.contains("--verbose "), "is not offered again\n{all}");
}

#[test]
fn what_is_no_trace_gets_one_error_and_exit_code_2() {
    let output = headroom(&["analyze", &Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml").to_string_lossy()]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.matches("error:").count()), (Some(2), 1), "{said}");
    assert!(said.contains("is not a profiler trace"));
    assert!(output.stdout.is_empty());
}

#[test]
fn a_command_that_takes_no_step_is_said_so_plainly() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().to_string_lossy().into_owned();
    let output = headroom(&["record", "--output-dir", &folder, "--", "true"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("never loaded torch.optim"), "{said}");
}

#[test]
fn a_script_that_fails_is_told_from_one_that_takes_no_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().to_string_lossy().into_owned();
    let output = headroom(&["record", "--output-dir", &folder, "--", "sh", "-c", "exit 7"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("the script failed") && said.contains("exit status: 7"), "{said}");
    let output = headroom(&["record", "--output-dir", &folder, "--", "no-such-program"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(headroom(&["record", "--steps", "0", "--", "true"]).status.code(), Some(2));
}

#[test]
fn the_page_needs_nothing_else_and_says_what_the_text_says() {
    let output = headroom(&["analyze", &path_of("slow"), "--format", "html"]);
    let page = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    for part in
        ["Where a step goes", "Roadmap", "TR103 launch-bound", "TR101 host-sync", "aten::item", "optimizer state"]
    {
        assert!(page.contains(part), "{part}");
    }
    for fetched in ["src=", "href=", "@import", "url("] {
        assert!(!page.contains(fetched), "{fetched}");
    }
    for (open, close) in [("<section", "</section>"), ("<table", "</table>"), ("<svg", "</svg>"), ("<h3", "</h3>")] {
        assert_eq!(page.matches(open).count(), page.matches(close).count(), "{open}");
    }
}

#[test]
fn thresholds_come_from_the_command_line_over_the_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let has_launch_bound = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_headroom"))
            .args(["analyze", &path_of("slow"), "--format", "json"])
            .args(arguments)
            .current_dir(folder.path())
            .output()
            .expect("headroom starts");
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("is JSON");
        value["findings"].as_array().expect("a list").iter().any(|finding| finding["code"] == "TR103")
    };
    assert!(has_launch_bound(&[]));
    assert!(!has_launch_bound(&["--threshold", "TR103=99%"]));
    std::fs::write(folder.path().join("headroom.toml"), "[thresholds]\nTR103 = \"99%\"\n").expect("written");
    assert!(!has_launch_bound(&[]));
    assert!(has_launch_bound(&["--threshold", "TR103=10%"]));
    let output = headroom(&["analyze", &path_of("slow"), "--threshold", "TR103=much"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("TR103") && said.contains("help:"), "{said}");
}

#[test]
fn a_comparison_is_in_units_people_read_and_cuts_no_name() {
    let output = headroom(&["compare", &path_of("slow"), &path_of("fixed")]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains(" ms →") && shown.contains("MiB →"), "{shown}");
    assert!(shown.lines().any(|line| line.starts_with("kernels per step") && line.contains(" to ")), "{shown}");
    assert!(shown.lines().any(|line| line.len() > 140 && line.contains("kernel")), "a kernel's whole name\n{shown}");
    let json = headroom(&["compare", &path_of("slow"), &path_of("fixed"), "--json"]).stdout;
    let value: serde_json::Value = serde_json::from_slice(&json).expect("is JSON");
    assert_eq!(value["figures"][0]["unit"], "share");
}

#[test]
fn the_roadmap_never_claims_more_beyond_the_others_than_alone() {
    for name in ["slow", "fixed", "tiny_llama_v1"] {
        let output = headroom(&["analyze", &path_of(name), "--format", "json"]);
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("is JSON");
        for item in value["roadmap"]["items"].as_array().expect("a list") {
            let share = |key: &str| item[key].as_f64().unwrap_or(1.0);
            assert!(share("additional_share") <= share("alone_share") + 1e-12, "{name}: {item}");
        }
        let shown = headroom(&["analyze", &path_of(name), "--verbose"]).stdout;
        assert!(!String::from_utf8_lossy(&shown).contains("Medium"));
    }
}

#[test]
fn a_trace_of_the_host_has_no_column_for_a_device() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("host.json");
    let events: Vec<String> = (0..3)
        .map(|step| {
            let start = 1000 * step;
            format!(
                r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{step}","pid":1,"tid":1,"ts":{start},"dur":1000}},
                   {{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":{},"dur":900}}"#,
                start + 10
            )
        })
        .collect();
    std::fs::write(&path, format!(r#"{{"traceEvents": [{}]}}"#, events.join(","))).expect("written");
    for format in ["text", "markdown", "html"] {
        let shown = headroom(&["analyze", &path.to_string_lossy(), "--verbose", "--format", format]).stdout;
        let shown = String::from_utf8_lossy(&shown).into_owned();
        assert!(shown.contains("aten::mm"), "{shown}");
        assert!(!shown.contains("device/step") && !shown.contains("device a step"), "{shown}");
        assert!(!shown.contains("critical path"), "{shown}");
    }
}

#[test]
fn a_trace_that_was_made_to_hang_is_analyzed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("wait.json");
    let events = r#"[{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":9},
        {"ph":"X","cat":"cuda_runtime","name":"cudaDeviceSynchronize","pid":1,"tid":1,"ts":5,"dur":0}]"#;
    std::fs::write(&path, events).expect("can be written");
    for format in ["text", "json", "markdown", "html"] {
        assert!(headroom(&["analyze", &path.to_string_lossy(), "--format", format]).status.success(), "{format}");
    }
    // Staircase spans, deeply nested waits, and a separate thread and name for every event.
    let event = |category: &str, name: &str, thread: usize, start: usize, duration: usize| {
        format!(
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":{thread},"ts":{start},"dur":{duration}}}"#
        )
    };
    let shapes: [(&str, Box<dyn Fn(usize) -> String>); 4] = [
        ("stairs", Box::new(|at| event("cpu_op", "a", 1, at, 20_000))),
        (
            "deep",
            Box::new(|at| match at % 2 {
                0 => event("cpu_op", "aten::item", 1, at, 40_000 - 2 * at),
                _ => event("cuda_runtime", "cudaStreamSynchronize", 1, 20_000 + at % 7, 1),
            }),
        ),
        ("threads", Box::new(|at| event("cpu_op", "a", at, at, 5))),
        ("optimizers", Box::new(|at| event("user_annotation", &format!("Optimizer.step#{at}"), 1, 3 * at, 2))),
    ];
    for (name, shape) in shapes {
        let path = folder.path().join(format!("{name}.json"));
        let events: Vec<String> = (0..20_000).map(shape).collect();
        std::fs::write(&path, format!("[{}]", events.join(","))).expect("can be written");
        assert!(headroom(&["analyze", &path.to_string_lossy(), "--format", "html"]).status.success(), "{name}");
    }
}

#[test]
fn a_packed_trace_beyond_the_usual_ratio_wants_a_flag() {
    use std::io::Write;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("dense.json.gz");
    let event = r#"{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1}"#;
    let mut packed =
        flate2::write::GzEncoder::new(std::fs::File::create(&path).expect("a file"), flate2::Compression::default());
    write!(packed, "[{event}{}]", " ".repeat(20 << 20)).expect("packs");
    packed.finish().expect("packs");
    let path = path.to_string_lossy();
    let refused = headroom(&["analyze", &path]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("--allow-gz-ratio") && said.contains("over 200 times"), "{said}");
    assert!(headroom(&["analyze", &path, "--allow-gz-ratio"]).status.success());
    assert!(headroom(&["compare", &path, &path, "--allow-gz-ratio"]).status.success());
}

#[test]
fn traces_of_jax_are_analyzed_as_others_are() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data");
    let text = |name: &str| {
        let output = headroom(&["analyze", &folder.join(name).to_string_lossy(), "--verbose"]);
        assert!(output.status.success(), "{name}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let gpu = text("jax_gpu.trace.json.gz");
    assert!(gpu.contains("a device without a name") && gpu.contains("49 kernels per step"), "{gpu}");
    assert!(gpu.contains("by the profiler's marks"), "{gpu}");
    let cpu = text("jax_cpu.trace.json.gz");
    assert!(cpu.contains("no device") && cpu.contains("ynn_fusion.3"), "{cpu}");
}
