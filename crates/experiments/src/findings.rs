//! Bottlenecks of the baseline, ranked, and the pass that each finding suggests.

use crate::bench::{Bench, ExperimentError};
use headroom_diagnosis::{Options, analyze};
use headroom_graph::cost::Rates;
use headroom_graph::passes::OFFERED;
use headroom_record::operators::BottleneckCategory;
use headroom_trace::run::{PassesHeader, PeaksHeader, RunHeader};
use headroom_training::models::ModelConfig;
use headroom_training::profile::trace_file::{TraceAbout, alone, trace};
use headroom_training::profile::{Profiled, run_header};
use headroom_training::recording::Recording;

pub struct BaselineProfile {
    /// Ranked by priority.
    pub findings: Vec<BottleneckCategory>,
    /// FLOPs per step that the model needs, under any list of passes.
    pub needed_flops: f64,
}

/// Analyses the recorded steps of the naive graph like any other trace.
pub fn baseline_profile(
    bench: &Bench,
    recording: &Recording,
    rates: Rates,
    model: &ModelConfig,
) -> Result<BaselineProfile, ExperimentError> {
    let profiled = Profiled { training: bench.training(), recording, accumulation: 1 };
    let header = RunHeader {
        passes: PassesHeader { list: "v1".into(), missing: OFFERED.iter().map(|pass| pass.name.to_string()).collect() },
        peaks: PeaksHeader {
            product_flops: rates.product_flops,
            memory_bandwidth_bytes: rates.bytes,
            call_seconds: rates.call_seconds,
            ..PeaksHeader::default()
        },
        ..run_header(&profiled, model, &bench.memory)
    };
    let needed_flops = header.flops.needed_per_step as f64;
    let about =
        TraceAbout { process: 1, name: "baseline".into(), headroom: header, device: None, distributed: alone() };
    let trace = trace(&profiled, &about)?;
    let run = analyze(&[trace], &Options::default()).and_then(|analysis| analysis.run);
    let findings = run.map(|run| run.operator_analysis.bottlenecks.categories).unwrap_or_default();
    Ok(BaselineProfile { findings, needed_flops })
}
