//! TR121 to TR128: a pass that a headroom run does not use, with its largest possible saving. One rule per pass.

use super::{Evidence, Found, TraceRule, percent, shown_time};
use crate::constants::{Constant, tr121, tr122, tr123, tr124, tr125, tr126, tr127, tr128};
use crate::finding::{Cause, Confidence, Effort};
use crate::measures::calls::Call;
use crate::measures::intervals::Span;
use crate::run::passes::PassEffect;
use headroom_trace::run::place_of;
use std::collections::HashMap;

macro_rules! pass_rule {
    ($trigger:ident, $code:literal, $name:literal, $pass:literal, $page:literal) => {
        TraceRule {
            code: $code,
            name: $name,
            cause: Cause::PassMissing,
            page: include_str!($page),
            effort: Effort::Low,
            check: |evidence| missing(evidence, &$trigger::SAVING_SHARE, $pass),
        }
    };
}

pub const QKV: TraceRule = pass_rule!(tr121, "TR121", "unfused-qkv", "fuse-qkv", "passes/unfused_qkv.md");
pub const GATE_UP: TraceRule =
    pass_rule!(tr122, "TR122", "unfused-gate-up", "fuse-gate-up", "passes/unfused_gate_up.md");
pub const SWIGLU: TraceRule = pass_rule!(tr123, "TR123", "unfused-swiglu", "fuse-swiglu", "passes/unfused_swiglu.md");
pub const SCORES: TraceRule =
    pass_rule!(tr124, "TR124", "scores-in-memory", "flash-attention", "passes/scores_in_memory.md");
pub const ROPE: TraceRule = pass_rule!(tr125, "TR125", "unfused-rope", "fuse-rope", "passes/unfused_rope.md");
pub const NORM: TraceRule = pass_rule!(tr126, "TR126", "unfused-norm", "fuse-norm", "passes/unfused_norm.md");
pub const OPTIMIZER: TraceRule =
    pass_rule!(tr127, "TR127", "unfused-optimizer", "fuse-optimizer", "passes/unfused_optimizer.md");
pub const LOSS: TraceRule = pass_rule!(tr128, "TR128", "unfused-loss", "fuse-loss", "passes/unfused_loss.md");

/// Empty if the pass is applied, the trace is from another program, or the saving is below the threshold.
fn missing(evidence: &Evidence, least: &Constant<f64>, pass: &str) -> Vec<Found> {
    let (Some((run, calls)), Some(effect)) = (evidence.run, PassEffect::of(pass)) else { return vec![] };
    let facts = run.step_facts();
    let Some(flag) = facts.passes.flag(&[pass]) else { return vec![] };
    let (time, saved) = effect.seconds(&facts);
    let share = saved / facts.breakdown.wall.max(f64::MIN_POSITIVE);
    if share < evidence.thresholds.of(least) {
        return vec![];
    }
    let message = format!("{}: `{pass}` saves at most {} of the step", effect.fault, percent(share));
    let mut found =
        Found::new(Some(share), message, &format!("`{flag}`; `headroom optimize` measures and verifies it"));
    found.is_flag = true;
    found.confidence = Confidence::Medium;
    let roof = match run.header.peaks.precision.as_str() {
        "" => "roofline".to_string(),
        precision => format!("{precision} roofline"),
    };
    found.evidence = vec![format!(
        "{} per step, of which {} would remain at the {roof}",
        shown_time(time),
        shown_time(time - saved)
    )];
    let staying = |call: &Call| {
        let place = place_of(call.module);
        let place = facts
            .places
            .iter()
            .find(|row| row.module == place && row.name == call.name && row.phase == call.phase.name())?;
        effect.shortens(place, &facts).then(|| effect.staying_share(place, facts.causal_share))
    };
    let (view, device) = (evidence.view, &evidence.view.trace.device);
    // By operator id: the share of its kernels that remains.
    let mut staying_kernels: HashMap<u32, f64> = HashMap::new();
    for call in &calls.list {
        let Some(stays) = staying(call) else { continue };
        if view.has_device_work() {
            staying_kernels.insert(view.trace.host.id[call.at], stays);
        } else {
            let kept = (call.span.nanos() as f64 * stays) as i64;
            found.removal.host.push(Span { start: call.span.start + kept, end: call.span.end });
        }
    }
    let shortened = |at: usize| {
        let stays = staying_kernels.get(&device.external[at])?;
        Some((at, (device.duration[at] as f64 * stays) as i64))
    };
    found.removal.device = device.busy().filter_map(shortened).collect();
    vec![found]
}
