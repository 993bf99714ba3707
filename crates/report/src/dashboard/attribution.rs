//! The nodes that selective training updated, by step: the run's `attribution.json`, unchanged.

pub use headroom_record::attribution::{ATTRIBUTION_FILE, AttributionRecord as Attribution};
