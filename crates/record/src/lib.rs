//! Records of a run: plain data with the provenance of every figure, and how it is written to disk. The statistics of
//! times, and the turns in which times are taken, are here too, for everything that measures.

pub mod atomic;
pub mod attribution;
pub mod config;
pub mod device;
pub mod flops;
pub mod gate;
pub mod intensity;
pub mod interference;
pub mod k1;
pub mod k1_speed;
pub mod k1_tree;
pub mod link;
pub mod memory;
pub mod numbers;
pub mod operators;
pub mod performance;
pub mod phase_3;
pub mod precisions;
pub mod progress;
pub mod provenance;
pub mod race;
pub mod rank_scaling;
pub mod reading;
pub mod registry;
pub mod replace;
pub mod roofline;
pub mod scaling;
pub mod script;
pub mod statistics;
pub mod study;
pub mod temporary;
pub mod timeline;
pub mod timestamp;
pub mod turns;
pub mod validation;
pub mod workshop;

/// Version of the file layout. It changes when a key changes meaning or is removed, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;
