//! TR107 attention-materialised: attention writes its scores to memory.

use super::percent;
use crate::constants::tr107;
use crate::simulation::Removal;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR107",
    name: "attention-materialised",
    cause: Cause::AttentionMaterialised,
    page: include_str!("attention_materialised.md"),
    effort: Effort::Low,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let attention = &evidence.measures.patterns.attention;
    let is_large = attention.share_of_steps >= evidence.thresholds.of(&tr107::ATTENTION_SHARE);
    // Even if it takes little time, it may take much memory.
    let memory = attention.score_bytes * attention.softmaxes_per_step;
    let peak = evidence.measures.memory.peak_bytes.max(1) as f64;
    if attention.softmaxes_per_step < 1.0 || !(is_large || memory > 0.2 * peak) {
        return Vec::new();
    }
    let message = format!(
        "attention writes its scores to memory: the kernels that touch them take {} of the step",
        percent(attention.share_of_steps)
    );
    let advice = "use torch.nn.functional.scaled_dot_product_attention: no score matrix is written, and causal blocks are skipped";
    let mut found = Found::new(Some(attention.share_of_steps), message, advice);
    let per_step = attention.softmaxes_per_step;
    found.evidence = vec![match &attention.score_dims {
        Some(dims) => {
            format!("{per_step:.0} score matrices {dims} per step, {:.1} MB each", attention.score_bytes / 1e6)
        }
        None => format!("{per_step:.0} softmaxes per step, each between two GEMMs"),
    }];
    found.on_device = true;
    // The GEMMs remain; the work between them happens inside the fused kernel.
    found.removal =
        Removal { device: attention.beside_products.iter().map(|&at| (at, 0)).collect(), ..Removal::default() };
    vec![found]
}
