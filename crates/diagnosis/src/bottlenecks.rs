//! From what each place of the model cost to what holds the step back: the workshop's table of categories, and targets.
//!
//! A gain is an upper bound: what the step would lose if the place ran at its roof, or vanished where a pass makes it
//! vanish. None is a promise, and rows that overlap say so.

mod categories;
mod kinds;

use crate::finding::Severity;
use categories::categories;
use headroom_record::intensity::Bound;
use headroom_record::memory::{LivePlace, MemoryRecommendation};
use headroom_record::operators::{Bottlenecks, OptimizationTarget, PlaceStats, StepBreakdown};
use headroom_record::roofline::RooflineTarget;
use kinds::{is_attention, is_gate_up, is_loss, is_norm, is_optimizer, is_product, is_qkv};

/// A mean step as far as bottlenecks are concerned.
pub struct StepFacts<'a> {
    pub places: &'a [PlaceStats],
    pub breakdown: StepBreakdown,
    /// Seconds between calls, and of starting every call.
    pub launch_seconds: f64,
    /// (S+1) / 2S: how much of the square of scores a causal model needs.
    pub causal_share: f64,
    pub fragmentation_percent: f64,
    pub passes: Passes<'a>,
    pub ran_on: RanOn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RanOn {
    Host,
    Gpu,
}

const TARGETS: usize = 8;
const NAMED: usize = 5;

pub fn bottlenecks(facts: &StepFacts) -> Bottlenecks {
    let names = |wanted: &dyn Fn(&PlaceStats) -> bool| -> Vec<String> {
        facts.places.iter().filter(|place| wanted(place)).take(NAMED).map(PlaceStats::label).collect()
    };
    Bottlenecks {
        top_cpu_time: names(&|_| true),
        top_cuda_time: if facts.ran_on == RanOn::Gpu { names(&|_| true) } else { vec![] },
        memory_intensive: names(&|place| place.bound == Bound::MemoryBound),
        low_flops_utilization: names(&|place| place.bound == Bound::ComputeBound && place.percent_of_roof < 50.0),
        optimization_targets: targets(facts),
        categories: categories(facts),
    }
}

/// The places that lose most against their roof.
fn targets(facts: &StepFacts) -> Vec<OptimizationTarget> {
    let wall = facts.breakdown.wall;
    let target = |place: &PlaceStats| {
        let saved = (place.time - place.floor).max(0.0);
        let share = saved / wall;
        OptimizationTarget {
            operation: place.label(),
            optimization: remedy(place, &facts.passes),
            potential_benefit: gain(saved, wall),
            saves_at_most_percent: 100.0 * share,
            priority: priority(share).into(),
        }
    };
    furthest_from_roof(facts.places).into_iter().take(TARGETS).map(target).collect()
}

pub fn roofline_targets(facts: &StepFacts) -> Vec<RooflineTarget> {
    let target = |place: &PlaceStats| RooflineTarget {
        target: place.label(),
        reason: format!(
            "{:.1}% of the step at {:.0}% of its roof ({})",
            place.percent_of_step,
            place.percent_of_roof,
            place.bound.name().replace('_', " ")
        ),
        expected_improvement: gain((place.time - place.floor).max(0.0), facts.breakdown.wall),
    };
    furthest_from_roof(facts.places).into_iter().take(NAMED).map(target).collect()
}

fn furthest_from_roof(places: &[PlaceStats]) -> Vec<&PlaceStats> {
    let mut by_loss: Vec<&PlaceStats> = places.iter().filter(|place| place.time > place.floor).collect();
    by_loss.sort_by(|left, right| (right.time - right.floor).total_cmp(&(left.time - left.floor)));
    by_loss
}

fn gain(saved: f64, wall: f64) -> String {
    let left = (wall - saved).max(f64::MIN_POSITIVE);
    format!("at most {:.1}% of the step ({:.2}×), if it ran at its roof", 100.0 * saved / wall, wall / left)
}

fn priority(share: f64) -> &'static str {
    match Severity::of_share(share) {
        Severity::Critical | Severity::High => "high",
        Severity::Medium => "medium",
        Severity::Low => "low",
    }
}

/// The passes that help a place.
fn passes_for(place: &PlaceStats) -> &'static [&'static str] {
    match place {
        place if is_optimizer(place) => &["fuse-optimizer"],
        place if is_attention(place) => &["flash-attention", "fuse-rope"],
        place if is_qkv(place) => &["fuse-qkv"],
        place if is_gate_up(place) && !is_product(place) => &["fuse-swiglu"],
        place if is_gate_up(place) => &["fuse-gate-up"],
        place if is_norm(place) => &["fuse-norm"],
        place if is_loss(place) => &["fuse-loss"],
        _ => &[],
    }
}

fn remedy(place: &PlaceStats, passes: &Passes) -> String {
    passes.flag(passes_for(place)).unwrap_or_else(|| {
        let words = match place.bound {
            Bound::ComputeBound => "larger products, a faster kernel, or a lower precision",
            _ => "fuse with a neighbour, so that the data is read once",
        };
        words.into()
    })
}

/// Passes as far as advice needs them.
pub struct Passes<'a> {
    /// As `--passes` takes the list of this run.
    pub list: &'a str,
    /// Offered, and not in that list.
    pub missing: &'a [&'a str],
}

