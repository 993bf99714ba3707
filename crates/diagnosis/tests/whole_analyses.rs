//! Snapshots of every figure and text in the analysis of stored traces, so that each change is reviewed before it is
//! accepted.
//!
//! Other tests show that the figures are right (`real_traces.rs`, `golden_runs.rs`, the faulty traces, the unit tests).

use std::fmt::Write;
use std::path::Path;

use headroom_diagnosis::{Options, analyze};
use headroom_trace::read_file;
use insta::assert_snapshot;
use serde_json::Value;

/// List entries shown; the length always is.
const SHOWN: usize = 4;

fn check(name: &str, path: &str) {
    let trace = read_file(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).expect("is a trace");
    let analysis = analyze(&[trace], &Options::default()).expect("there is a trace");
    let mut text = String::new();
    write_leaves(&mut text, "", &serde_json::to_value(&analysis).expect("is JSON"));
    assert_snapshot!(name, text);
}

/// One line for each figure and text, under its key.
fn write_leaves(text: &mut String, key: &str, value: &Value) {
    match value {
        Value::Object(entries) => {
            for (name, value) in entries {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                write_leaves(text, &key, value);
            }
        }
        Value::Array(entries) => {
            if entries.len() > SHOWN {
                writeln!(text, "{key}: {} entries", entries.len()).unwrap();
            }
            for (at, value) in entries.iter().enumerate().take(SHOWN) {
                write_leaves(text, &format!("{key}[{at}]"), value);
            }
        }
        Value::Number(number) => writeln!(text, "{key}: {}", rounded(number.as_f64().unwrap())).unwrap(),
        Value::Null => {}
        other => writeln!(text, "{key}: {other}").unwrap(),
    }
}

/// Rounds to six digits.
fn rounded(number: f64) -> f64 {
    format!("{number:.5e}").parse().unwrap()
}

#[test]
fn slow() {
    check("slow", "trace/tests/data/slow.pt.trace.json.gz");
}

#[test]
fn graphed_copies() {
    check("graphed_copies", "trace/tests/data/graphed_copies.pt.trace.json.gz");
}

#[test]
fn tiny_llama_v1() {
    check("tiny_llama_v1", "trace/tests/data/tiny_llama_v1.pt.trace.json.gz");
}

#[test]
fn jax_gpu() {
    check("jax_gpu", "trace/tests/data/jax_gpu.trace.json.gz");
}

#[test]
fn a_run_on_the_cpu() {
    check("cpu_nano_v2", "diagnosis/tests/data/runs/cpu-nano-v2/trace_step_4_6.json.gz");
}

#[test]
fn a_run_on_a_gpu() {
    check("h200_nano_v1", "diagnosis/tests/data/runs/h200-nano-v1-fp32/trace_step_17_18.json.gz");
}
