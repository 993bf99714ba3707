//! What it means: measures of a trace, rules over traces and sources, findings and their ranking.

pub mod bottlenecks;
pub mod finding;
