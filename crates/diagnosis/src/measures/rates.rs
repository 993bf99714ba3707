//! Peak rates of a device, and the least time they allow.

use super::flops::{Cost, Precision};

/// Peak rates that work is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    pub fp32: f64,
    pub half: f64,
    /// Eight bits: fp8 and int8.
    pub fp8: f64,
    pub int8: f64,
    pub bytes: f64,
}

/// The least time that the work can take.
pub fn roof(rates: &Rates, cost: Cost) -> f64 {
    let compute = match cost.precision {
        Precision::Half => rates.half,
        Precision::Fp8 => rates.fp8,
        Precision::Int8 => rates.int8,
        Precision::Fp32 => rates.fp32,
        Precision::Fp64 => rates.fp32 / 2.0,
    };
    (cost.flops / compute).max(cost.bytes / rates.bytes)
}
