//! Stored profiles from when each figure still came from the recording itself: their traces must give the same figures.
//!
//! A folder under `data/runs` holds a trace and the JSON files of one profile (`.gz`). Figures that were wrong then are
//! listed with the reason; everything else must be equal up to rounding.

use flate2::read::GzDecoder;
use headroom_diagnosis::{Options, analyze};
use headroom_record::flops::ModuleFlops;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Keys, by prefix, whose value was wrong then and is right now, with the reason.
const MENDED: &[(&str, &str)] = &[
    ("flops_analysis.by_module", "fused calls are shared out to their modules"),
    ("operator_analysis.bottlenecks.categories", "a bound is of what the missing pass touches"),
    ("operator_analysis.bottlenecks.optimization_targets.optimization", "a pass is named where it touches the place"),
    ("operator_analysis.operator_stats.cuda_memory_usage", "the batch is not made by the operator that reads it first"),
    (
        "operator_analysis.operator_stats.cpu_time",
        "the host's time of a launched operator is its span, not its driver calls alone",
    ),
    ("memory_analysis.schema_version", "version 2 averages live memory over the calls and counts kernel scratch"),
    ("memory_analysis.avg_memory_mb", "follows from version 2"),
    ("memory_analysis.peak_to_average", "follows from version 2"),
    ("memory_analysis.provenance", "follows from version 2"),
];

/// Number of keys compared in each stored run; a run with all passes has no speed-up to offer.
const KEYS: [(&str, usize); 4] =
    [("cpu-nano-v2", 197), ("cpu-tiny-all", 182), ("h200-nano-v1-fp32", 201), ("h200-tiny-all-bf16", 182)];

/// A fused call now names all of its modules; it used to name the last.
const RENAMED: [(&str, &str); 3] =
    [("q_proj+k_proj+v_proj", "v_proj"), ("gate_proj+up_proj", "up_proj"), ("lm_head+loss", "loss")];

/// Keys of sentences that have been reworded. Their figures are compared.
const REWORDED: [&str; 5] = ["workshop_class", "reason", "expected_improvement", "potential_benefit", "optimization"];

fn folders() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/runs");
    let mut folders: Vec<PathBuf> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.retain(|path| path.is_dir());
    folders.sort();
    folders
}

fn file(folder: &Path, start: &str) -> PathBuf {
    let mut found = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    found.find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(start)).unwrap()
}

fn json(path: &Path) -> Value {
    let mut text = String::new();
    let file = File::open(path).unwrap();
    match path.extension().is_some_and(|extension| extension == "gz") {
        true => GzDecoder::new(file).read_to_string(&mut text).unwrap(),
        false => { file }.read_to_string(&mut text).unwrap(),
    };
    serde_json::from_str(&text).unwrap()
}

/// How many figures and texts were compared, by key.
#[derive(Default)]
struct Compared(BTreeMap<String, usize>);

impl Compared {
    fn add(&mut self, key: &str) {
        *self.0.entry(key.into()).or_default() += 1;
    }
}

/// Every number and text of `old` that differs in `new`, as `key: old, new`.
fn differences(key: &str, old: &Value, new: &Value, found: &mut Vec<String>, compared: &mut Compared) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in old.iter().filter(|(name, _)| !matches!(name.as_str(), "provenance" | "timestamp")) {
                let other = new.get(name).unwrap_or(&Value::Null);
                differences(&format!("{key}.{name}"), value, other, found, compared);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (old, new) in old.iter().zip(new) {
                differences(key, old, new, found, compared);
            }
        }
        (Value::Number(old), Value::Number(new)) => {
            compared.add(key);
            let (old, new) = (old.as_f64().unwrap(), new.as_f64().unwrap());
            if (old - new).abs() > 1e-6 * old.abs().max(new.abs()) + 1e-12 {
                found.push(format!("{key}: {old}, {new}"));
            }
        }
        (Value::String(old), Value::String(new))
            if *old == RENAMED.iter().fold(new.clone(), |text, (now, then)| text.replace(now, then)) =>
        {
            compared.add(key)
        }
        (Value::String(old), Value::String(new))
            if REWORDED.iter().any(|reworded| key.ends_with(reworded)) && figures(old) == figures(new) =>
        {
            compared.add(key)
        }
        (old, new) if old == new => compared.add(key),
        (old, new) => found.push(format!("{key}: {}, {}", short(old), short(new))),
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(300).collect()
}

/// The numbers in a sentence.
fn figures(sentence: &str) -> Vec<f64> {
    let pieces = sentence.split(|c: char| !c.is_ascii_digit() && c != '.');
    pieces.filter_map(|piece| piece.trim_end_matches('.').parse().ok()).collect()
}

