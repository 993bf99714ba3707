//! `roofline_data.json`: the device's roofs, the step as one point, and one point per operator.

use crate::provenance::{Origin, Provenance};
use serde::{Deserialize, Serialize};

pub const ROOFLINE_FILE: &str = "roofline_data.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RooflineRecord {
    pub schema_version: u32,
    pub model_name: String,
    pub timestamp: String,
    pub device_info: DeviceInfo,
    pub performance_point: PerformancePoint,
    pub points: Vec<RooflinePoint>,
    pub optimization_targets: Vec<RooflineTarget>,
    pub provenance: Provenance,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    pub name: String,
    /// FLOPs per second.
    pub peak_flops: f64,
    /// Bytes per second.
    pub peak_memory_bandwidth: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerformancePoint {
    pub arithmetic_intensity: f64,
    /// Executed FLOPs per second.
    pub achieved_performance: f64,
    pub mfu_percent: f64,
}

/// One operator at one kind of place in the model, over all layers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RooflinePoint {
    pub name: String,
    pub arithmetic_intensity: f64,
    pub achieved_performance: f64,
    /// Seconds per step.
    pub time: f64,
    pub percent_of_roof: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RooflineTarget {
    pub target: String,
    pub reason: String,
    /// Upper bound on the step's gain if the target ran at its roof; computed, not a promise.
    pub expected_improvement: String,
}

impl RooflineRecord {
    /// Rates are FLOPs counted from the plan over a measured time, so they are computed.
    pub fn provenance(times: Origin, peak: Origin) -> Provenance {
        Provenance::of(&[
            ("device_info", peak),
            ("performance_point", Origin::Computed),
            ("points", Origin::Computed),
            ("points.time", times),
        ])
    }
}
