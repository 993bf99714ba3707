//! device.json: the measured performance of a machine.

use crate::provenance::{Origin, Provenance};
use serde::{Deserialize, Serialize};

pub const DEVICE_FILE: &str = "device.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceRecord {
    pub schema_version: u32,
    pub timestamp: String,
    /// `cpu` or `cuda`.
    pub kind: String,
    pub name: String,
    /// CPU threads, or the number of multiprocessors of a GPU.
    pub threads: u64,
    /// The widest vector instructions in use, or the architecture of a GPU.
    pub instruction_set: String,
    pub memory_total_mb: f64,
    /// FLOPs per second of large matrix products, by precision; precisions without a kernel are not listed.
    pub gemm_flops: Vec<PrecisionPeak>,
    /// Bytes per second of a copy larger than the caches, counting both reads and writes.
    pub memory_bandwidth_bytes: f64,
    /// Seconds per empty call; on a GPU, from one launched kernel to the next.
    pub call_seconds: f64,
    /// Seconds from one kernel of a replayed graph to the next, on a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_seconds: Option<f64>,
    /// Theoretical peak, if known.
    #[serde(default)]
    pub datasheet: Option<DatasheetPeak>,
    /// Percent of CPU time that other programs took during the measurement.
    #[serde(default)]
    pub other_load_percent: Option<f64>,
    /// How far repeated measurements of products and memory fell short of the best one, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat_spread_percent: Option<f64>,
    pub provenance: Provenance,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DatasheetPeak {
    pub fp32_flops: f64,
    /// Tensor-core peak, if the part has tensor cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tf32_flops: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bf16_flops: Option<f64>,
    /// The document or the calculation that the figures come from.
    pub source: String,
}

impl DatasheetPeak {
    /// Peak of the units that compute at this precision.
    pub fn flops(&self, precision: &str) -> Option<f64> {
        match precision {
            "fp32" => Some(self.fp32_flops),
            "tf32" => self.tf32_flops,
            // Eight-bit units have twice the throughput.
            "fp8" | "fp8-pure" => self.bf16_flops.map(|flops| 2.0 * flops),
            _ => self.bf16_flops,
        }
    }
}

/// Above this, the measured figures are too low to rely on.
pub const HIGH_LOAD_PERCENT: f64 = 10.0;

/// Above this, the best of several measurements was luck.
pub const HIGH_SPREAD_PERCENT: f64 = 10.0;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrecisionPeak {
    pub precision: String,
    pub flops_per_sec: f64,
    /// On a single thread, if several were used.
    pub one_thread_flops_per_sec: Option<f64>,
}

impl DeviceRecord {
    /// Covers the figures that every machine has; the `with_…` methods add the others.
    pub fn provenance() -> Provenance {
        Provenance::of(&[
            ("threads", Origin::Assumed),
            ("memory_total_mb", Origin::Measured),
            ("gemm_flops", Origin::Measured),
            ("memory_bandwidth_bytes", Origin::Measured),
            ("call_seconds", Origin::Measured),
        ])
    }

    pub fn with_datasheet(mut self, peak: DatasheetPeak) -> DeviceRecord {
        self.datasheet = Some(peak);
        // A CPU's peak is computed from its units and clock, a GPU's is quoted.
        let origin = if self.kind == "cpu" { Origin::Computed } else { Origin::Assumed };
        self.provenance.set("datasheet", origin);
        self
    }

    pub fn with_replay(mut self, seconds: f64) -> DeviceRecord {
        self.replay_seconds = Some(seconds);
        self.provenance.set("replay_seconds", Origin::Measured);
        self
    }

    pub fn with_other_load(mut self, percent: f64) -> DeviceRecord {
        self.other_load_percent = Some(percent);
        self.provenance.set("other_load_percent", Origin::Measured);
        self
    }

    pub fn with_repeat_spread(mut self, percent: f64) -> DeviceRecord {
        self.repeat_spread_percent = Some(percent);
        self.provenance.set("repeat_spread_percent", Origin::Measured);
        self
    }

    /// Why the figures cannot be relied on. A record with such a reason is not kept.
    pub fn doubt(&self) -> Option<String> {
        let load = self.other_load_percent.filter(|percent| *percent > HIGH_LOAD_PERCENT);
        let spread = self.repeat_spread_percent.filter(|percent| *percent > HIGH_SPREAD_PERCENT);
        let load = load.map(|percent| format!("other programs used {percent:.0}% of the processors meanwhile"));
        let spread = spread.map(|percent| format!("repeated measurements differ by {percent:.0}%"));
        let reasons: Vec<String> = load.into_iter().chain(spread).collect();
        (!reasons.is_empty()).then(|| reasons.join(" and "))
    }