impl Passes<'_> {
    /// The flag that adds those of `wanted` that are missing; none where nothing is.
    fn flag(&self, wanted: &[&str]) -> Option<String> {
        let added: Vec<String> =
            wanted.iter().filter(|pass| self.missing.contains(pass)).map(|pass| format!("+{pass}")).collect();
        (!added.is_empty()).then(|| format!("--passes {},{}", self.list, added.join(",")))
    }
}

/// What would lower the peak, from what is live at it; most first, nothing below 1% of it.
pub fn memory_recommendations(
    live: &[LivePlace],
    activations_mb: f64,
    peak_mb: f64,
    passes: &Passes,
) -> Vec<MemoryRecommendation> {
    let sum = |wanted: &dyn Fn(&LivePlace) -> bool| -> f64 {
        live.iter().filter(|place| wanted(place)).map(|place| place.mb).sum()
    };
    let scores = sum(&|place| place.name.contains("softmax") || place.name == "attention_scores");
    let logits = sum(&|place| matches!(place.module.as_str(), "lm_head" | "loss"));
    let gated = sum(&|place| matches!(place.name.as_str(), "silu" | "mul") && place.module.ends_with("mlp"));
    let mut rows = vec![
        (scores, "flash-attention", "the squares of scores and their softmax are live at the peak"),
        (logits, "fuse-loss", "logits and their gradient are live at the peak"),
        (gated, "fuse-swiglu", "the activation and its product are kept for the backward pass"),
        (
            activations_mb,
            "checkpoint",
            "activations wait for the backward pass; recomputing them costs up to one more forward pass",
        ),
    ];
    rows.retain(|(saved, _, _)| *saved >= 0.01 * peak_mb);
    rows.sort_by(|left, right| right.0.total_cmp(&left.0));
    rows.into_iter()
        .filter_map(|(saves_at_most_mb, pass, reason)| {
            let recommendation = passes.flag(&[pass])?;
            Some(MemoryRecommendation { recommendation, reason: reason.into(), saves_at_most_mb })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_record::operators::Level;

    fn place(name: &str, module: &str, phase: &str, time: f64, floor: f64) -> PlaceStats {
        PlaceStats {
            name: name.into(),
            module: module.into(),
            phase: phase.into(),
            count: 4,
            time,
            percent_of_step: time * 100.0,
            flops: 1,
            bytes: 1,
            intensity: 1.0,
            bound: Bound::ComputeBound,
            floor,
            percent_of_roof: 100.0 * floor / time,
        }
    }

    const V1: Passes = Passes { list: "v1", missing: &["fuse-qkv", "flash-attention", "checkpoint"] };

    fn facts(places: &[PlaceStats]) -> StepFacts<'_> {
        StepFacts {
            places,
            breakdown: StepBreakdown { wall: 1.0, ..StepBreakdown::default() },
            launch_seconds: 0.02,
            causal_share: 0.5,
            fragmentation_percent: 1.0,
            passes: V1,
            ran_on: RanOn::Host,
        }
    }

    #[test]
    fn a_gain_is_what_lies_above_the_roof() {
        let places = [place("matmul", "layers.*.self_attn.q_proj", "forward", 0.5, 0.3)];
        let found = bottlenecks(&facts(&places));
        let row = found.categories.iter().find(|row| row.category == "QKV Projections").unwrap();
        assert_eq!((row.percent_of_time, row.impact, row.priority_rank), (Some(50.0), Level::High, 1));
        assert!((row.speedup_at_most.unwrap() - 1.25).abs() < 1e-9);
        assert_eq!(found.optimization_targets[0].priority, "high");
    }

    #[test]
    fn masked_scores_and_softmax_go_with_tiled_attention() {
        let places = [
            place("attention_scores", "layers.*.self_attn", "forward", 0.2, 0.1),
            place("causal_softmax", "layers.*.self_attn", "forward", 0.1, 0.05),
        ];
        let found = bottlenecks(&facts(&places));
        let row = found.categories.iter().find(|row| row.category == "Attention Computation").unwrap();
        // 0.3 of the step; half of the scores' floor stays.
        assert!((row.speedup_at_most.unwrap() - 1.0 / 0.75).abs() < 1e-9);
    }

    #[test]
    fn a_pass_that_is_applied_is_not_advised() {
        let places = [place("linears", "layers.*.self_attn.v_proj", "forward", 0.5, 0.3)];
        let applied = Passes { list: "fuse-qkv", missing: &["fuse-norm"] };
        let found = bottlenecks(&StepFacts { passes: applied, ..facts(&places) });
        let row = found.categories.iter().find(|row| row.category == "QKV Projections").unwrap();
        assert_eq!((row.impact, row.effort), (Level::High, Level::High));
        assert!(!found.optimization_targets[0].optimization.contains("--passes"));
    }

    #[test]
    fn what_runs_above_the_memory_roof_promises_nothing() {
        let places = [place("add", "layers.*", "forward", 0.1, 0.2)];
        assert!(bottlenecks(&facts(&places)).optimization_targets.is_empty());
    }

    #[test]
    fn only_what_is_live_at_the_peak_can_leave_it() {
        let live = [LivePlace { name: "causal_softmax".into(), module: "layers.*.self_attn".into(), mb: 16.0 }];
        let found = memory_recommendations(&live, 0.5, 100.0, &V1);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].recommendation, "--passes v1,+flash-attention");
        assert_eq!(found[0].saves_at_most_mb, 16.0);
    }
}