#[test]
fn a_stored_profile_and_the_analysis_of_its_trace_agree() {
    let folders = folders();
    assert_eq!(folders.len(), 4, "stored runs are missing");
    let mut keys = vec![];
    for folder in folders {
        let trace = headroom_trace::read_file(&file(&folder, "trace_step_")).unwrap();
        let analysis = analyze(&[trace], &Options::default()).unwrap();
        let run = analysis.run.expect("is a run of ours");
        let new = serde_json::to_value(&run).unwrap();
        let timeline = serde_json::to_value(&run.memory_timeline).unwrap();
        let flops = json(&file(&folder, "flops_profile"));
        let mut found = vec![];
        let mut compared = Compared::default();
        let pairs = [
            ("flops_analysis", &flops["flops_analysis"], &new["flops_analysis"]),
            ("efficiency_metrics", &flops["efficiency_metrics"], &new["efficiency_metrics"]),
            (
                "computational_intensity",
                &json(&file(&folder, "computational_intensity")),
                &new["computational_intensity"],
            ),
            ("roofline_data", &json(&file(&folder, "roofline_data")), &new["roofline_data"]),
            ("operator_analysis", &json(&file(&folder, "operator_analysis")), &new["operator_analysis"]),
            ("memory_analysis", &json(&file(&folder, "memory_analysis")), &new["memory_analysis"]),
            ("memory_timeline", &json(&file(&folder, "memory_timeline")), &timeline),
        ];
        for (key, old, new) in pairs {
            differences(key, old, new, &mut found, &mut compared);
        }
        found.retain(|difference| !MENDED.iter().any(|(prefix, _)| difference.starts_with(prefix)));
        let figures: usize = compared.0.values().sum();
        assert!(figures > 2_000, "{}: {figures} figures compared", folder.display());
        keys.push((folder.file_name().unwrap().to_str().unwrap().to_string(), compared.0.len()));
        assert!(found.is_empty(), "{}:\n{}", folder.display(), found.join("\n"));
    }
    assert_eq!(keys, KEYS.map(|(run, count)| (run.to_string(), count)), "keys that files and analysis both hold");
}

#[test]
fn columns_add_up_to_the_whole() {
    for folder in folders() {
        let trace = headroom_trace::read_file(&file(&folder, "trace_step_")).unwrap();
        let analysis = analyze(&[trace], &Options::default()).unwrap();
        let run = analysis.run.expect("is a run of ours");
        let near = |left: f64, right: f64| assert!((left - right).abs() < 1e-6 * right.abs(), "{left}, {right}");
        let rows = &run.operator_analysis.operator_stats;
        near(rows.iter().map(|row| row.cpu_time_percent).sum(), 100.0);
        if rows.iter().any(|row| row.cuda_time_total > 0.0) {
            near(rows.iter().map(|row| row.cuda_time_percent).sum(), 100.0);
        }
        let breakdown = run.operator_analysis.step_breakdown;
        near(breakdown.parts().iter().map(|(_, seconds)| seconds).sum(), breakdown.wall);
        assert!(breakdown.other.abs() < 0.05 * breakdown.wall, "{breakdown:?}");
        // A fused call is divided among its modules, and nothing is lost.
        let (flops, tree) = (&run.flops_analysis, &run.flops_analysis.by_module);
        assert_eq!(tree.flops, flops.executed_flops_per_step);
        assert_eq!(tree.children.iter().map(|child| child.flops).sum::<u64>(), tree.flops);
        assert_eq!(tree.bytes, flops.by_op.iter().map(|row| row.bytes).sum::<u64>());
        near(tree.seconds, breakdown.operators());
    }
}

#[test]
fn every_projection_has_its_own_work_under_every_list_of_passes() {
    let run = |name: &str| {
        let folder = folders().into_iter().find(|folder| folder.ends_with(name)).unwrap();
        let trace = headroom_trace::read_file(&file(&folder, "trace_step_")).unwrap();
        analyze(&[trace], &Options::default()).unwrap().run.unwrap().flops_analysis.by_module
    };
    let (naive, fused) = (run("h200-nano-v1-fp32"), run("cpu-nano-v2"));
    let at = |root: &ModuleFlops, path: &str| {
        path.split('.').fold(root.clone(), |at, name| {
            at.children.iter().find(|child| child.name == name).unwrap_or_else(|| panic!("{path} is missing")).clone()
        })
    };
    for leaf in ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"] {
        let path = format!("layers.1.{leaf}");
        let (naive, fused) = (at(&naive, &path), at(&fused, &path));
        assert_eq!(naive.forward_flops, fused.forward_flops, "{leaf}");
        // The naive graph sums the gradients of a common input with additions, which the fused GEMM does in place.
        let ratio = naive.backward_flops as f64 / fused.backward_flops as f64;
        assert!((1.0..1.01).contains(&ratio), "{leaf}: {ratio}");
        assert!(fused.seconds > 0.0 && fused.bytes > 0, "{leaf}");
    }
}
