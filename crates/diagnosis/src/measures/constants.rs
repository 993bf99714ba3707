//! Tensors that depend only on sizes but are rebuilt in every step.

use std::collections::{BTreeMap, BTreeSet};

use headroom_trace::NONE;
use serde::Serialize;

use super::intervals::{Span, seconds};
use super::python::{frame_name, user_frame};
use super::roles::Role;
use super::view::View;

/// One constant: the operators that build it, from the factory to the last change.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Rebuilt {
    /// `aten::ones, aten::triu, aten::to`.
    pub operators: Vec<String>,
    pub size: String,
    pub function: Option<String>,
    pub through: Option<String>,
    pub per_step: f64,
    pub host_seconds: f64,
    pub share_of_steps: f64,
    #[serde(skip)]
    pub first: i64,
    #[serde(skip)]
    pub spans: Vec<Span>,
    /// Kernels and copies that build it.
    #[serde(skip)]
    pub device: Vec<usize>,
}

/// Operators, size and function.
type Key = (Vec<String>, String, Option<String>);

pub fn rebuilt_constants(view: &View) -> Vec<Rebuilt> {
    let host = &view.trace.host;
    let elsewhere = not_the_models_own(view);
    let mut found: BTreeMap<Key, (Rebuilt, Vec<bool>, i64)> = BTreeMap::new();
    for at in view.host_spans_named(|name| Role::Factory.is_of(name) || matches!(name, "aten::triu" | "aten::tril")) {
        let span = view.host_span(at);
        let Some(step) = view.steps.at_host(span.start) else { continue };
        if !view.is_operator(at) || !view.is_outermost(at) {
            continue;
        }
        let is_shaper = matches!(view.host_name(at), "aten::triu" | "aten::tril");
        if elsewhere.iter().any(|set| super::intervals::covered(set, span) > 0) || view.forward_of(at).is_some() {
            continue;
        }
        let stack = view.python_stack(at);
        let (function, through) = user_frame(view, &stack);
        // Built by the user's own call, not somewhere inside torch; without stacks this is unknown.
        let is_users = through.is_none_or(|at| view.host_name(at).starts_with("<built-in"));
        if (!stack.is_empty() && (function.is_none() || !is_users)) || (is_shaper && follows_a_factory(view, at)) {
            continue;
        }
        let chain = chain(view, at);
        let nanos: i64 = chain.iter().map(|&at| host.duration[at]).sum();
        let names: Vec<String> = chain.iter().map(|&at| view.host_name(at).to_string()).collect();
        let function = function.map(|at| frame_name(view.host_name(at)));
        let (entry, steps, total) = found.entry((names, size(view, at), function)).or_insert_with(|| {
            let through = through.map(|at| frame_name(view.host_name(at)));
            (Rebuilt { through, first: span.start, ..Rebuilt::default() }, vec![false; view.steps.list.len()], 0)
        });
        entry.per_step += 1.0;
        entry.spans.extend(chain.iter().map(|&at| view.host_span(at)));
        entry.first = entry.first.min(span.start);
        steps[step] = true;
        *total += nanos;
    }
    let each_step = found.into_iter().filter(|(_, (_, steps, _))| steps.len() > 1 && steps.iter().all(|seen| *seen));
    let mut rebuilt: Vec<Rebuilt> = each_step
        .map(|((operators, size, function), (entry, _, nanos))| Rebuilt {
            operators,
            size,
            function,
            per_step: entry.per_step / view.steps.count(),
            host_seconds: seconds(nanos),
            share_of_steps: view.steps.share(nanos),
            ..entry
        })
        .collect();
    add_device(view, &mut rebuilt);
    rebuilt.sort_by(|left, right| right.host_seconds.total_cmp(&left.host_seconds).then(left.first.cmp(&right.first)));
    rebuilt
}

/// Adds each constant's device work, which for a large one takes longer than the host's.
fn add_device(view: &View, rebuilt: &mut [Rebuilt]) {
    let (host, device) = (&view.trace.host, &view.trace.device);
    if rebuilt.is_empty() {
        return;
    }
    let ordered = device.busy().filter(|&at| view.call_of[at] != NONE);
    let mut ordered: Vec<(i64, usize)> = ordered.map(|at| (host.start[view.call_of[at] as usize], at)).collect();
    ordered.sort_unstable();
    for constant in rebuilt {
        for span in &constant.spans {
            let from = ordered.partition_point(|(time, _)| *time < span.start);
            let inside = ordered[from..].iter().take_while(|(time, _)| *time < span.end);
            constant.device.extend(inside.map(|(_, at)| *at));
        }
        let nanos = view.device_nanos(&constant.device);
        constant.share_of_steps = constant.share_of_steps.max(view.steps.share(nanos));
    }
}

