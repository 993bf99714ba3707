//! `computational_intensity.json`: FLOPs per byte, the memory bandwidth used, and which roof bounds the step.

use crate::SCHEMA_VERSION;
use crate::provenance::{Origin, Provenance};
use serde::{Deserialize, Serialize};

pub const INTENSITY_FILE: &str = "computational_intensity.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IntensityRecord {
    pub schema_version: u32,
    pub arithmetic_intensity_flops_per_byte: f64,
    pub memory_bandwidth_used_gb_per_sec: f64,
    pub memory_bandwidth_utilization_percent: f64,
    pub device_memory_bandwidth_gb_per_sec: f64,
    pub ridge_point_flops_per_byte: f64,
    pub memory_bound_vs_compute_bound: Bound,
    /// Share of the step during which no operator ran.
    pub idle_percent: f64,
    /// Share of the step in operators limited by each roof.
    pub time_by_bound: TimeByBound,
    pub roofline_metrics: RooflineMetrics,
    pub roofline_position: String,
    pub bandwidth_class: String,
    /// The workshop's class for this intensity: shown for reference, no conclusion is drawn from it.
    pub workshop_class: String,
    pub by_op: Vec<OperatorIntensity>,
    pub provenance: Provenance,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    MemoryBound,
    ComputeBound,
    OverheadBound,
}

impl Bound {
    pub fn name(self) -> &'static str {
        match self {
            Bound::MemoryBound => "memory_bound",
            Bound::ComputeBound => "compute_bound",
            Bound::OverheadBound => "overhead_bound",
        }
    }

    /// For tables: `memory`, `compute` or `overhead`.
    pub fn word(self) -> &'static str {
        self.name().trim_end_matches("_bound")
    }

    /// Bound of a step: overhead if nothing ran for more than half of it, otherwise by the side of the ridge on which
    /// it lies.
    pub fn of_step(intensity: f64, ridge: f64, idle_share: f64) -> Bound {
        match () {
            () if idle_share > 0.5 => Bound::OverheadBound,
            () if intensity < ridge => Bound::MemoryBound,
            () => Bound::ComputeBound,
        }
    }
}

/// Percent of the step's wall time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeByBound {
    pub compute_percent: f64,
    pub memory_percent: f64,
    /// Operators whose floor is below the cost of a call.
    pub overhead_percent: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RooflineMetrics {
    pub peak_flops: f64,
    pub peak_memory_bandwidth: f64,
    pub achieved_flops: f64,
    pub achieved_bandwidth: f64,
}

/// One kind of operator, summed over a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorIntensity {
    pub name: String,
    pub flops: u64,
    pub bytes: u64,
    pub intensity: f64,
    pub time: f64,
    pub bound: Bound,
    /// Time at the limiting roof over the time taken, in percent; above 100 if data came from a cache.
    pub percent_of_roof: f64,
}

const GIGA: f64 = 1e9;

