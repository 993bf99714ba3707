//! `memory_analysis.json`: the memory of a step, what its peak consists of, and what would lower it.

use crate::provenance::{Origin, Provenance};
use serde::{Deserialize, Serialize};

pub const MEMORY_FILE: &str = "memory_analysis.json";

/// Version 1 weighted the average by the time of the calls and left kernel scratch out, so that it was not the average
/// of the other files.
pub const MEMORY_VERSION: u32 = 2;

/// MiB where a key says `_mb`, bytes otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryRecord {
    pub schema_version: u32,
    /// Live memory at the peak of a step, exact from the plan. In `performance_summary.json` the key of this name is
    /// the reserved memory.
    pub peak_memory_mb: f64,
    /// Live memory averaged over the calls of a step, and kernel scratch: the figure of `performance_summary.json`.
    pub avg_memory_mb: f64,
    /// Reserved memory divided by the average, as in `scaling.json`.
    pub peak_to_average: f64,
    /// Share of the arena lost to gaps between buffers at the peak.
    pub fragmentation_percent: f64,
    pub peak_phase: String,
    /// The call that runs at the peak.
    pub peak_operator: String,
    /// Peak live memory in each phase.
    pub at_forward_mb: f64,
    pub at_backward_mb: f64,
    pub at_optimizer_mb: f64,
    /// Memory that the run reserves: arena and kernel scratch.
    pub reserved_memory_mb: f64,
    pub scratch_memory_mb: f64,
    /// Buffers that become live in a step. They are placed before the run, never allocated during it.
    pub allocations: u64,
    pub largest_tensor: LargestTensor,
    /// MiB live at the peak.
    pub by_category: ByCategory,
    pub peak_memory_events: Vec<MemoryEvent>,
    /// Live memory at the peak other than weights and moments, by the operator that produced it; largest first.
    pub live_at_peak: Vec<LivePlace>,
    /// Bytes of all buffers that become live in a step.
    pub total_memory_allocated: u64,
    /// `None` if not even a batch of one fits, or free memory is unknown.
    pub largest_batch_that_fits: Option<u64>,
    pub memory_efficiency_recommendations: Vec<MemoryRecommendation>,
    pub provenance: Provenance,
}

/// The ratio under that name in every file: the memory that a run reserves divided by its average over a step.
pub fn peak_to_average(reserved: f64, average: f64) -> f64 {
    reserved / average.max(f64::MIN_POSITIVE)
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LargestTensor {
    pub name: String,
    pub shape: Vec<u64>,
    pub mb: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ByCategory {
    pub parameters: f64,
    pub gradients: f64,
    pub optimizer_state: f64,
    pub activations: f64,
    pub temporaries: f64,
}

impl ByCategory {
    pub fn total(&self) -> f64 {
        self.entries().iter().map(|(_, size)| size).sum()
    }

    pub fn entries(&self) -> [(&'static str, f64); 5] {
        [
            ("parameters", self.parameters),
            ("gradients", self.gradients),
            ("optimizer_state", self.optimizer_state),
            ("activations", self.activations),
            ("temporaries", self.temporaries),
        ]
    }
}

/// Buffers that one kind of operator allocates per step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryEvent {
    pub name: String,
    pub memory_usage: u64,
    pub count: u64,
    pub avg_memory_per_call: u64,
    /// Part of `memory_usage` that is live at the peak.
    pub live_at_peak: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LivePlace {
    pub name: String,
    /// The same place in every layer: `layers.*.mlp.up_proj`.
    pub module: String,
    pub mb: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryRecommendation {
    pub recommendation: String,
    pub reason: String,
    /// Upper bound on the reduction of the peak, in MiB.
    pub saves_at_most_mb: f64,
}

impl MemoryRecord {
    /// Everything is read off the plan.
    pub fn provenance() -> Provenance {
        let mut provenance = Provenance::of(&[
            ("largest_tensor", Origin::Computed),
            ("by_category", Origin::Computed),
            ("peak_memory_events", Origin::Computed),
            ("live_at_peak", Origin::Computed),
            ("memory_efficiency_recommendations", Origin::Computed),
        ]);
        for key in [
            "peak_memory_mb",
            "avg_memory_mb",
            "peak_to_average",
            "fragmentation_percent",
            "at_forward_mb",
            "at_backward_mb",
            "at_optimizer_mb",
            "reserved_memory_mb",
            "scratch_memory_mb",
            "allocations",
            "total_memory_allocated",
            "largest_batch_that_fits",
        ] {
            provenance.set(key, Origin::Computed);
        }
        provenance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_add_up_under_the_names_of_the_file() {
        let sizes =
            ByCategory { parameters: 1.0, gradients: 2.0, optimizer_state: 4.0, activations: 8.0, temporaries: 16.0 };
        assert_eq!(sizes.total(), 31.0);
        let written = serde_json::to_value(sizes).unwrap();
        for (name, size) in sizes.entries() {
            assert_eq!(written[name], size, "{name}");
        }
    }

    #[test]
    fn average_and_peak_are_computed_and_no_average_is_no_division_by_zero() {
        let provenance = MemoryRecord::provenance();
        for key in ["peak_memory_mb", "avg_memory_mb", "peak_to_average"] {
            assert_eq!(provenance.origin_of(key), Some(Origin::Computed), "{key}");
        }
        assert_eq!(peak_to_average(3.0, 2.0), 1.5);
        assert_eq!(peak_to_average(0.0, 0.0), 0.0);
    }
}
