//! Passes applied to the step: the time that each pass affects, what it saves at most, and the workshop's table from
//! that.
//!
//! A saving is an upper bound: the time saved if the calls that the pass affects ran at their roof, or vanished where
//! the pass removes them. It is not a promise, and rows that overlap say so.

use headroom_record::intensity::Bound;
use headroom_record::operators::{
    BottleneckCategory, Bottlenecks, Level, OptimizationTarget, PlaceStats, StepBreakdown,
};
use headroom_record::roofline::RooflineTarget;

use super::kinds;
use crate::constants::passes::HIGH_IMPACT;
use crate::finding::Severity;

/// A mean step, reduced to what passes need.
pub struct StepFacts<'a> {
    pub places: &'a [PlaceStats],
    pub breakdown: StepBreakdown,
    /// Seconds between calls, and for launching every call.
    pub launch_seconds: f64,
    /// (S+1) / 2S: the share of the score matrix that a causal model needs.
    pub causal_share: f64,
    pub fragmentation_percent: f64,
    pub passes: Passes<'a>,
    /// Operators that only monitor the run: not part of any row.
    pub instrumentation: &'a [String],
    pub has_gpu: bool,
}

/// The run's passes, reduced to what advice needs.
#[derive(Clone, Copy, Debug)]
pub struct Passes<'a> {
    /// This run's list, as `--passes` takes it.
    pub list: &'a str,
    /// Available passes that are not in the list.
    pub missing: &'a [String],
}

impl Passes<'_> {
    fn lacks(&self, pass: &str) -> bool {
        self.missing.iter().any(|missing| missing == pass)
    }

    /// The flag that adds the missing ones of `wanted`; `None` if none is missing.
    pub fn flag(&self, wanted: &[&str]) -> Option<String> {
        let added: Vec<String> = wanted.iter().filter(|pass| self.lacks(pass)).map(|pass| format!("+{pass}")).collect();
        (!added.is_empty()).then(|| format!("--passes {},{}", self.list, added.join(",")))
    }
}

/// A pass's row: the problem it fixes, the calls it affects, and the seconds that remain of them.
pub struct PassEffect {
    pub pass: &'static str,
    pub fault: &'static str,
    pub touches: fn(&PlaceStats) -> bool,
    stays: fn(&PlaceStats, causal_share: f64) -> f64,
}

impl PassEffect {
    const fn new(
        pass: &'static str,
        fault: &'static str,
        touches: fn(&PlaceStats) -> bool,
        stays: fn(&PlaceStats, f64) -> f64,
    ) -> PassEffect {
        PassEffect { pass, fault, touches, stays }
    }

    pub fn of(pass: &str) -> Option<&'static PassEffect> {
        PASS_EFFECTS.iter().find(|effect| effect.pass == pass)
    }

    /// Share of a place's time that remains after the pass.
    pub fn staying_share(&self, place: &PlaceStats, causal_share: f64) -> f64 {
        if place.time > 0.0 { ((self.stays)(place, causal_share) / place.time).clamp(0.0, 1.0) } else { 1.0 }
    }

    /// Whether the pass touches the place; operators that only watch the run are not the model's.
    pub fn shortens(&self, place: &PlaceStats, facts: &StepFacts) -> bool {
        !facts.instrumentation.contains(&place.name) && (self.touches)(place)
    }

    /// Seconds per step that the pass affects, and how many it saves at most.
    pub fn seconds(&self, facts: &StepFacts) -> (f64, f64) {
        let touched = facts.places.iter().filter(|place| self.shortens(place, facts));
        touched.fold((0.0, 0.0), |(time, saved), place| {
            (time + place.time, saved + (place.time - (self.stays)(place, facts.causal_share)).max(0.0))
        })
    }
}

fn at_roof(place: &PlaceStats, _: f64) -> f64 {
    place.floor.min(place.time)
}

fn nothing(_: &PlaceStats, _: f64) -> f64 {
    0.0
}

/// GEMMs remain at their roof; what is fused into them goes away.
fn products_at_roof(place: &PlaceStats, share: f64) -> f64 {
    if kinds::is_weight_product(&place.name) { at_roof(place, share) } else { 0.0 }
}

