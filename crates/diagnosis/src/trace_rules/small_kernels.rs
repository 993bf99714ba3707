//! TR108 small-kernels-fusable: runs of short element-wise kernels that a compiler would fuse.

use super::{percent, shown_time};
use crate::constants::small_kernels::{LEFT_OF_HELD, LEFT_OF_LOOPS};
use crate::constants::tr108;
use crate::finding::Confidence;
use crate::measures::intervals::Span;
use crate::simulation::Removal;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR108",
    name: "small-kernels-fusable",
    cause: Cause::SmallKernels,
    page: include_str!("small_kernels.md"),
    effort: Effort::Medium,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    runs(evidence).into_iter().chain(loops(evidence)).collect()
}

/// The same short kernels in every iteration, replayed from a graph: one call for all parts could replace the loop.
fn loops(evidence: &Evidence) -> Option<Found> {
    let (repeats, view) = (&evidence.measures.patterns.repeats, evidence.view);
    let duration = &view.trace.device.duration;
    let beside: i64 = repeats.beside_products.iter().map(|&at| duration[at]).sum();
    let saved = (1.0 - LEFT_OF_LOOPS.get()) * (repeats.nanos - beside) as f64 + (beside + repeats.gap_nanos) as f64;
    let share = view.steps.share(saved as i64);
    if share < evidence.thresholds.of(&tr108::LOOPS_SHARE) {
        return None;
    }
    let steps = view.steps.count();
    let message = format!(
        "a loop on the device: {:.0} times per step the same {} short kernel(s) run {} times in a row, {} of \
         the step; one call can replace it if no iteration needs the previous result",
        repeats.loops_per_step,
        repeats.kernels_per_round,
        repeats.rounds,
        percent(view.steps.share(repeats.nanos + repeats.gap_nanos))
    );
    let advice = "one GEMM and one attention call for all heads, experts or groups (a batch dimension, \
                  torch.bmm, grouped convolutions, torch.vmap) instead of a Python loop over modules";
    let mut found = Found::new(Some(share), message, advice);
    found.confidence = Confidence::Medium;
    found.on_device = true;
    found.evidence = vec![format!(
        "{:.0} kernels per step, {} in them and {} between them",
        repeats.kernels.len() as f64 / steps,
        shown_time(repeats.nanos as f64 / 1e9 / steps),
        shown_time(repeats.gap_nanos as f64 / 1e9 / steps)
    )];
    let left = |at: usize| (at, (LEFT_OF_LOOPS.get() * duration[at] as f64) as i64);
    found.removal.device = repeats.kernels.iter().map(|&at| (at, 0)).collect();
    let gone = repeats.beside_products.iter().map(|&at| (at, 0));
    found.expected = Some(Removal {
        device: repeats.kernels.iter().map(|&at| left(at)).chain(gone).collect(),
        graph_gaps: 1.0,
        ..Removal::default()
    });
    Some(found)
}

fn runs(evidence: &Evidence) -> Vec<Found> {
    let small = &evidence.measures.patterns.small_kernels;
    let kernels = evidence.measures.kernels.per_step.max(1.0);
    let held = &small.held_between;
    let share_of_held = evidence.view.steps.share(((1.0 - LEFT_OF_HELD.get()) * held.nanos as f64) as i64);
    let share = small.share_of_steps + share_of_held;
    let are_few = small.kernels_per_step < evidence.thresholds.of(&tr108::KERNELS_SHARE) * kernels
        && share_of_held < evidence.thresholds.of(&tr108::SMALL_KERNELS_SHARE);
    if share < evidence.thresholds.of(&tr108::SMALL_KERNELS_SHARE) || are_few {
        return Vec::new();
    }
    if evidence.trust.withheld.contains(&"operators") {
        return Vec::new();
    }
    let message = format!(
        "element-wise work is not fused: it takes {} of device time, {:.0} of {kernels:.0} kernels per step are \
         in runs that one kernel each could replace, and the runs take {} of the step beyond their longest \
         kernels",
        percent(small.elementwise_share_of_device),
        small.kernels_per_step,
        percent(small.share_of_steps)
    );
    let advice = match evidence.measures.compiled.is_most() {
        true => {
            "the step is compiled already: bring what runs between its regions into them (TORCH_LOGS=graph_breaks lists \
             the breaks), or use fused operators (norm, activation, optimizer)"
        }
        false => "torch.compile fuses them; or use fused operators (norm, activation, optimizer)",
    };
    let mut found = Found::new(Some(share), message, advice);
    found.confidence = Confidence::Medium;
    found.on_device = true;
    let steps = evidence.view.steps.count();
    found.evidence = vec![
        format!(
            "{:.0} runs of {:.1} kernels each per step",
            small.runs_per_step,
            small.kernels_per_step / small.runs_per_step.max(1.0)
        ),
        format!(
            "{} per step from start to end, {} of it in the kernels",
            shown_time(small.span_seconds / steps),
            shown_time(small.device_seconds / steps)
        ),
    ];
    // One kernel of each run remains, with its launch.
    let view = evidence.view;
    let launchers = small.beside_longest.iter().filter_map(|&at| view.operator_of_device(at));
    let host: Vec<Span> = launchers.map(|at| view.host_span(at)).chain(held.launchers.iter().copied()).collect();
    let gone = small.beside_longest.iter().map(|&at| (at, 0));
    let with_held = |left: f64| {
        let duration = &view.trace.device.duration;
        let held = held.kernels.iter().map(|&at| (at, (left * duration[at] as f64) as i64));
        Removal { host: host.clone(), device: gone.clone().chain(held).collect(), ..Removal::default() }
    };
    found.removal = with_held(0.0);
    if !held.kernels.is_empty() {
        found.expected = Some(with_held(LEFT_OF_HELD.get()));
        found.evidence.push(format!(
            "{} of the step computes results of up to {:.2} billion elements that are broadcast from small \
             tensors and then reduced: fused, or as a GEMM, they need not be in memory",
            percent(share_of_held),
            held.most_elements as f64 / 1e9
        ));
    }
    vec![found]
}
