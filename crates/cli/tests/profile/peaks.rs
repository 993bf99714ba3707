//! Peaks that are saved between runs: the best ever, and never below what a run itself achieves.

use crate::runs::{made_up_peaks, said};
use headroom_record::atomic::write_json;
use headroom_record::device::{DEVICE_FILE, DeviceRecord};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

fn home_with(peaks: &DeviceRecord) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    write_json(&home.path().join(DEVICE_FILE), peaks).unwrap();
    home
}

fn with_home(home: &Path, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headroom"));
    command.env("HEADROOM_HOME", home).current_dir(home).args(arguments.split(' ')).output().unwrap()
}

fn kept(home: &Path) -> DeviceRecord {
    serde_json::from_slice(&fs::read(home.join(DEVICE_FILE)).unwrap()).unwrap()
}

#[test]
fn a_kept_peak_that_a_run_beats_is_measured_again_and_raised() {
    let mut too_low = made_up_peaks();
    too_low.gemm_flops[0].flops_per_sec = 1e6;
    let home = home_with(&too_low);
    let done = with_home(home.path(), "profile --size nano --num-steps 6 --output-dir run");
    assert!(done.status.success(), "{}", said(&done));
    assert!(said(&done).contains("was too low"), "{}", said(&done));
    assert!(kept(home.path()).gemm("fp32").unwrap() > 1e8);
    let flops: serde_json::Value =
        serde_json::from_slice(&fs::read(home.path().join("run/flops_profile.json")).unwrap()).unwrap();
    assert!(flops["efficiency_metrics"]["mfu_percent"].as_f64().unwrap() < 100.0);
}

#[test]
fn a_worse_measurement_replaces_no_better_one() {
    let mut best = made_up_peaks();
    best.gemm_flops[0].flops_per_sec = 1e15;
    let home = home_with(&best);
    let done = with_home(home.path(), "device --json");
    assert!(done.status.success(), "{}", said(&done));
    assert_eq!(kept(home.path()).gemm("fp32"), Some(1e15));
    assert!(said(&done).contains("an earlier measurement was better"), "{}", said(&done));
}

#[test]
fn peaks_measured_on_a_busy_machine_are_not_used_again() {
    let home = home_with(&made_up_peaks().with_other_load(60.0));
    let done = with_home(home.path(), "profile --size nano --num-steps 6 --output-dir run");
    assert!(done.status.success(), "{}", said(&done));
    assert!(said(&done).contains("are saved: measuring them"), "{}", said(&done));
    // The machine may or may not be quiet now; the command and the record must agree.
    let flops: serde_json::Value =
        serde_json::from_slice(&fs::read(home.path().join("run/flops_profile.json")).unwrap()).unwrap();
    let source = flops["efficiency_metrics"]["device_peak_source"].as_str().unwrap().to_string();
    assert_eq!(source.contains("not reliable"), said(&done).contains("so these peaks are too low"), "{source}");
}

#[test]
fn measuring_peaks_does_not_count_as_the_runs_memory() {
    let home = tempfile::tempdir().unwrap();
    let done = with_home(home.path(), "profile --size nano --num-steps 6 --output-dir run");
    assert!(done.status.success(), "{}", said(&done));
    let summary: serde_json::Value =
        serde_json::from_slice(&fs::read(home.path().join("run/performance_summary.json")).unwrap()).unwrap();
    // The copy that measures bandwidth alone takes 512 MiB.
    let process = summary["performance_summary"]["process_peak_memory_mb"].as_f64().unwrap();
    assert!(process < 256.0, "{process} MiB");
}