/// The needed half of the attention GEMMs remains at its roof; a kernel that is already tiled remains unchanged.
fn needed_scores(place: &PlaceStats, share: f64) -> f64 {
    match place.name.as_str() {
        name if name.contains("flash") => place.time,
        name if name.starts_with("attention") => share * at_roof(place, share),
        _ => 0.0,
    }
}

fn is_optimizer(place: &PlaceStats) -> bool {
    place.phase == "optimizer"
}

fn is_norm(place: &PlaceStats) -> bool {
    kinds::is_norm(&place.name) && !is_optimizer(place)
}

/// Norms, and the residual sums that feed them.
fn is_norm_or_sum(place: &PlaceStats) -> bool {
    is_norm(place) || (place.name == "add" && !is_optimizer(place))
}

/// Scores and their softmax; the rotation has its own pass.
fn is_scores(place: &PlaceStats) -> bool {
    kinds::is_attention(&place.role) && !kinds::is_rotation(&place.name)
}

const PASS_EFFECTS: [PassEffect; 8] = [
    PassEffect::new(
        "fuse-qkv",
        "q, k and v projections are separate GEMMs",
        |place| kinds::is_qkv(&place.role),
        at_roof,
    ),
    PassEffect::new(
        "fuse-gate-up",
        "gate and up projections are separate GEMMs",
        |place| kinds::is_gate_up(&place.role),
        at_roof,
    ),
    PassEffect::new(
        "fuse-swiglu",
        "SiLU and the multiplication after it are separate kernels",
        |place| kinds::is_activation(&place.role),
        nothing,
    ),
    PassEffect::new("flash-attention", "attention writes its scores to memory", is_scores, needed_scores),
    PassEffect::new("fuse-rope", "RoPE is a separate kernel", |place| kinds::is_rotation(&place.name), nothing),
    PassEffect::new("fuse-norm", "residual sums and norms are separate kernels", is_norm_or_sum, at_roof),
    PassEffect::new("fuse-optimizer", "the optimizer runs one kernel per parameter", is_optimizer, at_roof),
    PassEffect::new(
        "fuse-loss",
        "the logits of all tokens are in memory at the same time",
        |place| kinds::is_loss(&place.role),
        products_at_roof,
    ),
];

/// Replaying the step as one graph saves the launch cost of its calls.
const GRAPH_REPLAY: &str = "graph-replay";

const TARGETS: usize = 8;
const NAMED: usize = 5;

pub fn bottlenecks(facts: &StepFacts) -> Bottlenecks {
    let names = |wanted: &dyn Fn(&PlaceStats) -> bool| -> Vec<String> {
        facts.places.iter().filter(|place| wanted(place)).take(NAMED).map(PlaceStats::label).collect()
    };
    Bottlenecks {
        top_cpu_time: names(&|_| true),
        top_cuda_time: if facts.has_gpu { names(&|_| true) } else { vec![] },
        memory_intensive: names(&|place| place.bound == Bound::MemoryBound),
        low_flops_utilization: names(&|place| place.bound == Bound::ComputeBound && place.percent_of_roof < 50.0),
        optimization_targets: targets(facts),
        categories: categories(facts),
    }
}

/// The places that lose the most time relative to their roof.
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

/// Seconds per step that a place could be reduced to, and its passes that are not applied yet: with those passes,
/// otherwise at its roof. No pass is named for an operator that only monitors the run.
pub fn target(place: &PlaceStats, facts: &StepFacts) -> (f64, Vec<String>) {
    let missing: Vec<&PassEffect> =
        PASS_EFFECTS.iter().filter(|effect| effect.shortens(place, facts) && facts.passes.lacks(effect.pass)).collect();
    let stays = |effect: &&PassEffect| place.time * effect.staying_share(place, facts.causal_share);
    let time = missing.iter().map(stays).fold(place.floor.min(place.time), f64::min);
    (time, missing.iter().map(|effect| effect.pass.to_string()).collect())
}

