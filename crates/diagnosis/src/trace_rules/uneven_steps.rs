//! TR118 uneven-steps: some steps take much longer than the others for the same work.

use std::collections::{BTreeMap, HashMap};

use headroom_trace::{Category, NONE, NameId};

use super::{percent, shown_time};
use crate::constants::breakdown::LONG_GAP_NANOS;
use crate::constants::tr118;
use crate::constants::uneven_steps::{FEWEST_STEPS, STEPS_FOR_A_RATE, USUAL_SPREAD};
use crate::finding::Confidence;
use crate::measures::data_loading::loading_spans;
use crate::measures::intervals::{Span, covered, gaps, seconds};
use crate::measures::launches::median;
use crate::measures::steps::FoundBy;
use crate::measures::trust::Verdict;
use crate::measures::view::View;
use crate::simulation::Removal;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR118",
    name: "uneven-steps",
    cause: Cause::UnevenSteps,
    page: include_str!("uneven_steps.md"),
    effort: Effort::Medium,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let (view, trust) = (evidence.view, evidence.trust);
    // Steps found by their period end where the work looks alike, so their lengths say nothing.
    let are_marked = !matches!(view.steps.found_by, FoundBy::Period | FoundBy::WholeTrace);
    if !are_marked || trust.withholds_idle() || trust.verdict == Verdict::Broken {
        return Vec::new();
    }
    let steps = &view.steps.list;
    // Waiting for a batch is reported by data-loading, whether even or not.
    let loading = loading_spans(view);
    let length = |index: usize| {
        let ordered = view.steps.ordered.get(index).copied().unwrap_or(steps[index].span);
        (steps[index].span.nanos() - covered(&loading, ordered)).max(0)
    };
    // The first step starts things up, which says nothing about the others.
    let later: Vec<usize> = (1..steps.len()).collect();
    if later.len() < FEWEST_STEPS.get() {
        return Vec::new();
    }
    let work = Work::new(view);
    let median = median(later.iter().map(|&index| length(index)).collect());
    let usual = |index: usize| (median * work.ratio(index)) as i64;
    let is_usual = |index: &&usize| {
        let usual = usual(**index);
        (length(**index) - usual).abs() as f64 <= USUAL_SPREAD.get() * usual as f64
    };
    if later.iter().filter(is_usual).count() * 2 < later.len() {
        return Vec::new();
    }
    let is_slow =
        |&index: &usize| length(index) as f64 > evidence.thresholds.of(&tr118::STEP_SPREAD) * usual(index) as f64;
    let slow: Vec<usize> = later.into_iter().filter(is_slow).collect();
    if slow.is_empty() {
        return Vec::new();
    }
    let share = view.steps.share(slow.iter().map(|&index| length(index) - usual(index)).sum());
    let is_single = slow.len() == 1 && steps.len() <= STEPS_FOR_A_RATE.get();
    let message = match is_single {
        true => format!(
            "one of {} steps takes {:.1} times as long as the others for the same work: a rare event, or one in so many",
            steps.len(),
            length(slow[0]) as f64 / usual(slow[0]).max(1) as f64
        ),
        false => format!(
            "{} of {} steps take over {:.1} times the median for the same work: {} of the total time",
            slow.len(),
            steps.len(),
            evidence.thresholds.of(&tr118::STEP_SPREAD),
            percent(share)
        ),
    };
    let reasons: Vec<Reason> = slow.iter().map(|&index| reason(view, index, length(index) - usual(index))).collect();
    let mut found = Found::new(Some(share).filter(|_| !is_single), message, reasons[0].advice());
    found.confidence = Confidence::Medium;
    found.evidence = slow
        .iter()
        .zip(&reasons)
        .take(3)
        .map(|(&index, reason)| {
            let (length, usual) = (shown_time(seconds(length(index))), shown_time(seconds(usual(index))));
            format!("{}: {length} instead of {usual}; {}", steps[index].name, reason.said())
        })
        .collect();
    let stops = slow.iter().flat_map(|&index| unusual_stops(view, index, length(index) - usual(index))).collect();
    found.removal = Removal { host: stops, ..Removal::default() };
    vec![found]
}

/// The work of each step: its kernels (without a device its operators), and the elements of the operators' inputs,
/// which grow with tokens and images.
struct Work {
    pieces: Vec<i64>,
    elements: Vec<i64>,
}

impl Work {
    fn new(view: &View) -> Work {
        let (host, device, steps) = (&view.trace.host, &view.trace.device, view.steps.list.len());
        let mut work = Work { pieces: vec![0; steps], elements: vec![0; steps] };
        let mut sizes: HashMap<NameId, i64> = HashMap::new();
        for at in (0..host.len()).filter(|&at| host.category[at] == Category::CpuOp) {
            let Some(step) = view.step_of(at).filter(|step| *step < steps) else { continue };
            let size = *sizes.entry(host.dims[at]).or_insert_with(|| {
                let elements = |shape: &Vec<u64>| shape.iter().map(|size| *size as f64).product::<f64>();
                view.shapes(at).iter().filter(|shape| !shape.is_empty()).map(elements).sum::<f64>() as i64
            });
            work.elements[step] = work.elements[step].saturating_add(size);
            work.pieces[step] += i64::from(!view.has_device_work());
        }
        for at in device.busy().filter(|&at| view.call_of[at] != NONE) {
            if let Some(step) = view.steps.at_host(host.start[view.call_of[at] as usize]).filter(|step| *step < steps) {
                work.pieces[step] += 1;
            }
        }
        work
    }

