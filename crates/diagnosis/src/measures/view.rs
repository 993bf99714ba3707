//! A trace prepared for measuring: nesting of spans, which call queued what, and the forward operator of each backward.

use std::sync::OnceLock;

use headroom_trace::{CallKind, Category, HostSpans, NONE, NameId, Trace};
use serde_json::Value;

use super::cold::Cold;
use super::intervals::{Span, holds, merged};
use super::numbered::Numbered;
use super::steps::{Found, MeasuredOn, Steps, find_steps};
use crate::peaks::{self, Peaks};

pub struct View<'t> {
    pub trace: &'t Trace,
    /// The innermost span around each host span, or [`NONE`].
    pub parent: Vec<u32>,
    /// The host's call that queued each device span, or [`NONE`].
    pub call_of: Vec<u32>,
    /// Call kind of each name, if it is a runtime call.
    call_kinds: Vec<CallKind>,
    /// Forward operators by sequence number.
    forward: Numbered,
    /// Operators by external id, built on first use: for work that no operator launched.
    by_external: OnceLock<Numbered>,
    /// When any device was busy.
    pub busy: Vec<Span>,
    /// When the host did one-time setup while the device was idle.
    pub cold: Cold,
    pub steps: Steps,
}

impl<'t> View<'t> {
    pub fn new(trace: &'t Trace) -> View<'t> {
        View::with_steps(trace, None)
    }

    /// Views a replayed trace; `recorded_on` is the clock of its steps when it was recorded.
    pub fn played(trace: &'t Trace, recorded_on: MeasuredOn) -> View<'t> {
        View::with_steps(trace, Some(recorded_on))
    }

    fn with_steps(trace: &'t Trace, recorded_on: Option<MeasuredOn>) -> View<'t> {
        let call_kinds: Vec<CallKind> = trace.names.iter().map(|(_, name)| CallKind::of(name)).collect();
        let call_of = calls_of_device_spans(trace, &call_kinds);
        let device = &trace.device;
        let busy = merged(device.busy().map(|at| Span { start: device.start[at], end: device.end(at) }).collect());
        let parent = parents(&trace.host);
        let mut cold = Cold::find(trace, &call_kinds, &call_of, &parent, &busy);
        let steps =
            find_steps(trace, &Found { call_of: &call_of, parent: &parent, busy: &busy, cold: &cold, recorded_on });
        cold.forget_recurring_setup(&steps.list.iter().map(|step| step.span).collect::<Vec<_>>());
        View {
            trace,
            parent,
            call_of,
            call_kinds,
            forward: forward_operators(trace),
            by_external: OnceLock::new(),
            busy,
            cold,
            steps,
        }
    }

    pub fn name(&self, id: NameId) -> &'t str {
        self.trace.name(id)
    }

    pub fn host_name(&self, at: usize) -> &'t str {
        self.trace.name(self.trace.host.name[at])
    }

    pub fn host_span(&self, at: usize) -> Span {
        Span { start: self.trace.host.start[at], end: self.trace.host.end(at) }
    }

    pub fn device_span(&self, at: usize) -> Span {
        Span { start: self.trace.device.start[at], end: self.trace.device.end(at) }
    }

    pub fn has_device_work(&self) -> bool {
        !self.busy.is_empty()
    }

    /// Call kind of a host span, if it is a runtime call.
    pub fn call_kind(&self, at: usize) -> Option<CallKind> {
        (self.trace.host.category[at] == Category::Runtime).then(|| self.call_kinds[self.trace.host.name[at].index()])
    }

    /// The step in which a host span begins.
    pub fn step_of(&self, at: usize) -> Option<usize> {
        self.steps.at_host(self.trace.host.start[at])
    }

    pub fn is_operator(&self, at: usize) -> bool {
        self.trace.host.category[at] == Category::CpuOp
    }

    /// Whether no operator encloses a host span.
    pub fn is_outermost(&self, at: usize) -> bool {
        !self.ancestors(at).skip(1).any(|outer| self.is_operator(outer))
    }

    /// Whether a node of autograd's graph encloses a host span.
    pub fn is_in_graph_node(&self, at: usize) -> bool {
        self.ancestors(at).skip(1).any(|outer| is_backward_node(self.host_name(outer)))
    }

    /// The nodes of autograd's graph that backward passes ran in steps, each with its step. Nodes within another are left
    /// out: checkpoints run separate passes there, numbered by their own thread.
    pub fn graph_nodes(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let nodes = self.host_spans_named(is_backward_node).into_iter();
        nodes.filter_map(|at| Some((at, self.step_of(at)?))).filter(|(at, _)| !self.is_in_graph_node(*at))
    }

    /// Operators that begin in steps and whose name satisfies `is_wanted`.
    pub fn operators_named(&self, is_wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = usize> + '_ {
        let named = self.host_spans_named(is_wanted).into_iter();
        named.filter(|&at| self.is_operator(at) && self.step_of(at).is_some())
    }

    /// Sizes of an operator's inputs; lists of tensors and scalars are empty.
    pub fn shapes(&self, at: usize) -> Vec<Vec<u64>> {
        shapes(self.name(self.trace.host.dims[at]))
    }

    /// Types of an operator's inputs.
    pub fn types(&self, at: usize) -> Vec<String> {
        serde_json::from_str(self.name(self.trace.host.types[at])).unwrap_or_default()
    }

    /// An operator's inputs other than tensors, each at its place.
    pub fn concrete(&self, at: usize) -> Vec<String> {
        serde_json::from_str(self.name(self.trace.host.concrete[at])).unwrap_or_default()
    }

    /// The host's call that queued a device span, if it was recorded.
    pub fn call(&self, at: usize) -> Option<usize> {
        Some(self.call_of[at]).filter(|call| *call != NONE).map(|call| call as usize)
    }

    /// Device work with the calls that queued it.
    pub fn launched(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.trace.device.busy().filter_map(|at| Some((at, self.call(at)?)))
    }

    /// Device work that begins in the steps.
    pub fn in_steps(&self) -> impl Iterator<Item = usize> + '_ {
        let range = self.steps.range();
        self.trace.device.busy().filter(move |&at| (range.start..range.end).contains(&self.trace.device.start[at]))
    }