pub fn roofline_targets(facts: &StepFacts) -> Vec<RooflineTarget> {
    let target = |place: &PlaceStats| RooflineTarget {
        target: place.label(),
        reason: format!(
            "{:.1}% of the step, running at {:.0}% of its roofline limit ({})",
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
    format!("at most {:.1}% of the step ({:.2}×), if it ran at its roofline limit", 100.0 * saved / wall, wall / left)
}

fn priority(share: f64) -> &'static str {
    match Severity::of_share(share) {
        Severity::Critical | Severity::High => "high",
        Severity::Medium => "medium",
        Severity::Low => "low",
    }
}

fn remedy(place: &PlaceStats, passes: &Passes) -> String {
    let wanted: Vec<&str> =
        PASS_EFFECTS.iter().filter(|effect| (effect.touches)(place)).map(|effect| effect.pass).collect();
    passes.flag(&wanted).unwrap_or_else(|| {
        let words = match place.bound {
            Bound::ComputeBound => "larger GEMMs, a faster kernel, or lower precision",
            _ => "fuse with a neighbouring kernel, so that the data is read once",
        };
        words.into()
    })
}

/// A row of the workshop's table.
struct Row {
    category: &'static str,
    difficulty: &'static str,
    passes: &'static [&'static str],
    belongs: fn(&PlaceStats) -> bool,
    overlap: &'static str,
}

impl Row {
    const fn new(
        category: &'static str,
        difficulty: &'static str,
        passes: &'static [&'static str],
        belongs: fn(&PlaceStats) -> bool,
    ) -> Row {
        Row { category, difficulty, passes, belongs, overlap: "" }
    }
}

/// The workshop's six rows (launch and fragmentation are built separately), then three of ours.
const ROWS: [Row; 7] = [
    Row::new("QKV Projections", "Low-Medium", &["fuse-qkv"], |place| kinds::is_qkv(&place.role)),
    Row::new("Attention Computation", "Medium", &["flash-attention", "fuse-rope"], |place| {
        kinds::is_attention(&place.role)
    }),
    Row::new("SwiGLU Gate/Up", "Low", &["fuse-gate-up", "fuse-swiglu"], |place| {
        kinds::is_gate_up(&place.role) || kinds::is_activation(&place.role)
    }),
    Row {
        overlap: "; already included in the attention row",
        ..Row::new("Softmax Operations", "Medium-High", &["flash-attention"], |place| kinds::is_softmax(&place.name))
    },
    Row::new("Optimizer", "Low", &["fuse-optimizer"], is_optimizer),
    Row::new("Norms", "Medium", &["fuse-norm"], is_norm),
    Row::new("LM Head and Loss", "Medium", &["fuse-loss"], |place| kinds::is_loss(&place.role)),
];

