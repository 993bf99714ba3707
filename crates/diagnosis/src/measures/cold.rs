//! A cold start inside the recording: one-time work on the first use of a device, a library or a kernel.
//!
//! A launch takes microseconds. The first launch of a kernel may load its code, the first operator of a library may
//! create its handle, and the first tensors may fill the allocator's pool; each takes milliseconds to seconds while the
//! device is idle. That says nothing about later steps, so it is detected, reported and left out.

use std::collections::{BTreeMap, HashMap, HashSet};

use headroom_trace::{CallKind, Category, NONE, NameId, Trace};

use super::intervals::{Span, covered, merged, without};
use super::roles::is_for_a_device;
use crate::constants::cold::{COLD_SHARE, FEWEST_LATER, LEAST_NANOS, TIMES_LATER};

#[derive(Clone, Debug, Default)]
pub struct Cold {
    /// When the host did such work while the device was idle.
    pub spans: Vec<Span>,
    /// The host spans that revealed it.
    found: Vec<(Span, usize)>,
}

impl Cold {
    /// `call_of` is the call that queued each device span, `parent` the span around each host span, `busy` the device's
    /// working time.
    pub fn find(trace: &Trace, kinds: &[CallKind], call_of: &[u32], parent: &[u32], busy: &[Span]) -> Cold {
        let host = &trace.host;
        let of = |at: usize| Span { start: host.start[at], end: host.end(at) };
        // Before any work, a free is the call that sets up the device; later it is the allocator's.
        let nothing_ran = |at: usize| busy.first().is_none_or(|first| host.start[at] < first.start);
        let is_compiler: Vec<bool> = trace.names.iter().map(|(_, name)| is_compilation(name)).collect();
        let mut calls: Vec<usize> = Vec::new();
        let mut first: Option<HashSet<u32>> = None;
        for at in (0..host.len()).filter(|&at| host.duration[at] >= LEAST_NANOS.get()) {
            let is_setup = match (host.category[at], kinds[host.name[at].index()]) {
                (Category::Runtime, CallKind::Launch | CallKind::GraphLaunch) => {
                    first.get_or_insert_with(|| first_launches(trace, call_of)).contains(&(at as u32))
                }
                (Category::Runtime, CallKind::Allocate | CallKind::Other) => true,
                (Category::Runtime, CallKind::Free) => nothing_ran(at),
                (Category::CpuOp | Category::UserAnnotation | Category::PythonFunction, _) => {
                    is_compiler[host.name[at].index()]
                }
                _ => false,
            };
            // A launch into a full queue takes as long, but then the device is busy throughout.
            if is_setup && covered(busy, of(at)) * 2 < host.duration[at] {
                calls.push(at);
            }
        }
        // An operator that mostly sets up does so between those calls as well: library handles, plans, autotuning.
        let mut within: HashMap<usize, i64> = HashMap::new();
        for &at in &calls {
            if let Some(operator) = operator_around(trace, parent, at) {
                *within.entry(operator).or_default() += host.duration[at];
            }
        }
        calls.extend(first_of_libraries(trace, busy));
        let mostly = within.into_iter().filter(|&(operator, nanos)| nanos * 4 >= host.duration[operator]);
        let found: Vec<(Span, usize)> = calls.iter().map(|&at| (of(at), at)).collect();
        let spans = found.iter().map(|(span, _)| *span).chain(mostly.map(|(operator, _)| of(operator)));
        let spans = spans.chain(captures(trace)).collect();
        Cold { spans: without(&merged(spans), busy), found }
    }

    /// Forgets setup that most of several steps do: it recurs, so it is not a start.
    pub fn forget_recurring_setup(&mut self, steps: &[Span]) {
        let is_much = |step: &Span| self.nanos_in(*step) as f64 >= COLD_SHARE.get() * step.nanos() as f64;
        if steps.len() >= 2 && steps.iter().filter(|step| is_much(step)).count() * 2 > steps.len() {
            *self = Cold::default();
        }
    }

