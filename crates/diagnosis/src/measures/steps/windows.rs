//! Where the host was at each step: marks, annotations, the optimizer's spans, the period of the work, or the whole
//! trace.

use std::collections::{BTreeMap, HashMap, HashSet};

use headroom_trace::{Category, NONE, NameId, Trace};

use super::{FoundBy, Step, is_fetch, step};
use crate::measures::intervals::Span;

pub fn host_windows(trace: &Trace, call_of: &[u32], parent: &[u32], busy: &[Span]) -> (FoundBy, Vec<Step>) {
    let host = &trace.host;
    let of = |at: usize| Span { start: host.start[at], end: host.end(at) };
    let named = |wanted: &dyn Fn(&str) -> bool| -> Vec<usize> {
        let matches: Vec<bool> = trace.names.iter().map(|(_, name)| wanted(name)).collect();
        (0..host.len()).filter(|&at| matches[host.name[at].index()]).collect()
    };
    let mut marks: Vec<usize> = named(&|name| name.starts_with("ProfilerStep"));
    marks.retain(|&at| host.category[at] == Category::UserAnnotation);
    marks.sort_by_key(|&at| host.start[at]);
    // The last mark of some traces is meant to be dropped: nothing happens in it.
    let works = |&at: &usize| {
        let span = of(at);
        (0..host.len()).any(|other| {
            matches!(host.category[other], Category::CpuOp | Category::Runtime)
                && host.start[other] >= span.start
                && host.start[other] < span.end
        })
    };
    if marks.len() > 1 && marks.last().is_some_and(|last| !works(last)) {
        marks.pop();
    }
    let steps_of = |marks: &[usize]| -> Vec<Step> {
        marks.iter().map(|&at| step(trace.name(host.name[at]).to_string(), of(at))).collect()
    };
    if !marks.is_empty() {
        return (FoundBy::ProfilerMarks, steps_of(&marks));
    }
    if let Some(annotations) = annotated(trace) {
        return (FoundBy::Annotations, steps_of(&annotations));
    }
    let whole = whole_trace(trace, busy);
    let mut optimizers = named(&|name| name.starts_with("Optimizer.step#"));
    optimizers.retain(|&at| host.category[at] == Category::UserAnnotation);
    if optimizers.is_empty() {
        optimizers = named(&|name| name.contains("torch/optim/") && name.ends_with(": step"));
    }
    if let Some(ends) = ends_of_the_commonest(trace, &optimizers) {
        return (FoundBy::OptimizerSpans, between(&ends, whole.start));
    }
    if let Some(starts) = period(trace, call_of, parent) {
        let list = starts.windows(2).enumerate();
        let list = list.map(|(at, pair)| step(format!("step {at}"), Span { start: pair[0], end: pair[1] })).collect();
        return (FoundBy::Period, list);
    }
    (FoundBy::WholeTrace, vec![step("whole trace".into(), whole)])
}

/// Prefixes of annotations that frameworks put around a step: vLLM, SGLang, Lightning, and common hand-written ones.
const STEP_ANNOTATIONS: &[&str] = &[
    "execute_",
    "step[",
    "[pl][profile]run_training_batch",
    "train_step",
    "training_step",
    "run_batch",
    "train_batch",
];

/// How many of these, from the first, belong to inference servers.
const SERVED: usize = 2;

