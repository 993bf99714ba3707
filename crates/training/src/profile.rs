//! Turns recorded steps and the plan into a trace: everything known about them is in its events and its header.
//!
//! Times come from the recording; FLOPs, bytes and memory come from the plan and are exact. The diagnosis reads this
//! trace like any other.

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
