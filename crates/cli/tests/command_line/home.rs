//! A home with peaks of this machine kept in it: made up, so that no test waits for a measurement.

use crate::place::Place;
use headroom_engine::machine::Machine;
use headroom_record::atomic::write_json;
use headroom_record::device::{DEVICE_FILE, DeviceFacts, DeviceRecord, PrecisionPeak};
use std::fs;

pub fn place_with_peaks() -> Place {
    let place = Place::new();
    let machine = Machine::detect();
    let record = DeviceRecord::new(DeviceFacts {
        timestamp: "2026-11-15T00:00:00Z".into(),
        kind: "cpu".into(),
        name: machine.cpu_name,
        threads: machine.cores as u64,
        instruction_set: "made up".into(),
        memory_total_mb: 1024.0,
        gemm_flops: vec![PrecisionPeak {
            precision: "fp32".into(),
            flops_per_sec: 3e11,
            one_thread_flops_per_sec: None,
        }],
        memory_bandwidth_bytes: 2e10,
        call_seconds: 1e-6,
    });
    fs::create_dir_all(place.path("home")).unwrap();
    write_json(&place.path("home").join(DEVICE_FILE), &record).unwrap();
    place
}