    /// Combines two measurements of one machine, taking the better of each figure: a peak is what the machine can do
    /// when left alone.
    pub fn best_of(mut self, other: &DeviceRecord) -> DeviceRecord {
        let of = |record: &DeviceRecord| {
            let DeviceRecord { kind, name, threads, instruction_set, .. } = record.clone();
            (kind, name, threads, instruction_set)
        };
        let same = of(&self) == of(other);
        if !same || self.schema_version != other.schema_version {
            return self;
        }
        for theirs in &other.gemm_flops {
            match self.gemm_flops.iter_mut().find(|ours| ours.precision == theirs.precision) {
                Some(ours) => {
                    ours.flops_per_sec = ours.flops_per_sec.max(theirs.flops_per_sec);
                    let best = ours.one_thread_flops_per_sec.into_iter().chain(theirs.one_thread_flops_per_sec);
                    ours.one_thread_flops_per_sec = best.reduce(f64::max);
                }
                None => self.gemm_flops.push(theirs.clone()),
            }
        }
        self.memory_bandwidth_bytes = self.memory_bandwidth_bytes.max(other.memory_bandwidth_bytes);
        self.call_seconds = self.call_seconds.min(other.call_seconds);
        if let Some(theirs) = other.replay_seconds {
            let least = self.replay_seconds.map_or(theirs, |ours| ours.min(theirs));
            self = self.with_replay(least);
        }
        if let Some(theirs) = &other.datasheet {
            let higher = self.datasheet.as_ref().is_none_or(|ours| ours.fp32_flops < theirs.fp32_flops);
            self = if higher { self.with_datasheet(theirs.clone()) } else { self };
        }
        // The load of the quieter measurement stands for both.
        self = match (self.other_load_percent, other.other_load_percent) {
            (Some(ours), Some(theirs)) if theirs < ours => self.with_other_load(theirs),
            _ => self,
        };
        match (self.repeat_spread_percent, other.repeat_spread_percent) {
            (Some(ours), Some(theirs)) if theirs < ours => self.with_repeat_spread(theirs),
            _ => self,
        }
    }

    /// FLOPs per second at a precision; `bf16-pure` uses the figure of bf16, and likewise for fp8.
    pub fn gemm(&self, precision: &str) -> Option<f64> {
        let precision = precision.strip_suffix("-pure").unwrap_or(precision);
        self.gemm_flops.iter().find(|peak| peak.precision == precision).map(|peak| peak.flops_per_sec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SCHEMA_VERSION;
    use crate::provenance::check_provenance;

    fn record(fp32: f64, bandwidth: f64, call_seconds: f64) -> DeviceRecord {
        DeviceRecord {
            schema_version: SCHEMA_VERSION,
            timestamp: "2026-11-15T02:10:00Z".into(),
            kind: "cpu".into(),
            name: "a CPU".into(),
            threads: 2,
            instruction_set: "avx512".into(),
            memory_total_mb: 16384.0,
            gemm_flops: vec![PrecisionPeak {
                precision: "fp32".into(),
                flops_per_sec: fp32,
                one_thread_flops_per_sec: None,
            }],
            memory_bandwidth_bytes: bandwidth,
            call_seconds,
            replay_seconds: None,
            datasheet: None,
            other_load_percent: None,
            repeat_spread_percent: None,
            provenance: DeviceRecord::provenance(),
        }
    }

    #[test]
    fn of_two_measurements_each_figure_is_the_better_one() {
        let (busy, quiet) = (record(2e11, 3e10, 2e-6).with_other_load(60.0), record(3e11, 2e10, 1e-6));
        let best = busy.clone().best_of(&quiet.clone().with_other_load(1.0));
        assert_eq!((best.gemm("fp32"), best.memory_bandwidth_bytes, best.call_seconds), (Some(3e11), 3e10, 1e-6));
        assert!(busy.doubt().is_some() && best.doubt().is_none());
        let elsewhere = DeviceRecord { name: "another CPU".into(), ..quiet };
        assert_eq!(busy.clone().best_of(&elsewhere), busy);
    }

    #[test]
    fn load_and_disagreeing_repeats_are_each_a_reason_for_doubt() {
        let quiet = record(3e11, 2e10, 1e-6);
        assert_eq!(quiet.doubt(), None);
        assert_eq!(quiet.clone().with_other_load(9.0).with_repeat_spread(9.0).doubt(), None);
        let doubt = quiet.with_other_load(60.0).with_repeat_spread(42.0).doubt().unwrap();
        assert!(doubt.contains("60%") && doubt.contains("differ by 42%"), "{doubt}");
    }

    #[test]
    fn every_figure_says_where_it_comes_from() {
        let record = record(3e11, 2e10, 1e-6);
        let peak =
            DatasheetPeak { fp32_flops: 4e11, tf32_flops: None, bf16_flops: Some(9e11), source: "its units".into() };
        let record = record.with_datasheet(peak).with_other_load(3.0).with_repeat_spread(2.0).with_replay(1e-6);
        check_provenance(&serde_json::to_value(&record).unwrap()).unwrap();
        assert_eq!(record.gemm("fp32"), Some(3e11));
        assert_eq!(record.gemm("bf16"), None);
        let peak = record.datasheet.unwrap();
        assert_eq!((peak.flops("fp32"), peak.flops("tf32"), peak.flops("bf16-pure")), (Some(4e11), None, Some(9e11)));
    }
}