/// Spans of the optimizer and of the loader, whose constants are not the model's.
fn not_the_models_own(view: &View) -> [Vec<Span>; 2] {
    let optimizer = view.time_named(|name| name.starts_with("Optimizer."));
    [optimizer, super::data_loading::loading_spans(view)]
}

/// Outermost operators on the thread after `at`, in order, within the same user function.
fn following<'v>(view: &'v View, at: usize) -> impl Iterator<Item = usize> + 'v {
    let host = &view.trace.host;
    let frame = user_frame(view, &view.python_stack(at)).0;
    (at + 1..host.len())
        .take_while(move |&next| host.track[next] == host.track[at])
        .filter(|&next| view.is_operator(next) && view.is_outermost(next))
        .take_while(move |&next| user_frame(view, &view.python_stack(next)).0 == frame)
}

fn chain(view: &View, at: usize) -> Vec<usize> {
    let host = &view.trace.host;
    // The sizes passed to the factory; for a row of numbers, the length that the next operator gets.
    let mut sizes: BTreeSet<u64> = numbers(view.name(host.concrete[at])).chain([1]).collect();
    let mut chain = vec![at];
    for next in following(view, at).take(12) {
        let given: Vec<u64> = view.shapes(next).concat();
        let is_alike = || given.iter().all(|size| sizes.contains(size)) && !given.is_empty();
        let is_row = || chain.len() == 1 && matches!(view.shapes(next).as_slice(), [row, ..] if row.len() == 1);
        let name = view.host_name(next);
        if !Role::Shaper.is_of(name) && !(Role::Arithmetic.is_of(name) && (is_alike() || is_row())) {
            break;
        }
        sizes.extend(given);
        chain.push(next);
    }
    chain
}

/// The integers in a text.
fn numbers(text: &str) -> impl Iterator<Item = u64> + '_ {
    text.split(|letter: char| !letter.is_ascii_digit()).filter_map(|part| part.parse().ok())
}

/// Whether the previous outermost operator in the same function began a chain that continues to it.
fn follows_a_factory(view: &View, at: usize) -> bool {
    let host = &view.trace.host;
    (0..at)
        .rev()
        .take_while(|&before| host.track[before] == host.track[at])
        .filter(|&before| view.is_operator(before) && view.is_outermost(before))
        .take_while(|&before| Role::Shaper.is_of(view.host_name(before)) || Role::Factory.is_of(view.host_name(before)))
        .take(8)
        .any(|before| Role::Factory.is_of(view.host_name(before)))
}

/// The requested size, as given in the call; otherwise the input's.
fn size(view: &View, at: usize) -> String {
    let host = &view.trace.host;
    let concrete = view.concrete(at);
    let number = |place: usize| concrete.get(place)?.parse::<i64>().ok();
    // With a start there is one more input; without, a type follows the end.
    let has_start = view.host_name(at) == "aten::arange" && concrete.len() > 5;
    if let Some((start, end)) = number(0).zip(number(1)).filter(|_| has_start) {
        return end.saturating_sub(start).to_string();
    }
    let given = concrete.into_iter().find(|text| !text.is_empty());
    given.unwrap_or_else(|| view.name(host.dims[at]).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};

    /// The size of the constant that two steps build by `aten::arange` with these inputs.
    fn size_of(inputs: &str) -> String {
        let mut made = Fabricated::on("NVIDIA H200");
        for step in 0..2 {
            let begin = 1_000 * step * MICRO;
            made.step(step as u32 + 1, begin, begin + 1_000 * MICRO);
            let inputs = format!(r#""Concrete Inputs":[{inputs}],"Input Dims":[[],[]]"#);
            made.span("cpu_op", "aten::arange", 1, begin + 10 * MICRO, begin + 40 * MICRO, &inputs);
            made.launch((begin + 20 * MICRO, begin + 25 * MICRO), "arange", (begin + 30 * MICRO, begin + 35 * MICRO));
        }
        let trace = made.trace();
        let found = rebuilt_constants(&View::new(&trace));
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].size.clone()
    }

    #[test]
    fn a_range_is_as_large_as_from_its_start_to_its_end() {
        assert_eq!(size_of(r#""0","64","4","","","False""#), "64");
        assert_eq!(size_of(r#""16","64","","","cuda","False""#), "48");
        assert_eq!(size_of(r#""64","4","","","False""#), "64", "the type follows the end");
    }
}
