//! From what each place of the model cost to what holds the step back: the workshop's table of categories, and targets.
//!
//! A gain is an upper bound: what the step would lose if the place ran at its roof, or vanished where a pass makes it
//! vanish. None is a promise, and rows that overlap say so.

use crate::finding::Severity;
use headroom_record::intensity::Bound;
use headroom_record::memory::{LivePlace, MemoryRecommendation};
use headroom_record::operators::{
    BottleneckCategory, Bottlenecks, Level, OptimizationTarget, PlaceStats, StepBreakdown,
};
use headroom_record::roofline::RooflineTarget;

/// A mean step as far as bottlenecks are concerned.
pub struct StepFacts<'a> {
    pub places: &'a [PlaceStats],
    pub breakdown: StepBreakdown,
    /// Seconds between calls, and of starting every call.
    pub launch_seconds: f64,
    /// (S+1) / 2S: how much of the square of scores a causal model needs.
    pub causal_share: f64,
    pub fragmentation_percent: f64,
}

const TARGETS: usize = 8;
const NAMED: usize = 5;

pub fn bottlenecks(facts: &StepFacts) -> Bottlenecks {
    let names = |wanted: &dyn Fn(&PlaceStats) -> bool| -> Vec<String> {
        facts.places.iter().filter(|place| wanted(place)).take(NAMED).map(PlaceStats::label).collect()
    };
    Bottlenecks {
        top_cpu_time: names(&|_| true),
        top_cuda_time: vec![],
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
            optimization: remedy(place).into(),
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

fn leaf(place: &PlaceStats) -> &str {
    place.module.rsplit('.').next().unwrap_or_default()
}

fn is_qkv(place: &PlaceStats) -> bool {
    matches!(leaf(place), "q_proj" | "k_proj" | "v_proj") || leaf(place).contains("qkv")
}

fn is_gate_up(place: &PlaceStats) -> bool {
    matches!(leaf(place), "gate_proj" | "up_proj" | "mlp") || leaf(place).contains("gate_up")
}

fn is_attention(place: &PlaceStats) -> bool {
    leaf(place) == "self_attn"
}

fn is_softmax(place: &PlaceStats) -> bool {
    place.name.contains("softmax")
}

fn is_optimizer(place: &PlaceStats) -> bool {
    place.phase == "optimizer"
}

fn is_norm(place: &PlaceStats) -> bool {
    place.name.contains("norm") && !is_optimizer(place)
}

fn is_loss(place: &PlaceStats) -> bool {
    matches!(leaf(place), "lm_head" | "loss")
}

/// A weight product, fused with others or not.
fn is_product(place: &PlaceStats) -> bool {
    place.name == "matmul" || place.name.starts_with("linear")
}

/// What helps a place, in the words of the pass that does it.
fn remedy(place: &PlaceStats) -> &'static str {
    match place {
        place if is_optimizer(place) => "one update for all parameters: --passes +fuse-optimizer",
        place if is_attention(place) => "tiled attention without the square of scores: --passes +flash-attention",
        place if is_qkv(place) => "one product for q, k and v: --passes +fuse-qkv",
        place if is_gate_up(place) && !is_product(place) => {
            "activation and product in one kernel: --passes +fuse-swiglu"
        }
        place if is_gate_up(place) => "one product for gate and up: --passes +fuse-gate-up",
        place if is_norm(place) => "residual and norm in one kernel: --passes +fuse-norm",
        place if is_loss(place) => "head and loss in chunks: --passes +fuse-loss",
        place if place.bound == Bound::ComputeBound => "larger products, or a lower precision",
        _ => "fuse with its neighbour, so that the data is read once",
    }
}

struct Row {
    category: &'static str,
    difficulty: &'static str,
    effort: Level,
    remedy: &'static str,
    belongs: fn(&PlaceStats) -> bool,
    /// Seconds of a place that would stay.
    stays: fn(&PlaceStats, causal_share: f64) -> f64,
    overlap: &'static str,
}

fn at_roof(place: &PlaceStats, _: f64) -> f64 {
    place.floor.min(place.time)
}

fn nothing(_: &PlaceStats, _: f64) -> f64 {
    0.0
}

/// Products stay at their roof, and what is fused into them goes.
fn products_at_roof(place: &PlaceStats, share: f64) -> f64 {
    if is_product(place) { at_roof(place, share) } else { 0.0 }
}

/// The needed half of the products stays at its roof; a kernel that is tiled already stays as a whole.
fn needed_scores(place: &PlaceStats, share: f64) -> f64 {
    match place.name.as_str() {
        name if name.contains("flash") => at_roof(place, share),
        name if name.starts_with("attention") => share * at_roof(place, share),
        _ => 0.0,
    }
}

/// The workshop's six rows (launch and fragmentation are built apart), then three of ours.
const ROWS: [Row; 7] = [
    Row {
        category: "QKV Projections",
        difficulty: "Low-Medium",
        effort: Level::Low,
        remedy: "--passes +fuse-qkv",
        belongs: is_qkv,
        stays: at_roof,
        overlap: "",
    },
    Row {
        category: "Attention Computation",
        difficulty: "Medium",
        effort: Level::Low,
        remedy: "--passes +flash-attention",
        belongs: is_attention,
        stays: needed_scores,
        overlap: "",
    },
    Row {
        category: "SwiGLU Gate/Up",
        difficulty: "Low",
        effort: Level::Low,
        remedy: "--passes +fuse-gate-up +fuse-swiglu",
        belongs: is_gate_up,
        stays: products_at_roof,
        overlap: "",
    },
    Row {
        category: "Softmax Operations",
        difficulty: "Medium-High",
        effort: Level::High,
        remedy: "--passes +flash-attention",
        belongs: is_softmax,
        stays: nothing,
        overlap: "; part of the attention row, not to be added to it",
    },
    Row {
        category: "Optimizer",
        difficulty: "Low",
        effort: Level::Low,
        remedy: "--passes +fuse-optimizer",
        belongs: is_optimizer,
        stays: at_roof,
        overlap: "",
    },
    Row {
        category: "Norms",
        difficulty: "Medium",
        effort: Level::High,
        remedy: "--passes +fuse-norm",
        belongs: is_norm,
        stays: at_roof,
        overlap: "",
    },
    Row {
        category: "LM Head and Loss",
        difficulty: "Medium",
        effort: Level::High,
        remedy: "--passes +fuse-loss",
        belongs: is_loss,
        stays: products_at_roof,
        overlap: "",
    },
];

/// Of the step: below it, an impact is low.
const HIGH_IMPACT: f64 = 0.10;

fn categories(facts: &StepFacts) -> Vec<BottleneckCategory> {
    let wall = facts.breakdown.wall;
    let mut rows: Vec<(f64, BottleneckCategory)> = ROWS
        .iter()
        .map(|row| {
            let places = facts.places.iter().filter(|place| (row.belongs)(place));
            let (time, stays) = places.fold((0.0, 0.0), |(time, stays), place| {
                (time + place.time, stays + (row.stays)(place, facts.causal_share))
            });
            let evidence = format!("{:.2} ms a step, {:.2} ms at the roof{}", time * 1e3, stays * 1e3, row.overlap);
            let saved = (time - stays).max(0.0);
            let made = category(row.category, Some(time / wall), (row.difficulty, row.effort), row.remedy, evidence);
            (saved, with_gain(made, saved, wall))
        })
        .collect();
    let launch = category(
        "Kernel Launch Overhead",
        Some(facts.launch_seconds / wall),
        ("Medium-High", Level::High),
        "--passes +graph-replay, and every fusion",
        format!("{:.2} ms a step between calls and in starting them", facts.launch_seconds * 1e3),
    );
    rows.push((facts.launch_seconds, with_gain(launch, facts.launch_seconds, wall)));
    let fragmentation = category(
        "Memory Fragmentation",
        None,
        ("Medium", Level::Low),
        "nothing to do: buffers are placed before the run",
        format!("{:.2}% of the arena lies between buffers; it costs memory, no time", facts.fragmentation_percent),
    );
    rows.push((0.0, fragmentation));
    // The quadrant of the matrix first, then what could be saved.
    rows.sort_by(|(left_saved, left), (right_saved, right)| {
        let quadrant = |row: &BottleneckCategory| (row.impact == Level::Low, row.effort);
        quadrant(left).cmp(&quadrant(right)).then(right_saved.total_cmp(left_saved))
    });
    let ranked = rows.into_iter().enumerate();
    ranked.map(|(rank, (_, row))| BottleneckCategory { priority_rank: rank as u64 + 1, ..row }).collect()
}

fn category(
    name: &str,
    share: Option<f64>,
    (difficulty, effort): (&str, Level),
    remedy: &str,
    evidence: String,
) -> BottleneckCategory {
    BottleneckCategory {
        category: name.into(),
        percent_of_time: share.map(|share| 100.0 * share),
        difficulty: difficulty.into(),
        effort,
        speedup_at_most: None,
        impact: Level::Low,
        priority_rank: 0,
        remedy: remedy.into(),
        evidence,
    }
}

fn with_gain(row: BottleneckCategory, saved: f64, wall: f64) -> BottleneckCategory {
    let impact = if saved / wall >= HIGH_IMPACT { Level::High } else { Level::Low };
    BottleneckCategory { speedup_at_most: Some(wall / (wall - saved).max(f64::MIN_POSITIVE)), impact, ..row }
}

/// What would lower the peak, from what is live at it; most first, nothing below 1% of it.
pub fn memory_recommendations(live: &[LivePlace], activations_mb: f64, peak_mb: f64) -> Vec<MemoryRecommendation> {
    let sum = |wanted: &dyn Fn(&LivePlace) -> bool| -> f64 {
        live.iter().filter(|place| wanted(place)).map(|place| place.mb).sum()
    };
    let scores = sum(&|place| place.name.contains("softmax") || place.name == "attention_scores");
    let logits = sum(&|place| matches!(place.module.as_str(), "lm_head" | "loss"));
    let gated = sum(&|place| matches!(place.name.as_str(), "silu" | "mul") && place.module.ends_with("mlp"));
    let mut rows = vec![
        (scores, "--passes +flash-attention", "the squares of scores and their softmax are live at the peak"),
        (logits, "--passes +fuse-loss", "logits and their gradient are live at the peak"),
        (gated, "--passes +fuse-swiglu", "the activation and its product are kept for the backward pass"),
        (
            activations_mb,
            "--passes +checkpoint",
            "activations wait for the backward pass; recomputing them costs up to one more forward pass",
        ),
    ];
    rows.retain(|(saved, _, _)| *saved >= 0.01 * peak_mb);
    rows.sort_by(|left, right| right.0.total_cmp(&left.0));
    rows.into_iter()
        .map(|(saves_at_most_mb, recommendation, reason)| MemoryRecommendation {
            recommendation: recommendation.into(),
            reason: format!("{saves_at_most_mb:.1} MiB: {reason}"),
            saves_at_most_mb,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn facts(places: &[PlaceStats]) -> StepFacts<'_> {
        StepFacts {
            places,
            breakdown: StepBreakdown { wall: 1.0, ..StepBreakdown::default() },
            launch_seconds: 0.02,
            causal_share: 0.5,
            fragmentation_percent: 1.0,
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
    fn what_runs_above_the_memory_roof_promises_nothing() {
        let places = [place("add", "layers.*", "forward", 0.1, 0.2)];
        assert!(bottlenecks(&facts(&places)).optimization_targets.is_empty());
    }

    #[test]
    fn only_what_is_live_at_the_peak_can_leave_it() {
        let live = [LivePlace { name: "causal_softmax".into(), module: "layers.*.self_attn".into(), mb: 16.0 }];
        let found = memory_recommendations(&live, 0.5, 100.0);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].saves_at_most_mb, 16.0);
    }
}