    /// How many times the usual work a step does; at least 1.
    fn ratio(&self, step: usize) -> f64 {
        let of = |counts: &[i64]| counts[step] as f64 / median(counts[1..].to_vec()).max(1.0);
        of(&self.pieces).max(of(&self.elements)).max(1.0)
    }
}

/// Why a step took longer than its work explains.
enum Reason {
    /// The device was busy for longer than usual, by these nanoseconds, with no more work.
    Device {
        here: i64,
        usual: i64,
    },
    /// A host span took longer than usual, without the spans inside it.
    Host {
        name: String,
        here: i64,
        usual: i64,
    },
    Unknown,
}

fn reason(view: &View, slow: usize, excess: i64) -> Reason {
    let busy: Vec<i64> = view.steps.list.iter().map(|step| covered(&view.busy, step.span)).collect();
    let usual = median(busy[1..].to_vec()) as i64;
    if (busy[slow] - usual) * 2 > excess {
        return Reason::Device { here: busy[slow], usual };
    }
    let most = view.steps.list[slow].span.nanos();
    let longest = own_times(view, slow).into_iter().max_by_key(|(_, (here, usual))| here - usual);
    match longest {
        Some((name, (here, usual))) if (here - usual) * 4 > excess => {
            Reason::Host { name: name.to_string(), here: here.min(most), usual }
        }
        _ => Reason::Unknown,
    }
}

/// By name: the time in this step and the mean over the others, without the time of the spans inside.
fn own_times<'t>(view: &View<'t>, slow: usize) -> BTreeMap<&'t str, (i64, i64)> {
    let host = &view.trace.host;
    let counts = |at: usize| {
        let kinds = [Category::CpuOp, Category::UserAnnotation, Category::PythonFunction, Category::Runtime];
        kinds.contains(&host.category[at]) && !view.host_name(at).starts_with("ProfilerStep")
    };
    let mut own: Vec<i64> = host.duration.clone();
    for at in (0..host.len()).filter(|&at| counts(at)) {
        if let Some(outer) = view.ancestors(at).skip(1).find(|&outer| counts(outer)) {
            own[outer] -= host.duration[at].min(host.end(outer) - host.start[at]);
        }
    }
    let others = (view.steps.list.len() - 1).max(1) as i64;
    let mut sums: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for at in (0..host.len()).filter(|&at| counts(at)) {
        let Some(step) = view.step_of(at) else { continue };
        let entry = sums.entry(view.host_name(at)).or_default();
        match step == slow {
            true => entry.0 += own[at].max(0),
            false => entry.1 += own[at].max(0) / others,
        }
    }
    sums
}

/// Words in the name of a span that say what a slow step did, and the advice for it.
const ADVICE: &[(&[&str], &str)] = &[
    (
        &["save", "serialization", "state_dict", "checkpoint"],
        "save checkpoints in another thread or process (torch.distributed.checkpoint.async_save), or less often",
    ),
    (&["eval", "valid"], "evaluate less often, or in another process"),
    (&["log", "tensorboard", "wandb", "print", "write"], "log less often, or from another thread"),
    (
        &["gc.collect", "gc: ", "garbage"],
        "collect garbage at fixed steps: gc.freeze() and gc.disable(), then gc.collect()",
    ),
    (
        &["compile", "inductor", "dynamo", "triton"],
        "avoid compiling again: keep shapes the same, or mark the dimensions that change (torch._dynamo.mark_dynamic)",
    ),
    (
        &["Malloc", "cudaFree", "hipFree", "empty_cache"],
        "keep shapes the same from step to step so that the allocator reuses its blocks, or set \
         PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    ),
    (&["nccl", "gloo", "c10d", "all_reduce", "allreduce"], "compare the ranks: this one waits for another"),
    (&["Synchronize", "aten::item", "_local_scalar_dense"], "see what these steps read back, and read it less often"),
];

impl Reason {
    fn said(&self) -> String {
        match self {
            Reason::Device { here, usual } => format!(
                "the device is busy for {}, elsewhere for {}",
                shown_time(seconds(*here)),
                shown_time(seconds(*usual))
            ),
            Reason::Host { name, here, usual } => format!(
                "`{name}` itself takes {} in this step, {} elsewhere",
                shown_time(seconds(*here)),
                shown_time(seconds(*usual))
            ),
            Reason::Unknown => "nothing recorded explains it".to_string(),
        }
    }

    fn advice(&self) -> &'static str {
        match self {
            Reason::Device { .. } => {
                "the same work takes the device longer: check its clocks, its temperature and other processes on it"
            }
            Reason::Host { name, .. } => {
                let known = ADVICE.iter().find(|(words, _)| words.iter().any(|word| name.contains(word)));
                known.map_or(
                    "see what the named function does in these steps, and do it less often or elsewhere",
                    |row| row.1,
                )
            }
            Reason::Unknown => {
                "record these steps with Python functions (with_stack=True, or headroom record) to see what the host does"
            }
        }
    }
}

/// Stalls of the device in a slow step that are too long for launches, the longest first, up to the step's excess over
/// the usual length: the other steps also have stalls.
fn unusual_stops(view: &View, slow: usize, mut excess: i64) -> Vec<Span> {
    let mut stops = gaps(&view.busy, view.steps.list[slow].span);
    stops.retain(|gap| gap.nanos() > LONG_GAP_NANOS.get());
    stops.sort_by_key(|stop| std::cmp::Reverse(stop.nanos()));
    for stop in &mut stops {
        stop.end = stop.end.min(stop.start + excess);
        excess -= stop.nanos();
    }
    stops.retain(|stop| stop.nanos() > 0);
    stops
}
