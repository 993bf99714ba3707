//! Diagnosis of training runs: measures of a trace, rules over traces and sources, findings and their ranking.

pub mod analysis;
pub mod compare;
pub mod constants;
mod cost;
#[cfg(test)]
mod fabricated;
pub use headroom_lint::finding;
pub mod join;
mod locate;
pub mod measures;
pub mod peaks;
pub mod retiming;
pub mod roadmap;
pub mod run;
mod simulation;
mod table;
pub mod trace_rules;
mod what_if;

pub use analysis::{Analysis, Options, analyze, analyze_rank};
