//! Made-up peaks of this machine, so that no test waits for a measurement.

use headroom_engine::cpu::isa::Isa;
use headroom_engine::machine::Machine;
use headroom_record::device::{DeviceRecord, PrecisionPeak};

pub fn made_up_peaks() -> DeviceRecord {
    let machine = Machine::detect();
    DeviceRecord {
        schema_version: headroom_record::SCHEMA_VERSION,
        timestamp: "2026-11-15T00:00:00Z".into(),
        kind: "cpu".into(),
        name: machine.cpu_name,
        threads: machine.cores as u64,
        instruction_set: Isa::detect().to_string(),
        memory_total_mb: 1024.0,
        gemm_flops: vec![PrecisionPeak {
            precision: "fp32".into(),
            flops_per_sec: 3e11,
            one_thread_flops_per_sec: None,
        }],
        memory_bandwidth_bytes: 2e10,
        call_seconds: 1e-6,
        replay_seconds: None,
        datasheet: None,
        other_load_percent: None,
        repeat_spread_percent: None,
        provenance: DeviceRecord::provenance(),
    }
}
