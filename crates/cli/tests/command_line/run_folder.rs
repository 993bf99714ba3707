//! Files that a run writes to its folder.

use crate::place::{Place, SMALL};
use headroom_record::provenance::check_provenance;
use serde_json::Value;

fn has_keys(section: &Value, keys: &str) {
    for key in keys.split_whitespace() {
        assert!(section.get(key).is_some(), "{key} is missing in {section}");
    }
}

#[test]
fn config_json_has_every_documented_key_with_its_provenance() {
    let place = Place::new();
    place.succeeds(&format!("train {SMALL} --passes none --num-steps 4 --output-dir o"));
    let config = place.json("o/config.json");
    has_keys(&config, "schema_version version size timestamp configuration profilers_enabled command_line provenance");
    has_keys(
        &config["configuration"],
        "hidden_dim num_layers num_heads num_kv_heads intermediate_dim vocab_size seq_len batch_size num_steps parameters",
    );
    check_provenance(&config).unwrap();
    assert_eq!((&config["version"], &config["size"]), (&"v1_baseline".into(), &"nano".into()));
    assert_eq!(config["configuration"]["parameters"], 202_048);
    assert_eq!(config["configuration"]["num_steps"], 4);
}

#[test]
fn performance_summary_json_has_every_documented_key_with_its_provenance() {
    let place = Place::new();
    let done = place.succeeds(&format!("train {SMALL} --num-steps 12 --output-dir o --json"));
    let record = place.json("o/performance_summary.json");
    has_keys(
        &record,
        "schema_version version timestamp config profiler_config performance_summary statistics training_params \
         system_info provenance",
    );
    has_keys(
        &record["config"],
        "vocab_size hidden_dim n_layers n_heads n_kv_heads intermediate_dim max_seq_len rope_theta norm_eps dropout",
    );
    has_keys(&record["profiler_config"], "profile_dir warmup_steps profile_steps");
    has_keys(
        &record["performance_summary"],
        "total_samples avg_training_speed tokens_per_sec steps_per_sec final_loss avg_loss avg_batch_time \
         avg_forward_time avg_backward_time avg_optimizer_time avg_data_time peak_memory_mb avg_memory_mb \
         device_utilization_percent profiling_overhead_percent",
    );
    has_keys(&record["statistics"], "median p10 p90 ci95_low ci95_high");
    has_keys(&record["training_params"], "num_steps batch_size learning_rate use_amp gradient_accumulation_steps clip");
    has_keys(
        &record["system_info"],
        "device gpu_name cpu_name threads memory_total_mb driver_version headroom_version timestamp_iso",
    );
    check_provenance(&record).unwrap();
    assert_eq!(done.summary(), record, "what --json prints is the file's content");
}

#[test]
fn figures_of_the_summary_agree_with_each_other() {
    let place = Place::new();
    let done = place.succeeds(&format!("train {SMALL} --num-steps 12 --gradient-accumulation-steps 2 --json"));
    let summary = &done.summary()["performance_summary"];
    let figure = |key: &str| summary[key].as_f64().unwrap_or_else(|| panic!("{key}: {summary}"));
    assert_eq!(figure("total_samples"), 12.0 * 4.0);
    let near = |have: f64, want: f64| assert!((have / want - 1.0).abs() < 1e-9, "{have} against {want}");
    near(figure("avg_training_speed"), 4.0 / figure("avg_batch_time"));
    near(figure("tokens_per_sec"), 16.0 * figure("avg_training_speed"));
    near(figure("steps_per_sec"), 1.0 / figure("avg_batch_time"));
    let parts = ["forward", "backward", "optimizer", "data"].map(|part| figure(&format!("avg_{part}_time")));
    assert!(parts.iter().sum::<f64>() <= figure("avg_batch_time"));
    assert!(parts.iter().all(|part| *part > 0.0), "{parts:?}");
    let losses = done.losses();
    near(figure("avg_loss"), losses.iter().sum::<f64>() / 12.0);
    assert!((0.0..=100.0).contains(&figure("device_utilization_percent")));
}