    pub fn nanos_in(&self, window: Span) -> i64 {
        covered(&self.spans, window)
    }

    /// The calls that took longest inside `windows`, with their time.
    pub fn longest<'t>(&self, trace: &'t Trace, windows: &[Span]) -> Vec<(&'t str, i64)> {
        let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
        for (span, at) in &self.found {
            let inside: i64 = windows.iter().map(|window| window.overlap(*span)).sum();
            *sums.entry(trace.name(trace.host.name[*at])).or_default() += inside;
        }
        let mut rows: Vec<(&str, i64)> = sums.into_iter().filter(|(_, nanos)| *nanos > 0).collect();
        rows.sort_by_key(|(name, nanos)| (std::cmp::Reverse(*nanos), *name));
        rows.truncate(3);
        rows
    }
}

/// When a graph was being captured: such launches put nothing on the device.
pub fn captures(trace: &Trace) -> Vec<Span> {
    let host = &trace.host;
    let kind: Vec<Option<bool>> = trace
        .names
        .iter()
        .map(|(_, name)| match name {
            name if name.contains("StreamBeginCapture") => Some(true),
            name if name.contains("StreamEndCapture") => Some(false),
            _ => None,
        })
        .collect();
    let mut calls: Vec<(i64, bool)> = Vec::new();
    for at in (0..host.len()).filter(|&at| host.category[at] == Category::Runtime) {
        match kind[host.name[at].index()] {
            Some(true) => calls.push((host.start[at], true)),
            Some(false) => calls.push((host.end(at), false)),
            None => {}
        }
    }
    calls.sort_unstable();
    let pairs = calls.windows(2).filter(|pair| pair[0].1 && !pair[1].1);
    merged(pairs.map(|pair| Span { start: pair[0].0, end: pair[1].0 }).collect())
}

/// The calls that first launched each kernel.
fn first_launches(trace: &Trace, call_of: &[u32]) -> HashSet<u32> {
    let mut first: HashMap<NameId, u32> = HashMap::new();
    for at in trace.device.busy().filter(|&at| call_of[at] != NONE) {
        let call = call_of[at];
        let earliest = first.entry(trace.device.name[at]).or_insert(call);
        if trace.host.start[call as usize] < trace.host.start[*earliest as usize] {
            *earliest = call;
        }
    }
    first.into_values().collect()
}

/// The first operator of a library, which creates its handle before it launches: much longer than every later one.
fn first_of_libraries(trace: &Trace, busy: &[Span]) -> Vec<usize> {
    let host = &trace.host;
    let is_of_library: Vec<bool> = trace.names.iter().map(|(_, name)| calls_a_library(name)).collect();
    let mut by_name: HashMap<NameId, Vec<usize>> = HashMap::new();
    for at in (0..host.len()).filter(|&at| host.category[at] == Category::CpuOp) {
        if is_of_library[host.name[at].index()] {
            by_name.entry(host.name[at]).or_default().push(at);
        }
    }
    let launches = |at: usize| {
        let inside = (at + 1..host.len())
            .take_while(|&inner| host.track[inner] == host.track[at] && host.start[inner] < host.end(at));
        inside.into_iter().any(|inner| host.category[inner] == Category::Runtime)
    };
    // Profilers before Kineto recorded no launches; a device's own operators tell that there were some.
    let is_silent =
        !host.category.contains(&Category::Runtime) && trace.names.iter().any(|(_, name)| is_for_a_device(name));
    let first_one = |calls: Vec<usize>| {
        let first = calls.iter().copied().min_by_key(|&at| host.start[at])?;
        let later = calls.iter().filter(|&&at| at != first).map(|&at| host.duration[at]).max()?;
        let span = Span { start: host.start[first], end: host.end(first) };
        let is_long = span.nanos() >= LEAST_NANOS.get().max(TIMES_LATER.get() * later);
        let is_idle = covered(busy, span) * 2 < span.nanos();
        (calls.len() > FEWEST_LATER.get() && is_long && is_idle && (is_silent || launches(first))).then_some(first)
    };
    by_name.into_values().filter_map(first_one).collect()
}