/// The annotations that mark steps: recognised by name, on one thread, not overlapping. The family with the most time
/// wins.
fn annotated(trace: &Trace) -> Option<Vec<usize>> {
    let host = &trace.host;
    let family: Vec<Option<usize>> =
        trace.names.iter().map(|(_, name)| STEP_ANNOTATIONS.iter().position(|start| name.starts_with(start))).collect();
    let mut families: BTreeMap<(u32, usize), Vec<usize>> = BTreeMap::new();
    for at in (0..host.len()).filter(|&at| host.category[at] == Category::UserAnnotation) {
        if let Some(family) = family[host.name[at].index()] {
            families.entry((host.track[at].0, family)).or_default().push(at);
        }
    }
    // On one thread, spans are in order of start.
    let are_apart = |spans: &[usize]| spans.windows(2).all(|pair| host.end(pair[0]) <= host.start[pair[1]]);
    let nanos = |spans: &[usize]| spans.iter().map(|&at| host.duration[at]).sum::<i64>();
    // A single step of a server may be all that was recorded; a single other annotation may be anything.
    let enough = |family: usize, spans: &[usize]| spans.len() >= if family < SERVED { 1 } else { 2 };
    let families = families.into_iter().filter(|((_, family), spans)| enough(*family, spans) && are_apart(spans));
    families.map(|(_, spans)| spans).max_by_key(|spans| nanos(spans))
}

fn whole_trace(trace: &Trace, busy: &[Span]) -> Span {
    let host = &trace.host;
    let working = (0..host.len()).filter(|&at| !matches!(host.category[at], Category::Other | Category::Overhead));
    let mut span = Span { start: i64::MAX, end: i64::MIN };
    for at in working {
        span.start = span.start.min(host.start[at]);
        span.end = span.end.max(host.end(at));
    }
    if let (Some(first), Some(last)) = (busy.first(), busy.last()) {
        span.start = span.start.min(first.start);
        span.end = span.end.max(last.end);
    }
    if span.start > span.end { Span { start: 0, end: 0 } } else { span }
}

/// The ends of the spans with the most frequent name, if there are at least two.
fn ends_of_the_commonest(trace: &Trace, spans: &[usize]) -> Option<Vec<i64>> {
    let host = &trace.host;
    let mut counts: HashMap<NameId, usize> = HashMap::new();
    spans.iter().for_each(|&at| *counts.entry(host.name[at]).or_default() += 1);
    let (commonest, _) = counts.into_iter().max_by_key(|&(name, count)| (count, name))?;
    let mut ends: Vec<i64> = spans.iter().filter(|&&at| host.name[at] == commonest).map(|&at| host.end(at)).collect();
    ends.sort_unstable();
    (ends.len() >= 2).then_some(ends)
}

/// A step ends with the optimizer. The time before the first end is a step if it is not much shorter than one; if it is
/// much longer, it contains a cold start, or is not a step ([`drop_overlong`]).
fn between(ends: &[i64], trace_start: i64) -> Vec<Step> {
    let mut lengths: Vec<i64> = ends.windows(2).map(|pair| pair[1] - pair[0]).collect();
    lengths.sort_unstable();
    let median = lengths[lengths.len() / 2];
    let first = ends[0] - trace_start;
    let mut bounds = ends.to_vec();
    if first * 2 > median {
        bounds.insert(0, trace_start);
    }
    let pairs = bounds.windows(2).enumerate();
    pairs.map(|(at, pair)| step(format!("step {at}"), Span { start: pair[0], end: pair[1] })).collect()
}

/// Removes a first window that is at least twice as long as the steps after it.
pub fn drop_overlong(steps: &mut Vec<Step>) {
    let mut lengths: Vec<i64> = steps.iter().skip(1).map(|step| step.span.nanos()).collect();
    lengths.sort_unstable();
    let median = lengths.get(lengths.len() / 2).copied();
    if median.is_some_and(|median| steps[0].span.nanos() >= 2 * median) {
        steps.remove(0);
    }
}

/// A piece of work: its start, its name, and the host span that launched it or is it.
type Piece = (i64, NameId, u32);

