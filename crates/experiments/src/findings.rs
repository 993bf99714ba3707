//! What holds the baseline back, ranked, and which pass each finding asks for.

use crate::bench::Bench;
use headroom_diagnosis::bottlenecks::{Passes, RanOn, StepFacts, bottlenecks};
use headroom_engine::Target;
use headroom_graph::cost::Rates;
use headroom_graph::passes::OFFERED;
use headroom_record::operators::BottleneckCategory;
use headroom_training::config::ModelConfig;
use headroom_training::profile::Profiled;
use headroom_training::profile::arithmetic::flops_analysis;
use headroom_training::profile::memory::memory_figures;
use headroom_training::profile::operators::{by_place, patterns, step_breakdown};
use headroom_training::recording::Recording;

pub struct BaselineProfile {
    /// Ranked, the first to do first.
    pub findings: Vec<BottleneckCategory>,
    /// FLOPs of a step that the model needs, under any list of passes.
    pub needed_flops: f64,
}

pub fn baseline_profile(bench: &Bench, recording: &Recording, rates: Rates, model: &ModelConfig) -> BaselineProfile {
    let profiled = Profiled { training: bench.training(), recording, rates, accumulation: 1 };
    let seq_len = bench.training().shape.seq_len as f64;
    let (breakdown, places) = (step_breakdown(&profiled), by_place(&profiled));
    let missing: Vec<&str> = OFFERED.iter().map(|pass| pass.name).collect();
    let found = bottlenecks(&StepFacts {
        places: &places,
        breakdown,
        launch_seconds: breakdown.wall * patterns(&profiled).launch_overhead_percent / 100.0,
        causal_share: (seq_len + 1.0) / (2.0 * seq_len),
        fragmentation_percent: memory_figures(&profiled, &bench.memory).fragmentation_percent,
        passes: Passes { list: "v1", missing: &missing },
        ran_on: match bench.program.target {
            Target::Cpu => RanOn::Host,
            Target::Cuda => RanOn::Gpu,
        },
    });
    let flops = flops_analysis(&profiled, model, recording.steps().len() as u64);
    BaselineProfile { findings: found.categories, needed_flops: flops.needed_flops_per_step as f64 }
}
