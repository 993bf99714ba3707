//! What it means: measures of a trace, rules over traces and sources, findings and their ranking.

pub mod finding;
pub mod source;
