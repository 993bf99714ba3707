//! Models, their data, optimizer, checkpoints and training step.

pub mod attribution;
pub mod checkpoint;
pub mod choices;
pub mod data;
pub mod evaluator;
pub mod generate;
pub mod guard;
pub mod memory;
pub mod models;
pub mod optimizer;
pub mod patience;
pub mod persist;
pub mod positioned_file;
pub mod profile;
pub mod program;
pub mod recording;
pub mod rng;
pub mod run;
pub mod safetensors_file;
pub mod scales;
pub mod schedule;
mod shards;
pub mod trainer;
pub mod tree;
mod weights;