    /// Kernels that begin in the steps.
    pub fn kernels(&self) -> impl Iterator<Item = usize> + '_ {
        self.in_steps().filter(|&at| self.trace.device.category[at] == Category::Kernel)
    }

    pub fn device_nanos(&self, spans: &[usize]) -> i64 {
        spans.iter().map(|&at| self.trace.device.duration[at]).sum()
    }

    /// Peak rates of the first device, if they are known.
    pub fn part(&self) -> Option<&'static Peaks> {
        peaks::find(&self.trace.header.devices.first()?.name)
    }

    /// By host span: whether work that it queued is in the trace.
    pub fn arrived(&self) -> Vec<bool> {
        let mut arrived = vec![false; self.trace.host.len()];
        for &call in self.call_of.iter().filter(|call| **call != NONE) {
            arrived[call as usize] = true;
        }
        arrived
    }

    /// The span itself, then the enclosing spans, outwards; limited to the depth of any real stack.
    pub fn ancestors(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        let next = |at: &usize| Some(self.parent[*at]).filter(|parent| *parent != NONE).map(|parent| parent as usize);
        std::iter::successors(Some(at), next).take(MOST_LEVELS)
    }

    /// The span itself, then the spans of its thread that begin before its end.
    pub fn within(&self, at: usize) -> impl Iterator<Item = usize> + '_ {
        let host = &self.trace.host;
        (at..host.len())
            .take_while(move |&inner| host.track[inner] == host.track[at] && host.start[inner] < host.end(at))
    }

    /// Device work launched in one of these host spans, which are sorted and disjoint.
    pub fn ordered_in(&self, spans: &[Span]) -> Vec<usize> {
        let ordered = self.trace.device.busy().filter(|&at| self.call_of[at] != NONE);
        ordered.filter(|&at| holds(spans, self.trace.host.start[self.call_of[at] as usize])).collect()
    }

    /// Share of the multiprocessors that a device span's blocks fill; 1 if unknown.
    pub fn filled_share(&self, at: usize) -> f64 {
        let device = &self.trace.device;
        let multiprocessors = self.trace.header.devices.first().map_or(0, |device| u64::from(device.multiprocessors));
        let blocks = device.grid[at].iter().map(|&size| u64::from(size)).fold(1, u64::saturating_mul);
        match device.category[at] == Category::Kernel && blocks > 0 && multiprocessors > 0 {
            true => (blocks as f64 / multiprocessors as f64).min(1.0),
            false => 1.0,
        }
    }

    /// The innermost operator at or around a host span.
    pub fn operator_of(&self, at: usize) -> Option<usize> {
        self.ancestors(at).find(|&at| self.is_operator(at))
    }

    /// The operator that queued a device span; for the launch of a whole graph, the one that the span itself names.
    pub fn operator_of_device(&self, at: usize) -> Option<usize> {
        let queued = Some(self.call_of[at]).filter(|call| *call != NONE);
        queued.and_then(|call| self.operator_of(call as usize)).or_else(|| {
            let named = self.trace.device.external[at];
            self.by_external.get_or_init(|| operators_by_external(self.trace)).get(named)
        })
    }

    /// The forward operator whose gradient a host span computes, if it does.
    pub fn forward_of(&self, at: usize) -> Option<usize> {
        let node = self.ancestors(at).find(|&at| is_backward_node(self.host_name(at)))?;
        let sequence = self.trace.host.sequence[node];
        self.forward.get(sequence)
    }

    /// The modules around a host span, the outermost first, joined by dots; for a backward, those of its forward. Torch
    /// names a module by class and number, headroom by path.
    pub fn module_of(&self, at: usize) -> Option<String> {
        let mut stated = self.ancestors(at).filter_map(|at| self.trace.stated(at)).map(|stated| stated.module);
        let named = stated.find(|module| !module.is_none());
        if let Some(module) = named {
            return Some(self.name(module).to_string());
        }
        let at = self.forward_of(at).unwrap_or(at);
        let mut path: Vec<&str> =
            self.ancestors(at).filter_map(|at| self.host_name(at).strip_prefix("nn.Module: ")).collect();
        path.reverse();
        (!path.is_empty()).then(|| path.join("."))
    }

    /// The Python functions around a host span, the innermost first; for a backward, those of its forward.
    pub fn python_stack(&self, at: usize) -> Vec<usize> {
        let is_python = |&at: &usize| self.trace.host.category[at] == Category::PythonFunction;
        let own: Vec<usize> = self.ancestors(at).filter(is_python).collect();
        if !own.is_empty() {
            return own;
        }
        self.forward_of(at).map(|forward| self.ancestors(forward).filter(is_python).collect()).unwrap_or_default()
    }

    /// The result of `of` for each kernel name, by name id. Most names of a trace are shapes and functions, so it is
    /// called only for kernels.
    pub fn of_kernels<T: Clone + Default>(&self, of: impl Fn(&str) -> T) -> Vec<T> {
        let device = &self.trace.device;
        let mut known: Vec<Option<T>> = vec![None; self.trace.names.count()];
        for at in device.busy() {
            known[device.name[at].index()].get_or_insert_with(|| of(self.name(device.name[at])));
        }
        known.into_iter().map(Option::unwrap_or_default).collect()
    }

    /// The time in host spans whose name satisfies `is_wanted`.
    pub fn time_named(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<Span> {
        merged(self.host_spans_named(is_wanted).into_iter().map(|at| self.host_span(at)).collect())
    }

    /// Host spans whose name satisfies `is_wanted`, which is called once per name.
    pub fn host_spans_named(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<usize> {
        let wanted: Vec<bool> = self.trace.names.iter().map(|(_, name)| is_wanted(name)).collect();
        if !wanted.contains(&true) {
            return Vec::new();
        }
        (0..self.trace.host.len()).filter(|&at| wanted[self.trace.host.name[at].index()]).collect()
    }
}

/// `Input Dims` of each input; lists of tensors and scalars are empty.
pub fn shapes(text: &str) -> Vec<Vec<u64>> {
    let Ok(Value::Array(inputs)) = serde_json::from_str(text) else {
        return Vec::new();
    };
    let sizes = |input: &Value| -> Option<Vec<u64>> { input.as_array()?.iter().map(Value::as_u64).collect() };
    inputs.iter().map(|input| sizes(input).unwrap_or_default()).collect()
}

/// Python itself stops at 1,000 nested calls; scripts reach a tenth of that.
const MOST_LEVELS: usize = 1_000;

/// A node of autograd's graph, while it computes gradients.
pub fn is_backward_node(name: &str) -> bool {
    name.starts_with("autograd::engine::evaluate_function")
}

/// Finds the innermost enclosing span of each. Spans are sorted by track and start, the longer first, so a stack of
/// open ones is enough. An annotation may outlive the function that opened it; that function then does not enclose what
/// comes after its end. A span that ends before a later one encloses nothing that the later one does not enclose more
/// closely, so it leaves the stack: each span enters and leaves once.
fn parents(host: &HostSpans) -> Vec<u32> {
    let mut parents = Vec::with_capacity(host.len());
    let mut open: Vec<u32> = Vec::new();
    for at in 0..host.len() {
        let is_around = |other: u32| {
            let other = other as usize;
            host.track[other] == host.track[at] && host.end(other) > host.start[at] && host.end(other) >= host.end(at)
        };
        while open.last().is_some_and(|&top| !is_around(top)) {
            open.pop();
        }
        parents.push(open.last().copied().unwrap_or(NONE));
        open.push(at as u32);
    }
    parents
}

fn calls_of_device_spans(trace: &Trace, kinds: &[CallKind]) -> Vec<u32> {
    let host = &trace.host;
    // A runtime call and the driver call within it may share a number; the one that queues work counts, so it comes
    // last.
    let calls = |that_queue: bool| {
        let is_one = move |&at: &usize| {
            host.category[at] == Category::Runtime && kinds[host.name[at].index()].queues_work() == that_queue
        };
        (0..host.len()).filter(is_one).map(|at| (host.id[at], at))
    };
    let by_correlation = Numbered::new(calls(false).rev().chain(calls(true)));
    let call = |id: &u32| by_correlation.get(*id).map_or(NONE, |call| call as u32);
    trace.device.correlation.iter().map(call).collect()
}

fn operators_by_external(trace: &Trace) -> Numbered {
    let host = &trace.host;
    let operators = (0..host.len()).filter(|&at| host.category[at] == Category::CpuOp);
    Numbered::new(operators.map(|at| (host.id[at], at)))
}

fn forward_operators(trace: &Trace) -> Numbered {
    let host = &trace.host;
    let backward: Vec<bool> = trace
        .names
        .iter()
        .map(|(_, name)| is_backward_node(name) || name.contains("Backward") || name.contains("AccumulateGrad"))
        .collect();
    // Operators that need no gradient carry the number of the next one that does: the last one counts.
    let forward = (0..host.len()).filter(|&at| !backward[host.name[at].index()]);
    Numbered::new(forward.map(|at| (host.sequence[at], at)))
}