impl IntensityRecord {
    /// The step as a whole; per-operator rows and shares by bound are left empty.
    pub fn new(
        intensity: f64,
        idle_percent: f64,
        rates: RooflineMetrics,
        times: Origin,
        peak: Origin,
    ) -> IntensityRecord {
        let ridge = rates.peak_flops / rates.peak_memory_bandwidth;
        let used_percent = 100.0 * rates.achieved_bandwidth / rates.peak_memory_bandwidth;
        IntensityRecord {
            schema_version: SCHEMA_VERSION,
            arithmetic_intensity_flops_per_byte: intensity,
            memory_bandwidth_used_gb_per_sec: rates.achieved_bandwidth / GIGA,
            memory_bandwidth_utilization_percent: used_percent,
            device_memory_bandwidth_gb_per_sec: rates.peak_memory_bandwidth / GIGA,
            ridge_point_flops_per_byte: ridge,
            memory_bound_vs_compute_bound: Bound::of_step(intensity, ridge, idle_percent / 100.0),
            idle_percent,
            time_by_bound: TimeByBound::default(),
            roofline_metrics: rates,
            roofline_position: roofline_position(intensity, ridge).into(),
            bandwidth_class: bandwidth_class(used_percent).into(),
            workshop_class: workshop_intensity_class(intensity).into(),
            by_op: vec![],
            // Bytes counted from the plan over a measured time: computed, not measured.
            provenance: Provenance::of(&[
                ("arithmetic_intensity_flops_per_byte", Origin::Computed),
                ("memory_bandwidth_used_gb_per_sec", Origin::Computed),
                ("memory_bandwidth_utilization_percent", Origin::Computed),
                ("device_memory_bandwidth_gb_per_sec", peak),
                ("ridge_point_flops_per_byte", peak),
                ("idle_percent", times),
                ("time_by_bound", times),
                ("roofline_metrics", Origin::Computed),
                ("roofline_metrics.peak_flops", peak),
                ("roofline_metrics.peak_memory_bandwidth", peak),
                ("by_op", Origin::Computed),
                ("by_op.time", times),
                ("by_op.percent_of_roof", Origin::Computed),
            ]),
        }
    }
}

/// Within a quarter of the ridge on either side counts as at the ridge.
fn roofline_position(intensity: f64, ridge: f64) -> &'static str {
    match intensity / ridge {
        ratio if ratio < 0.8 => "below the bandwidth roof",
        ratio if ratio <= 1.25 => "at the ridge",
        _ => "below the compute roof",
    }
}

fn bandwidth_class(used_percent: f64) -> &'static str {
    match used_percent {
        share if share < 30.0 => "below 30%",
        share if share <= 70.0 => "30-70%",
        _ => "above 70%",
    }
}

fn workshop_intensity_class(intensity: f64) -> &'static str {
    match intensity {
        flops if flops < 10.0 => "below 10 FLOPs per byte: memory-bound",
        flops if flops <= 100.0 => "10-100 FLOPs per byte: mixed",
        _ => "above 100 FLOPs per byte: compute-bound",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_bound_by_its_side_of_the_ridge_unless_nothing_runs() {
        let named =
            [(5.0, 0.1), (50.0, 0.1), (50.0, 0.6)].map(|(flops, idle)| Bound::of_step(flops, 10.0, idle).name());
        assert_eq!(named, ["memory_bound", "compute_bound", "overhead_bound"]);
    }

    #[test]
    fn a_bandwidth_of_counted_bytes_is_computed_though_its_time_is_measured() {
        let rates = RooflineMetrics {
            achieved_flops: 1e9,
            peak_flops: 1e12,
            achieved_bandwidth: 1e9,
            peak_memory_bandwidth: 1e11,
        };
        let record = IntensityRecord::new(5.0, 10.0, rates, Origin::Measured, Origin::Measured);
        for key in ["memory_bandwidth_used_gb_per_sec", "roofline_metrics.achieved_bandwidth", "by_op.percent_of_roof"]
        {
            assert_eq!(record.provenance.origin_of(key), Some(Origin::Computed), "{key}");
        }
        assert_eq!(record.provenance.origin_of("device_memory_bandwidth_gb_per_sec"), Some(Origin::Measured));
    }

    #[test]
    fn classes_change_at_the_documented_limits() {
        assert_eq!([29.9, 30.0, 70.0, 70.1].map(bandwidth_class), ["below 30%", "30-70%", "30-70%", "above 70%"]);
        let positions = [7.9, 10.0, 12.6].map(|flops| roofline_position(flops, 10.0));
        assert_eq!(positions, ["below the bandwidth roof", "at the ridge", "below the compute roof"]);
        let words =
            [9.9, 10.0, 100.1].map(|flops| workshop_intensity_class(flops).rsplit(' ').next().unwrap_or_default());
        assert_eq!(words, ["memory-bound", "mixed", "compute-bound"]);
    }
}
