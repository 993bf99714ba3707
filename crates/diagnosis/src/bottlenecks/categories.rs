//! The workshop's table of bottlenecks, filled in from measured times and the machine's roofs.

use super::StepFacts;
use super::kinds::{is_attention, is_gate_up, is_loss, is_norm, is_optimizer, is_product, is_qkv, is_softmax};
use headroom_record::operators::{BottleneckCategory, Level, PlaceStats};

/// Of the step: below it, an impact is low.
const HIGH_IMPACT: f64 = 0.10;

pub fn categories(facts: &StepFacts) -> Vec<BottleneckCategory> {
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
            let (effort, remedy) = match facts.passes.flag(row.passes) {
                Some(flag) => (row.effort, flag),
                None if row.passes.is_empty() || time == 0.0 => (Level::High, "nothing left to fuse".into()),
                None => (Level::High, "its passes are applied: what is left is in the kernels themselves".into()),
            };
            let made = category(row.category, Some(time / wall), (row.difficulty, effort), &remedy, evidence);
            let passes = row.passes.iter().map(|pass| pass.to_string()).collect();
            (saved, with_gain(BottleneckCategory { passes, ..made }, saved, wall))
        })
        .collect();
    let launch = category(
        "Kernel Launch Overhead",
        Some(facts.launch_seconds / wall),
        ("Medium-High", Level::High),
        "fewer, larger kernels: every fusion takes some away",
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
        passes: vec![],
        evidence,
    }
}

fn with_gain(row: BottleneckCategory, saved: f64, wall: f64) -> BottleneckCategory {
    let impact = if saved / wall >= HIGH_IMPACT { Level::High } else { Level::Low };
    BottleneckCategory { speedup_at_most: Some(wall / (wall - saved).max(f64::MIN_POSITIVE)), impact, ..row }
}

struct Row {
    category: &'static str,
    difficulty: &'static str,
    effort: Level,
    passes: &'static [&'static str],
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
        passes: &["fuse-qkv"],
        belongs: is_qkv,
        stays: at_roof,
        overlap: "",
    },
    Row {
        category: "Attention Computation",
        difficulty: "Medium",
        effort: Level::Low,
        passes: &["flash-attention"],
        belongs: is_attention,
        stays: needed_scores,
        overlap: "",
    },
    Row {
        category: "SwiGLU Gate/Up",
        difficulty: "Low",
        effort: Level::Low,
        passes: &["fuse-gate-up", "fuse-swiglu"],
        belongs: is_gate_up,
        stays: products_at_roof,
        overlap: "",
    },
    Row {
        category: "Softmax Operations",
        difficulty: "Medium-High",
        effort: Level::High,
        passes: &["flash-attention"],
        belongs: is_softmax,
        stays: nothing,
        overlap: "; part of the attention row, not to be added to it",
    },
    Row {
        category: "Optimizer",
        difficulty: "Low",
        effort: Level::Low,
        passes: &["fuse-optimizer"],
        belongs: is_optimizer,
        stays: at_roof,
        overlap: "",
    },
    Row {
        category: "Norms",
        difficulty: "Medium",
        effort: Level::High,
        passes: &["fuse-norm"],
        belongs: is_norm,
        stays: at_roof,
        overlap: "",
    },
    Row {
        category: "LM Head and Loss",
        difficulty: "Medium",
        effort: Level::High,
        passes: &["fuse-loss"],
        belongs: is_loss,
        stays: products_at_roof,
        overlap: "",
    },
];