/// Whether an operator works by a library that has a handle: for products, convolutions, transforms and solvers.
fn calls_a_library(name: &str) -> bool {
    let Some(plain) = name.strip_prefix("aten::") else { return false };
    ["mm", "conv", "matmul", "linear", "cudnn", "miopen", "fft", "linalg", "solve", "cholesky", "inverse"]
        .iter()
        .any(|word| plain.contains(word))
}

fn operator_around(trace: &Trace, parent: &[u32], at: usize) -> Option<usize> {
    let mut outer = parent[at];
    for _ in 0..1_000 {
        if outer == NONE {
            return None;
        }
        if trace.host.category[outer as usize] == Category::CpuOp {
            return Some(outer as usize);
        }
        outer = parent[outer as usize];
    }
    None
}

/// Whether a function is one in which torch.compile generates code.
fn is_compilation(name: &str) -> bool {
    name.contains("torch/_dynamo/convert_frame.py")
        && (name.ends_with(": _compile") || name.ends_with(": compile_inner"))
        || name.contains("torch/_inductor/compile_fx.py") && name.ends_with(": compile_fx_inner")
        || name.starts_with("_compile.compile_inner")
        || name.starts_with("compile_fx.<locals>")
}

#[cfg(test)]
mod tests {
    use crate::fabricated::{Fabricated, MICRO};
    use crate::measures::view::View;
    use crate::{Options, analyze};

    /// Operators of a name one after another: the first takes `first` µs, five others take `later`, each with a launch
    /// at its end.
    fn cold_micros(name: &str, first: i64, later: i64) -> i64 {
        let mut made = Fabricated::on("NVIDIA A100-SXM4-80GB");
        made.step(1, 0, (first + 5 * later + 100) * MICRO);
        let mut start = 0;
        for long in [first, later, later, later, later, later] {
            let end = start + long * MICRO;
            made.operator(name, start, end);
            made.launch((end - 6 * MICRO, end - MICRO), "gemm", (end, end + 4 * MICRO));
            start = end + 5 * MICRO;
        }
        let trace = made.trace();
        let view = View::new(&trace);
        if first > 1_000 && later == 20 && name == "aten::mm" {
            let analysis = analyze(&[made.trace()], &Options::default()).expect("there is a trace");
            assert_eq!(analysis.findings[0].code, "TR129", "{:?}", analysis.findings);
        }
        view.cold.nanos_in(view.steps.range()) / MICRO
    }

    #[test]
    fn without_launches_the_start_of_a_library_is_known_by_its_time() {
        let cold_micros = |name: &str| {
            let mut made = Fabricated::default();
            for (at, long) in [9_000, 300, 250, 400, 300].into_iter().enumerate() {
                let start = at as i64 * 10_000 * MICRO;
                made.operator(name, start, start + long * MICRO);
            }
            made.viewed(|view| view.cold.nanos_in(view.steps.range()) / MICRO)
        };
        assert_eq!(cold_micros("aten::cudnn_convolution"), 9_000);
        assert_eq!(cold_micros("aten::mkldnn_convolution"), 0, "no device was used");
    }

    #[test]
    fn the_first_operator_of_a_library_that_makes_its_handle_is_a_cold_start() {
        assert_eq!(cold_micros("aten::mm", 2_100, 20), 2_100);
        assert_eq!(cold_micros("aten::mm", 2_100, 400), 0, "the others take long as well");
        assert_eq!(cold_micros("aten::mm", 800, 20), 0, "no longer than a launch that was held up");
        assert_eq!(cold_micros("aten::copy_", 2_100, 20), 0, "copies differ by their size");
    }
}