#[test]
fn the_log_repeats_the_progress_and_ends_with_the_summary() {
    let place = Place::new();
    let done = place.succeeds(&format!("train {SMALL} --num-steps 20 --output-dir o"));
    let log = String::from_utf8(place.read("o/training_output.log")).unwrap();
    let at = done.stdout.find("====").unwrap();
    let (opening, summary) = done.stdout.split_at(at);
    assert!(log.starts_with(opening) && log.ends_with(summary), "{log}");
    let steps: Vec<&str> = done.stderr.lines().filter(|line| line.starts_with("Step ")).collect();
    assert_eq!(steps.len(), 2, "a plain line each log interval where no terminal is");
    assert!(steps.iter().all(|line| log.contains(line)));
    for word in ["Throughput:", "Peak memory usage:", "Average time per step:", "Training speed:", "Final loss:"] {
        assert_eq!(summary.matches(word).count(), 1, "{word}");
    }
}

#[test]
fn a_folder_is_named_by_time_and_size_where_none_is_asked_for() {
    let place = Place::new();
    place.succeeds(&format!("train {SMALL} --num-steps 1"));
    place.succeeds(&format!("train {SMALL} --num-steps 1"));
    let runs: Vec<_> = std::fs::read_dir(place.path("runs")).unwrap().collect();
    assert_eq!(runs.len(), 2);
    assert!(runs.iter().all(|run| run.as_ref().unwrap().file_name().to_str().unwrap().contains("-nano")));
}

#[test]
fn a_folder_with_another_run_is_refused_and_overwritten_when_asked() {
    let place = Place::new();
    place.succeeds(&format!("train {SMALL} --num-steps 1 --output-dir deep/er/o"));
    let before = place.read("deep/er/o/performance_summary.json");
    let line = format!("train {SMALL} --num-steps 2 --output-dir deep/er/o");
    place.refuses(&line, &["deep/er/o holds another run", "--overwrite"]);
    assert_eq!(place.read("deep/er/o/performance_summary.json"), before);
    place.succeeds(&format!("{line} --overwrite"));
    assert_eq!(place.json("deep/er/o/performance_summary.json")["training_params"]["num_steps"], 2);
}

#[test]
fn of_two_runs_into_one_folder_the_second_is_refused() {
    let place = Place::new();
    let first = place.start(&format!("train {SMALL} --num-steps 1000000 --output-dir o --save ck --save-every 5"));
    first.has_written(&place.path("ck/model.safetensors"));
    let line = format!("train {SMALL} --num-steps 1");
    for overwrite in ["", "--overwrite"] {
        place.refuses(&format!("{line} --output-dir o {overwrite}"), &["another run is writing to o"]);
    }
    place.refuses(&format!("{line} --output-dir p --save ck"), &["another process is writing checkpoints to ck"]);
    assert_eq!(first.interrupt().code, Some(130));
    place.succeeds(&format!("{line} --output-dir o --overwrite"));
}

#[test]
fn redaction_leaves_paths_out_of_the_files() {
    let place = Place::new();
    let folder = place.path("secret");
    place.succeeds(&format!("train {SMALL} --num-steps 1 --redact --output-dir {}", folder.display()));
    for file in ["config.json", "performance_summary.json"] {
        let text = String::from_utf8(place.read(&format!("secret/{file}"))).unwrap();
        assert!(!text.contains("secret") && !text.contains("target/"), "{text}");
    }
}

#[test]
fn a_trial_of_the_machine_says_it_is_ready_and_keeps_nothing() {
    let place = Place::new();
    let done = place.succeeds(&format!("train {SMALL} --validate-setup"));
    assert!(done.stdout.contains("The machine is ready"), "{}", done.stdout);
    assert!(done.stderr.contains("Step 3/3"), "{}", done.stderr);
    assert_eq!(place.names(), [""; 0]);
}
