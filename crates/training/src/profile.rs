//! From recorded steps and the plan to a trace: all that is known of them is in its events and its header.
//!
//! Times are the recording's; FLOPs, bytes and memory are the plan's, to the unit. The diagnosis is read off the trace,
//! as for anybody's.

mod collectives;
mod device_tracks;
pub mod events_file;
mod modules;
mod plan_facts;
mod trace_events;
pub mod trace_file;

pub use plan_facts::run_header;

use crate::program::TrainingProgram;
use crate::recording::Recording;
use headroom_graph::{Graph, Phase, Plan};

/// The recording, and the program that ran.
#[derive(Clone, Copy)]
pub struct Profiled<'a> {
    pub training: &'a TrainingProgram,
    pub recording: &'a Recording,
    /// Micro-batches per step.
    pub accumulation: usize,
}

impl Profiled<'_> {
    fn graph(&self) -> &Graph {
        &self.training.program.graph
    }

    fn plan(&self) -> &Plan {
        &self.training.program.plan
    }

    /// How often a call runs in one optimizer step.
    fn runs_per_step(&self, call: usize) -> u64 {
        match self.plan().calls[call].phase {
            Phase::Forward | Phase::Backward => self.accumulation as u64,
            Phase::Optimizer => 1,
        }
    }
}
