//! Which nodes selective training updated at which steps: the run's `attribution.json` as it is.

pub use headroom_record::attribution::{ATTRIBUTION_FILE, AttributionRecord as Attribution};
