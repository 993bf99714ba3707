//! Predicted time of a call from what a device can do.

use crate::plan::{Call, Plan};

/// What a device can do, as plain rates; measured by the engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// FLOPs a second of a large matrix product.
    pub product_flops: f64,
    /// Bytes a second to and from memory.
    pub bytes: f64,
    /// Seconds that any call costs before it does anything.
    pub call_seconds: f64,
}

/// The larger of the two floors, arithmetic and memory, and the cost of the call itself.
pub fn predicted_seconds(call: &Call, rates: &Rates) -> f64 {
    (call.flops as f64 / rates.product_flops).max(call.bytes as f64 / rates.bytes) + rates.call_seconds
}

/// Predicted time of all calls of a plan, one after the other.
pub fn predicted_step_seconds(plan: &Plan, rates: &Rates) -> f64 {
    plan.calls.iter().map(|call| predicted_seconds(call, rates)).sum()
}