/// Times at which the same sequence of work begins again: of kernels if there are any, otherwise of operators. The
/// layers of a model also repeat, but are not steps.
fn period(trace: &Trace, call_of: &[u32], parent: &[u32]) -> Option<Vec<i64>> {
    let (device, host) = (&trace.device, &trace.host);
    let mut work: Vec<Piece> = if device.is_empty() {
        let is_operator = |&at: &usize| host.category[at] == Category::CpuOp;
        (0..host.len()).filter(is_operator).map(|at| (host.start[at], host.name[at], at as u32)).collect()
    } else {
        device.busy().map(|at| (device.start[at], device.name[at], call_of[at])).collect()
    };
    work.sort_unstable();
    let mut places: Vec<Vec<u32>> = vec![Vec::new(); trace.names.count()];
    for (index, (_, name, _)) in work.iter().enumerate() {
        places[name.index()].push(index as u32);
    }
    // The rarest name that occurs at least three times marks the step, if it occurs evenly and the rest with it.
    let mut candidates: Vec<&Vec<u32>> = places.iter().filter(|places| places.len() >= 3).collect();
    candidates.sort_by_key(|places| (places.len(), places[0]));
    candidates.iter().take(20).find_map(|places| {
        let period = (places[1] - places[0]) as usize;
        let even = places.windows(2).all(|pair| ((pair[1] - pair[0]) as usize).abs_diff(period) * 20 <= period);
        let compared = work.len().saturating_sub(period);
        let alike = (0..compared).filter(|&index| work[index].1 == work[index + period].1).count();
        let repeats = even && period >= 4 && alike * 10 >= compared * 8;
        (repeats && !are_layers(trace, parent, &work, places))
            .then(|| places.iter().map(|&index| work[index as usize].0).collect())
    })
}

/// Whether most repeats have a batch fetched for them, if fetches are recorded at all.
fn are_fetched_for(trace: &Trace, work: &[Piece], places: &[u32]) -> bool {
    let host = &trace.host;
    let are_fetches: Vec<bool> = trace.names.iter().map(|(_, name)| is_fetch(name)).collect();
    let mut fetches: Vec<i64> =
        (0..host.len()).filter(|&at| are_fetches[host.name[at].index()]).map(|at| host.start[at]).collect();
    fetches.sort_unstable();
    let ordered = |index: u32| match work[index as usize] {
        (time, _, NONE) => time,
        (_, _, call) => host.start[call as usize],
    };
    let fetched_until = |index: u32| fetches.partition_point(|time| *time <= ordered(index));
    let separated = places.windows(2).filter(|pair| fetched_until(pair[1]) > fetched_until(pair[0])).count();
    fetches.is_empty() || separated * 2 >= places.len() - 1
}

/// Whether the repeats are parts of one pass over a model: batches are fetched for several of them at once, something
/// follows the last that none of them contains (a head after the layers), or one module, operator or annotated forward
/// pass contains several of them.
fn are_layers(trace: &Trace, parent: &[u32], work: &[Piece], places: &[u32]) -> bool {
    let (first, last) = (places[0] as usize, places[places.len() - 1] as usize);
    let period = places[1] as usize - first;
    let inside: HashSet<NameId> = work[first..last].iter().map(|(_, name, _)| *name).collect();
    let after = &work[(last + period + period / 20).min(work.len())..];
    if after.iter().any(|(_, name, _)| !inside.contains(name)) {
        return true;
    }
    let host = &trace.host;
    if !are_fetched_for(trace, work, places) {
        return true;
    }
    let is_pass = |name: &str| name.starts_with("nn.Module: ") || name.to_ascii_lowercase().contains("forward");
    let is_pass: Vec<bool> = trace.names.iter().map(|(_, name)| is_pass(name)).collect();
    let holders = |index: u32| {
        let mut at = work[index as usize].2;
        // A graph of all layers is one call.
        let mut around = vec![at];
        while at != NONE && around.len() < 1_000 {
            let span = at as usize;
            if host.category[span] == Category::CpuOp || is_pass[host.name[span].index()] {
                around.push(at);
            }
            at = parent[span];
        }
        around
    };
    let (one, two) = (holders(places[0]), holders(places[1]));
    one.iter().any(|at| *at != NONE && two.contains(at))
}
