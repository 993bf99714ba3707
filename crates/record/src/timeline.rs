//! `memory_timeline.json`: live memory at every call of the recorded steps, by category.

use crate::SCHEMA_VERSION;
use crate::memory::ByCategory;
use crate::provenance::{Origin, Provenance};
use serde::{Deserialize, Serialize};

pub const TIMELINE_FILE: &str = "memory_timeline.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimelineRecord {
    pub schema_version: u32,
    /// The keys of a point whose values are MiB.
    pub categories: Vec<String>,
    pub points: Vec<TimelinePoint>,
    pub provenance: Provenance,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimelinePoint {
    /// From the start of the first recorded step.
    pub time_us: f64,
    pub step: u64,
    pub phase: String,
    /// The call that starts at this time.
    pub operator: String,
    #[serde(flatten)]
    pub live_mb: ByCategory,
}

impl TimelineRecord {
    pub fn new(points: Vec<TimelinePoint>, times: Origin) -> TimelineRecord {
        TimelineRecord {
            schema_version: SCHEMA_VERSION,
            categories: ByCategory::default().entries().map(|(name, _)| name.to_string()).to_vec(),
            points,
            provenance: Provenance::of(&[("points", Origin::Computed), ("points.time_us", times)]),
        }
    }

    /// The point with the most live memory; the first one if several tie.
    pub fn peak(&self) -> Option<&TimelinePoint> {
        self.points.iter().rev().max_by(|left, right| left.live_mb.total().total_cmp(&right.live_mb.total()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provenance::check_provenance;

    #[test]
    fn the_peak_is_the_first_of_the_fullest_moments() {
        let point = |time_us: f64, activations: f64| TimelinePoint {
            time_us,
            step: 4,
            phase: "forward".into(),
            operator: "matmul in lm_head".into(),
            live_mb: ByCategory { parameters: 1.0, activations, ..ByCategory::default() },
        };
        let record = TimelineRecord::new(vec![point(0.0, 1.0), point(1.0, 7.0), point(2.0, 7.0)], Origin::Measured);
        assert_eq!(record.peak().map(|point| point.time_us), Some(1.0));
        check_provenance(&serde_json::to_value(&record).unwrap()).unwrap();
    }
}
