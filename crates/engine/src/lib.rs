//! Runs a plan: the backends, their kernels and the memory they work in. The only crate with `unsafe`.

pub mod at_once;
pub mod clock;
pub mod cpu;
pub mod cuda;
pub mod device;
pub mod examples;
pub mod machine;
pub mod null;
pub mod peaks;
pub mod ranks;
pub mod recorder;
pub mod reference;
pub mod spec;

pub use device::{Device, Drawn, EngineError, Finished, Moments, Program, Submission, Taken, Target, Walk, Words};
pub use spec::{DeviceSpec, Opening};
