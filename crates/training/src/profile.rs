//! From recorded steps and the plan to figures: what each operator cost, did and held.
//!
//! Times are the recording's; FLOPs, bytes and memory are the plan's, to the unit.

pub mod arithmetic;
mod device_lanes;
pub mod device_work;
pub mod events_file;
pub mod memory;
pub mod operators;
mod shares;
pub mod trace_file;

use crate::program::TrainingProgram;
use crate::recording::Recording;
use headroom_engine::recorder::CallSpan;
use headroom_graph::cost::Rates;
use headroom_graph::{Graph, NodeId, Phase, Plan};
use std::time::Duration;

/// What was recorded, what ran, and what the device can do.
#[derive(Clone, Copy)]
pub struct Profiled<'a> {
    pub training: &'a TrainingProgram,
    pub recording: &'a Recording,
    pub rates: Rates,
    /// Micro-batches a step.
    pub accumulation: usize,
}

impl Profiled<'_> {
    pub fn graph(&self) -> &Graph {
        &self.training.program.graph
    }

    pub fn plan(&self) -> &Plan {
        &self.training.program.plan
    }

    pub fn recorded_steps(&self) -> usize {
        self.recording.steps().len()
    }

    /// How often a call runs in one optimizer step.
    pub fn runs_a_step(&self, call: usize) -> u64 {
        match self.plan().calls[call].phase {
            Phase::Forward | Phase::Backward => self.accumulation as u64,
            Phase::Optimizer => 1,
        }
    }

    /// Seconds of each call over all recorded steps.
    pub fn seconds_by_call(&self) -> Vec<f64> {
        let mut seconds = vec![0.0; self.plan().calls.len()];
        for step in self.recording.steps() {
            let spans = self.recording.calls(step);
            for (span, share) in spans.iter().zip(self.seconds_by_span(spans)) {
                seconds[span.call as usize] += share;
            }
        }
        seconds
    }

    /// Seconds of each span of a step: those of calls beside each other are divided among them.
    fn seconds_by_span(&self, spans: &[CallSpan]) -> Vec<f64> {
        shares::shares(spans, |span| self.floor_seconds(span.call as usize))
    }

    pub fn operator_name(&self, call: usize) -> &'static str {
        self.graph().node(NodeId(call)).op.name()
    }

    /// Seconds that the nearer roof allows a call.
    pub fn floor_seconds(&self, call: usize) -> f64 {
        let call = &self.plan().calls[call];
        (call.flops as f64 / self.rates.product_flops).max(call.bytes as f64 / self.rates.bytes)
    }
}

/// `layers.3.mlp.up_proj` as `layers.*.mlp.up_proj`: the same place in every layer.
pub fn place_of(module: &str) -> String {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    module.split('.').map(|part| if is_number(part) { "*" } else { part }).collect::<Vec<_>>().join(".")
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_of_one_kind_are_one_place() {
        assert_eq!(place_of("layers.13.mlp.up_proj"), "layers.*.mlp.up_proj");
        assert_eq!(place_of("layers.2"), "layers.*");
        assert_eq!(place_of("lm_head"), "lm_head");
    }
}
