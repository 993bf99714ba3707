//! Experiments that consist of many runs: predicted and measured gain of each optimization, and the gates it has to
//! pass; studies over sizes; sweeps over batch and sequence.

pub mod among_ranks;
pub mod bench;
pub mod components;
pub mod exactness;
pub mod findings;
pub mod gates;
pub mod growth;
pub mod k1;
pub mod ladder;
pub mod planning;
pub mod precisions;
pub mod prediction;
pub mod scale;
pub mod step_times;
pub mod study;
pub mod turns;
pub mod validation;
