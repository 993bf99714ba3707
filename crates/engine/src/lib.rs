//! Runs a plan: the backends, their kernels and the memory they work in. The only crate with `unsafe`.

pub mod cpu;
pub mod device;
pub mod machine;
pub mod null;
pub mod peaks;
pub mod recorder;
pub mod reference;

pub use device::{Device, EngineError, Program, Target};
