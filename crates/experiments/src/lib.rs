//! Runs of runs: what each optimisation is predicted to bring, what it brings, and the gates that it has to pass.

pub mod bench;
pub mod exactness;
pub mod gates;
pub mod ladder;
pub mod prediction;