/// A row's answer: a flag with the seconds that it saves at most, or the reason why no flag changes the row.
enum Remedy {
    Flag { flag: String, saved: f64 },
    NoFlag(&'static str),
}

/// Rows that a flag changes come first, by its saving; then the others by time, those that are not about time last.
fn categories(facts: &StepFacts) -> Vec<BottleneckCategory> {
    let mut rows: Vec<BottleneckCategory> = ROWS.iter().map(|row| judged(row, facts)).collect();
    rows.push(launch_overhead(facts));
    rows.push(fragmentation(facts));
    rows.sort_by(|left, right| {
        let key = |row: &BottleneckCategory| (!row.has_remedy(), row.percent_of_time.is_none());
        // The speed-up grows with the saving, and is `None` for all rows or for none with the same key.
        let speedup = |row: &BottleneckCategory| row.speedup_at_most.unwrap_or(1.0);
        let time = |row: &BottleneckCategory| row.percent_of_time.unwrap_or(0.0);
        let by_speedup = speedup(right).total_cmp(&speedup(left));
        key(left).cmp(&key(right)).then(by_speedup).then(time(right).total_cmp(&time(left)))
    });
    (1..).zip(rows).map(|(priority_rank, row)| BottleneckCategory { priority_rank, ..row }).collect()
}

fn judged(row: &Row, facts: &StepFacts) -> BottleneckCategory {
    let needed = |place: &&PlaceStats| !facts.instrumentation.contains(&place.name);
    let own: Vec<&PlaceStats> = facts.places.iter().filter(needed).filter(|place| (row.belongs)(place)).collect();
    let time: f64 = own.iter().fold(0.0, |sum, place| sum + place.time);
    // Counts only places that the missing passes affect and that belong to this row.
    let missing = row.passes.iter().filter(|pass| facts.passes.lacks(pass)).filter_map(|pass| PassEffect::of(pass));
    let saved: f64 = missing
        .map(|effect| {
            let touched = own.iter().filter(|place| (effect.touches)(place));
            touched.map(|place| place.time * (1.0 - effect.staying_share(place, facts.causal_share))).sum::<f64>()
        })
        .fold(0.0, |sum, saved| sum + saved);
    let remedy = match facts.passes.flag(row.passes) {
        Some(flag) => Remedy::Flag { flag, saved },
        None if time == 0.0 => Remedy::NoFlag("nothing left to fuse"),
        None => Remedy::NoFlag("its passes are applied: the rest is time in the kernels themselves"),
    };
    let evidence = match remedy {
        Remedy::Flag { saved, .. } => {
            format!("{:.2} ms per step, of which at most {:.2} ms can be saved{}", time * 1e3, saved * 1e3, row.overlap)
        }
        Remedy::NoFlag(_) => format!("{:.2} ms per step, and no further pass applies{}", time * 1e3, row.overlap),
    };
    let made = category((row.category, row.difficulty), Some(time), remedy, evidence, facts);
    BottleneckCategory { passes: row.passes.iter().map(|pass| pass.to_string()).collect(), ..made }
}

fn launch_overhead(facts: &StepFacts) -> BottleneckCategory {
    let saved = facts.launch_seconds;
    // A replayed graph saves launches, which only a GPU has.
    let remedy = match facts.passes.flag(&[GRAPH_REPLAY]).filter(|_| facts.has_gpu) {
        Some(flag) => Remedy::Flag { flag, saved },
        None => Remedy::NoFlag("fewer, larger kernels: every fusion removes some"),
    };
    let evidence = format!("{:.2} ms per step between calls and in launching them", saved * 1e3);
    let row = category(("Kernel Launch Overhead", "Medium-High"), Some(saved), remedy, evidence, facts);
    BottleneckCategory { passes: vec![GRAPH_REPLAY.into()], ..row }
}

fn fragmentation(facts: &StepFacts) -> BottleneckCategory {
    let evidence = format!(
        "{:.2}% of the arena is unused space between buffers; it costs memory, not time",
        facts.fragmentation_percent
    );
    let remedy = Remedy::NoFlag("nothing to do: buffers are placed before the run");
    category(("Memory Fragmentation", "Medium"), None, remedy, evidence, facts)
}

/// The row of a category. Its impact follows from the saving. Its effort follows from the remedy: a flag is typed at
/// once, however hard the same is to write by hand, which is the difficulty.
fn category(
    (name, difficulty): (&str, &str),
    seconds: Option<f64>,
    remedy: Remedy,
    evidence: String,
    facts: &StepFacts,
) -> BottleneckCategory {
    let wall = facts.breakdown.wall;
    let (effort, saved, remedy) = match remedy {
        Remedy::Flag { flag, saved } => (Level::Low, Some(saved), flag),
        Remedy::NoFlag(reason) => (Level::High, None, reason.into()),
    };
    BottleneckCategory {
        category: name.into(),
        percent_of_time: seconds.map(|seconds| 100.0 * seconds / wall),
        difficulty: difficulty.into(),
        effort,
        speedup_at_most: saved.map(|saved| wall / (wall - saved).max(f64::MIN_POSITIVE)),
        impact: if saved.is_some_and(|saved| saved / wall >= HIGH_IMPACT.get()) { Level::High } else { Level::Low },
        priority_rank: 0,
        remedy,
        passes: vec![],
        evidence,
    }
}

#[cfg(test)]
#[path = "passes_tests.rs"]
mod tests;
