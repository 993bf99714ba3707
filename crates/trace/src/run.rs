//! Headroom's own data in a trace of its runs: the typed header beside the events, and the columns of its operators.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::names::NameId;

/// The header's `headroom` object. Every key may be missing in a trace of an older version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunHeader {
    /// The processor or GPU that computed.
    pub device: String,
    /// `llama tiny v1_baseline`
    pub model: String,
    pub timing: Timing,
    /// Precision of the GEMMs: `fp32`, `bf16`, ….
    pub precision: String,
    pub passes: PassesHeader,
    pub shape: ShapeHeader,
    pub parameters: u64,
    pub peaks: PeaksHeader,
    pub plan: PlanHeader,
    pub flops: FlopsHeader,
    /// The model part of each module path: `layers.*.self_attn.q_proj` is a `query`.
    pub roles: BTreeMap<String, String>,
    /// Operators that only monitor the run, counted apart from its kernels.
    pub instrumentation: Vec<String>,
    pub run: RunSteps,
    pub profiling_overhead_percent: Option<f64>,
}

/// The header's `headroom_recording` object, which `headroom record` adds to PyTorch's trace of a script.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordingHeader {
    /// Duration of each step that ran before any profiler was attached.
    pub true_step_seconds: Vec<f64>,
    /// `device`: timed between events on the device's stream; `host`: by the host's clock.
    pub measured_on: Option<String>,
    /// `light` or `full`.
    pub profiler: String,
    /// Path of the light trace that belongs to this one, relative to this one's folder.
    pub light_trace: Option<String>,
    /// Id of the recording that this trace is part of: ranks share it, two recordings of one script do not.
    pub job: Option<String>,
    /// Cores that the recorded process may use.
    pub cores: Option<usize>,
}

/// How operators were timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Timing {
    /// By the host's clock around each operator.
    #[default]
    HostClock,
    /// By GPU events around each operator: its kernels are not in the trace.
    DeviceEvents,
    /// By the GPU's kernels, launched call by call.
    Kernels,
    /// By the GPU's kernels, replayed as one graph per step.
    ReplayedKernels,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PassesHeader {
    /// The run's passes, as `--passes` takes them.
    pub list: String,
    /// Available passes that are not in the list.
    pub missing: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShapeHeader {
    pub batch_size: u64,
    pub seq_len: u64,
    /// Micro-batches per step.
    pub accumulation: u64,
}

/// The peak rates that the run is compared with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeaksHeader {
    /// FLOP/s of large GEMMs in `precision`.
    pub product_flops: f64,
    pub precision: String,
    pub memory_bandwidth_bytes: f64,
    /// Fixed cost of any call.
    pub call_seconds: f64,
    /// Where the rates come from, in words.
    pub source: String,
    /// Whether the rates are assumed rather than measured.
    pub assumed: bool,
    pub datasheet_flops: Option<f64>,
    pub datasheet_source: Option<String>,
}

/// Facts about the memory plan that no event shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanHeader {
    pub peak_bytes: u64,
    pub arena_bytes: u64,
    /// The arena as reserved: at least `arena_bytes`.
    pub arena_reserved_bytes: u64,
    /// Arena, kernel scratch and everything else that the run reserves.
    pub reserved_bytes: u64,
    pub scratch_bytes: u64,
    /// Live memory averaged over the calls of a step, and scratch; older traces do not have it.
    pub average_bytes: Option<u64>,
    pub largest_batch_that_fits: Option<u64>,
    /// Number of buffers allocated per step, and their bytes.
    pub allocations: u64,
    pub allocated_bytes: u64,
    pub largest_tensor: TensorHeader,
    /// Buffers by the operator that allocates them.
    pub births: Vec<BirthHeader>,
    /// Live buffers at the peak, by the operator and place that allocated them; largest first.
    pub live_at_peak: Vec<LiveHeader>,
    /// Weight GEMMs of one forward pass.
    pub linear_projections: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TensorHeader {
    pub name: String,
    pub shape: Vec<u64>,
    pub bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BirthHeader {
    pub name: String,
    pub bytes: u64,
    pub count: u64,
    /// Bytes of these buffers that are live at the peak.
    pub live_at_peak: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveHeader {
    pub name: String,
    /// The same place in every layer: `layers.*.mlp.up_proj`.
    pub module: String,
    pub bytes: u64,
}

/// FLOPs per step that the events do not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlopsHeader {
    /// FLOPs that the model needs, whatever the passes.
    pub needed_forward_per_step: u64,
    pub needed_per_step: u64,
    pub executed_per_step: u64,
    /// Part of the backward pass that recomputes the forward pass.
    pub recomputed_per_step: u64,
}

/// The run around the recorded steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSteps {
    pub steps: u64,
    /// Mean over the run, warm-up excluded: the step time without a recorder.
    pub mean_step_seconds: Option<f64>,
    /// Whether times are replayed from predictions rather than measured.
    pub times_are_computed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Forward,
    Backward,
    Optimizer,
}

impl Phase {
    pub const ALL: [Phase; 3] = [Phase::Forward, Phase::Backward, Phase::Optimizer];

    pub fn name(self) -> &'static str {
        match self {
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::Optimizer => "optimizer",
        }
    }

    pub fn from_name(name: &[u8]) -> Option<Phase> {
        Phase::ALL.into_iter().find(|phase| phase.name().as_bytes() == name)
    }
}

/// Memory categories in the order of [`Stated::live`].
pub const CATEGORIES: [&str; 5] = ["parameters", "gradients", "optimizer_state", "activations", "temporaries"];

/// Facts that an operator states about itself because they cannot be derived from its shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stated {
    /// Path of its module. For a call that does the work of several, their last parts are joined by `+`:
    /// `layers.0.self_attn.q_proj+k_proj+v_proj`.
    pub module: NameId,
    /// JSON list with each of those modules' share of the call.
    pub shares: NameId,
    pub phase: Option<Phase>,
    pub flops: u64,
    pub bytes: u64,
    /// A GEMM or attention.
    pub is_product: bool,
    /// Bytes live while it runs, by category.
    pub live: [u64; 5],
}

/// `layers.3.mlp.up_proj` as `layers.*.mlp.up_proj`: the same place in every layer.
pub fn place_of(module: &str) -> String {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    module.split('.').map(|part| if is_number(part) { "*" } else { part }).collect::<Vec<_>>().join(".")
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
