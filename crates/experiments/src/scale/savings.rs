//! The memory that each optimization would save at one point, from the plan.

use crate::planning::{MIB, PlannedStep};
use headroom_engine::Target;
use headroom_graph::passes::OFFERED;
use headroom_graph::{GraphError, Precision};
use headroom_training::program::StepConfig;

/// One memory optimization, planned.
pub struct Saving {
    pub name: &'static str,
    /// Command-line flag that enables it; `None` if this device has no kernels for it.
    pub how: Option<How>,
    pub memory_mb: f64,
    /// The step with it; where this device has no kernels for it, the step without.
    pub step: StepConfig,
    pub note: Option<String>,
}

/// A `train` flag and its value.
#[derive(Clone, Debug, PartialEq)]
pub enum How {
    Passes(String),
    Precision(&'static str),
}

/// Passes that replace several kernels by one, other than attention.
const FUSIONS: [&str; 6] = ["fuse-qkv", "fuse-gate-up", "fuse-swiglu", "fuse-norm", "fuse-loss", "fuse-optimizer"];

/// Flash attention, checkpointing, bf16 and fusion, each alone on top of `step`; those that the step already has are
/// left out.
pub fn savings(step: &StepConfig, threads: usize) -> Result<Vec<Saving>, GraphError> {
    let mut found = vec![];
    let list = step.passes.label();
    let mut with = |name, added: &[&str]| -> Result<(), GraphError> {
        let missing: Vec<&str> = added.iter().copied().filter(|pass| !step.passes.contains(pass)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let passes = missing.iter().fold(step.passes.clone(), |list, pass| list.with(pass));
        let changed = StepConfig { passes, ..step.clone() };
        let flags = missing.iter().fold(list.replace('+', ","), |flags, pass| format!("{flags},+{pass}"));
        found.push(saving(name, How::Passes(flags), &changed, threads)?);
        Ok(())
    };
    with("flash attention", &["flash-attention"])?;
    let offered: Vec<&str> =
        FUSIONS.into_iter().filter(|pass| OFFERED.iter().any(|offered| offered.name == *pass)).collect();
    with("fusion", &offered)?;
    if step.recomputed_layers < step.model.n_layers {
        let changed = StepConfig { recomputed_layers: step.model.n_layers, ..step.clone() };
        let flags = format!("{},+checkpoint", list.replace('+', ","));
        found.push(saving("checkpointing", How::Passes(flags), &changed, threads)?);
    }
    if matches!(step.precision, Precision::Fp32 | Precision::Tf32) {
        found.push(half_precision(step, threads)?);
    }
    found.sort_by(|left, right| left.memory_mb.total_cmp(&right.memory_mb));
    Ok(found)
}

fn saving(name: &'static str, how: How, step: &StepConfig, threads: usize) -> Result<Saving, GraphError> {
    let memory_mb = PlannedStep::new(step, threads)?.need.total() as f64 / MIB;
    Ok(Saving { name, how: Some(how), memory_mb, step: step.clone(), note: None })
}

/// A GPU stores bf16. On the CPU values stay in single precision whatever the products use, so the plan is that of a
/// device that stores bf16.
fn half_precision(step: &StepConfig, threads: usize) -> Result<Saving, GraphError> {
    if step.target == Target::Cuda {
        let changed = StepConfig { precision: Precision::Bf16, ..step.clone() };
        return saving("bf16", How::Precision("bf16"), &changed, threads);
    }
    let planned = |precision| {
        let changed = StepConfig { precision, target: Target::Cuda, ..step.clone() };
        PlannedStep::new(&changed, threads).map(|planned| planned.need.total() as f64 / MIB)
    };
    // Layouts differ between targets, so only the difference within one target counts.
    let saved = planned(Precision::Fp32)? - planned(Precision::Bf16)?;
    let here = PlannedStep::new(step, threads)?.need.total() as f64 / MIB;
    Ok(Saving {
        name: "bf16",
        how: None,
        memory_mb: here - saved,
        step: step.clone(),
        note: Some("planned for a GPU; the CPU keeps its values in single precision".into()),
    })
}
