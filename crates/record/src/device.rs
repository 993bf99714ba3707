//! device.json: what a machine was measured to do.

use crate::SCHEMA_VERSION;
use crate::provenance::{Origin, Provenance};
use serde::{Deserialize, Serialize};

pub const DEVICE_FILE: &str = "device.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceRecord {
    pub schema_version: u32,
    pub timestamp: String,
    /// `cpu`.
    pub kind: String,
    pub name: String,
    pub threads: u64,
    /// The widest vector instructions in use.
    pub instruction_set: String,
    pub memory_total_mb: f64,
    /// FLOPs a second of large products, by precision; a precision without a kernel is not listed.
    pub gemm_flops: Vec<PrecisionPeak>,
    /// Bytes a second of a copy larger than the caches, reads and writes both counted.
    pub memory_bandwidth_bytes: f64,
    /// Seconds for a call that does nothing.
    pub call_seconds: f64,
    pub provenance: Provenance,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrecisionPeak {
    pub precision: String,
    pub flops_per_sec: f64,
    /// On one thread, where several were used.
    pub one_thread_flops_per_sec: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DeviceFacts {
    pub timestamp: String,
    pub kind: String,
    pub name: String,
    pub threads: u64,
    pub instruction_set: String,
    pub memory_total_mb: f64,
    pub gemm_flops: Vec<PrecisionPeak>,
    pub memory_bandwidth_bytes: f64,
    pub call_seconds: f64,
}

impl DeviceRecord {
    pub fn new(facts: DeviceFacts) -> DeviceRecord {
        DeviceRecord {
            schema_version: SCHEMA_VERSION,
            timestamp: facts.timestamp,
            kind: facts.kind,
            name: facts.name,
            threads: facts.threads,
            instruction_set: facts.instruction_set,
            memory_total_mb: facts.memory_total_mb,
            gemm_flops: facts.gemm_flops,
            memory_bandwidth_bytes: facts.memory_bandwidth_bytes,
            call_seconds: facts.call_seconds,
            provenance: Provenance::of(&[
                ("threads", Origin::Assumed),
                ("memory_total_mb", Origin::Measured),
                ("gemm_flops", Origin::Measured),
                ("memory_bandwidth_bytes", Origin::Measured),
                ("call_seconds", Origin::Measured),
            ]),
        }
    }

    /// FLOPs a second at a precision.
    pub fn gemm(&self, precision: &str) -> Option<f64> {
        self.gemm_flops.iter().find(|peak| peak.precision == precision).map(|peak| peak.flops_per_sec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provenance::check_provenance;

    #[test]
    fn every_figure_says_where_it_comes_from() {
        let record = DeviceRecord::new(DeviceFacts {
            timestamp: "2026-11-15T02:10:00Z".into(),
            kind: "cpu".into(),
            name: "a CPU".into(),
            threads: 2,
            instruction_set: "avx512".into(),
            memory_total_mb: 16384.0,
            gemm_flops: vec![PrecisionPeak {
                precision: "fp32".into(),
                flops_per_sec: 3e11,
                one_thread_flops_per_sec: Some(1.6e11),
            }],
            memory_bandwidth_bytes: 2e10,
            call_seconds: 1e-6,
        });
        check_provenance(&serde_json::to_value(&record).unwrap()).unwrap();
        assert_eq!(record.gemm("fp32"), Some(3e11));
        assert_eq!(record.gemm("bf16"), None);
    }
}
