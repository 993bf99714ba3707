//! Time by site: an operator at its input sizes and its place in the script, a function of the script, or a kernel that no
//! operator launched. Two traces of one program are compared site by site.

use std::collections::{BTreeMap, HashMap};

use headroom_trace::{CallKind, Category, NONE, NameId, TrackId};
use serde::Serialize;

use super::intervals::{Span, covered, merged, seconds};
use super::python::{frame, is_users};
use super::steps::is_fetch;
use super::view::View;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SiteKind {
    #[default]
    Operator,
    /// A function of the script, without the operators and functions that it calls.
    Function,
    /// The wait for the next batch.
    Fetch,
    /// Device work that no operator launched.
    Kernel,
    /// Time of the step in which none of the others runs on the host.
    Outside,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Site {
    pub kind: SiteKind,
    pub name: String,
    /// As the trace writes them, without spaces; empty if it does not.
    pub input_dims: String,
    /// `train.py(50): train`, or a module's class; empty if the trace has neither.
    pub place: String,
    /// The place without what changes when lines move or a folder is renamed.
    pub place_key: String,
    pub calls: u64,
    /// Self time in each step, without waits for a busy device.
    pub host_seconds: Vec<f64>,
    pub device_seconds: Vec<f64>,
    /// Waits for a busy device, over all steps.
    pub wait_seconds: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    kind: SiteKind,
    name: NameId,
    dims: NameId,
    /// Index into the places; 0 is none.
    place: u32,
}

#[derive(Clone, Default)]
struct Sum {
    calls: u64,
    host: Vec<i64>,
    device: Vec<i64>,
    wait: i64,
}

struct Sums<'v, 't> {
    view: &'v View<'t>,
    sums: HashMap<Key, Sum>,
}

pub fn sites(view: &View) -> Vec<Site> {
    let places = Places::new(view);
    let host = &view.trace.host;
    let kinds = kinds_of_spans(view);
    let mut sums = Sums { view, sums: HashMap::new() };
    // The innermost site around each span, itself included. A span comes after the spans around it.
    let mut owner: Vec<u32> = Vec::with_capacity(host.len());
    let mut outermost: Vec<Span> = Vec::new();
    for at in 0..host.len() {
        let parent = view.parent[at];
        let around = if parent == NONE { NONE } else { owner[parent as usize] };
        let Some(kind) = kinds[at] else {
            owner.push(around);
            continue;
        };
        owner.push(at as u32);
        let key = key_of(view, &places, kind, at);
        let span = view.host_span(at);
        if view.step_of(at).is_some() {
            sums.of(key).calls += 1;
        }
        sums.add_host(key, span, 1);
        match around {
            NONE => outermost.push(span),
            outer => {
                let outer = outer as usize;
                let shared = Span { end: span.end.min(host.end(outer)), ..span };
                sums.add_host(key_of(view, &places, kinds[outer].unwrap_or_default(), outer), shared, -1);
            }
        }
    }
    add_waits(&mut sums, &places, &kinds, &owner);
    add_device(&mut sums, &places, &owner, &kinds);
    let mut rows = sums.rows(&places);
    rows.push(outside(view, merged(outermost)));
    rows.sort_by(|left, right| {
        let key = |site: &Site| (site.kind, site.name.clone(), site.input_dims.clone(), site.place.clone());
        key(left).cmp(&key(right))
    });
    rows
}

/// The kind of site that each host span is, if any.
fn kinds_of_spans(view: &View) -> Vec<Option<SiteKind>> {
    let host = &view.trace.host;
    let of_name: Vec<(bool, bool)> =
        view.trace.names.iter().map(|(_, name)| (is_users(name), is_fetch(name))).collect();
    // Functions of other threads run beside the step: loaders' queues, monitors.
    let main = busiest_in_python(view);
    let kind = |at: usize| {
        let (is_users, is_fetch) = of_name[host.name[at].index()];
        match host.category[at] {
            _ if is_fetch => Some(SiteKind::Fetch),
            Category::CpuOp => Some(SiteKind::Operator),
            Category::PythonFunction if is_users && main == Some(host.track[at]) => Some(SiteKind::Function),
            _ => None,
        }
    };
    (0..host.len()).map(kind).collect()
}

/// The thread with the most Python functions in the steps.
fn busiest_in_python(view: &View) -> Option<TrackId> {
    let host = &view.trace.host;
    let mut counts: HashMap<u32, u64> = HashMap::new();
    for at in (0..host.len()).filter(|&at| host.category[at] == Category::PythonFunction) {
        *counts.entry(host.track[at].0).or_default() += u64::from(view.step_of(at).is_some());
    }
    counts.into_iter().max_by_key(|&(track, count)| (count, std::cmp::Reverse(track))).map(|(track, _)| TrackId(track))
}

fn key_of(view: &View, places: &Places, kind: SiteKind, at: usize) -> Key {
    let host = &view.trace.host;
    match kind {
        // A function is a place itself.
        SiteKind::Function => Key { kind, name: host.name[at], dims: NameId::NONE, place: places.own(at) },
        SiteKind::Fetch => Key { kind, name: host.name[at], dims: NameId::NONE, place: 0 },
        _ => Key { kind, name: host.name[at], dims: host.dims[at], place: places.of(view, at) },
    }
}

impl Sums<'_, '_> {
    fn of(&mut self, key: Key) -> &mut Sum {
        let steps = self.view.steps.list.len();
        self.sums.entry(key).or_insert_with(|| Sum { host: vec![0; steps], device: vec![0; steps], ..Sum::default() })
    }

    /// Adds a span's time to the steps that it lies in.
    fn add_host(&mut self, key: Key, span: Span, sign: i64) {
        let ordered = &self.view.steps.ordered;
        let first = ordered.partition_point(|step| step.end <= span.start);
        let parts: Vec<(usize, i64)> = ordered
            .iter()
            .enumerate()
            .skip(first)
            .take_while(|(_, step)| step.start < span.end)
            .map(|(index, step)| (index, step.overlap(span)))
            .collect();
        let sum = self.of(key);
        for (step, nanos) in parts {
            if let Some(own) = sum.host.get_mut(step) {
                *own += sign * nanos;
            }
        }
    }

    fn rows(self, places: &Places) -> Vec<Site> {
        let view = self.view;
        let list = |nanos: Vec<i64>| nanos.into_iter().map(|nanos| seconds(nanos.max(0))).collect();
        let row = |(key, sum): (Key, Sum)| {
            let (place, place_key) = places.list[key.place as usize].clone();
            let name = match key.kind {
                SiteKind::Function => place.clone(),
                _ => view.name(key.name).to_string(),
            };
            let input_dims = if key.dims.is_none() { String::new() } else { compact(view.name(key.dims)) };
            Site {
                kind: key.kind,
                name,
                input_dims,
                place,
                place_key,
                calls: sum.calls,
                host_seconds: list(sum.host),
                device_seconds: list(sum.device),
                wait_seconds: seconds(sum.wait),
            }
        };
        self.sums.into_iter().map(row).collect()
    }
}

/// A wait for work that runs is a consequence of that work: it is kept apart from the host's own time.
fn add_waits(sums: &mut Sums, places: &Places, kinds: &[Option<SiteKind>], owner: &[u32]) {
    let view = sums.view;
    for at in (0..view.trace.host.len()).filter(|&at| view.call_kind(at) == Some(CallKind::Synchronise)) {
        let own = owner[at];
        if own == NONE {
            continue;
        }
        let span = view.host_span(at);
        let key = key_of(view, places, kinds[own as usize].unwrap_or_default(), own as usize);
        let first = view.busy.partition_point(|busy| busy.end <= span.start);
        let waits: Vec<Span> = view.busy[first..]
            .iter()
            .take_while(|busy| busy.start < span.end)
            .map(|busy| Span { start: busy.start.max(span.start), end: busy.end.min(span.end) })
            .collect();
        for wait in waits {
            sums.add_host(key, wait, -1);
            if view.steps.at_host(wait.start).is_some() {
                sums.of(key).wait += wait.nanos();
            }
        }
    }
}

fn add_device(sums: &mut Sums, places: &Places, owner: &[u32], kinds: &[Option<SiteKind>]) {
    let view = sums.view;
    let device = &view.trace.device;
    for at in device.busy() {
        let call = view.call(at);
        let step = match call {
            Some(call) => view.step_of(call),
            None => view.steps.at(device.start[at]),
        };
        let Some(step) = step else { continue };
        let around = call.map(|call| owner[call]).filter(|owner| *owner != NONE).map(|owner| owner as usize);
        let operator = around.filter(|&owner| kinds[owner] == Some(SiteKind::Operator));
        let key = match operator.or_else(|| view.operator_of_device(at)) {
            Some(operator) => key_of(view, places, SiteKind::Operator, operator),
            None => Key {
                kind: SiteKind::Kernel,
                name: device.name[at],
                dims: NameId::NONE,
                place: around.map_or(0, |owner| places.of(view, owner)),
            },
        };
        let sum = sums.of(key);
        sum.calls += u64::from(key.kind == SiteKind::Kernel);
        if let Some(own) = sum.device.get_mut(step) {
            *own += device.duration[at];
        }
    }
}

/// Without spaces and line ends, which profilers write differently.
fn compact(dims: &str) -> String {
    dims.chars().filter(|letter| !letter.is_whitespace()).collect()
}

fn outside(view: &View, inside: Vec<Span>) -> Site {
    let left = |step: &Span| seconds(step.nanos() - covered(&inside, *step));
    Site {
        kind: SiteKind::Outside,
        name: "outside the recorded operators and functions".into(),
        calls: view.steps.list.len() as u64,
        host_seconds: view.steps.ordered.iter().map(left).collect(),
        device_seconds: vec![0.0; view.steps.list.len()],
        ..Site::default()
    }
}

/// The function of the script around each host span, else the class of the module.
struct Places {
    /// Shown form and key; the first is none.
    list: Vec<(String, String)>,
    at: Vec<u32>,
}

const MODULE: &str = "nn.Module: ";

impl Places {
    fn new(view: &View) -> Places {
        let mut list = vec![(String::new(), String::new())];
        let mut numbers: BTreeMap<(String, String), u32> = BTreeMap::new();
        let mut number = |place: (String, String)| {
            *numbers.entry(place.clone()).or_insert_with(|| {
                list.push(place);
                list.len() as u32 - 1
            })
        };
        // A function of the script wins over a module inside it.
        let of_name: Vec<(u32, u32)> = view
            .trace
            .names
            .iter()
            .map(|(_, name)| match (is_users(name), name.strip_prefix(MODULE)) {
                (true, _) => (number(of_frame(name)), 0),
                (false, Some(module)) => (0, number(of_module(module))),
                (false, None) => (0, 0),
            })
            .collect();
        let host = &view.trace.host;
        let mut both: Vec<(u32, u32)> = Vec::with_capacity(host.len());
        for at in 0..host.len() {
            let parent = view.parent[at];
            let (function, module) = if parent == NONE { (0, 0) } else { both[parent as usize] };
            let own = of_name[host.name[at].index()];
            both.push((if own.0 > 0 { own.0 } else { function }, if own.1 > 0 { own.1 } else { module }));
        }
        let at = both.iter().map(|&(function, module)| if function > 0 { function } else { module }).collect();
        Places { list, at }
    }

    fn own(&self, at: usize) -> u32 {
        self.at[at]
    }

    /// For a backward, the place of its forward.
    fn of(&self, view: &View, at: usize) -> u32 {
        match self.at[at] {
            0 => view.forward_of(at).map_or(0, |forward| self.at[forward]),
            place => place,
        }
    }
}

fn of_frame(name: &str) -> (String, String) {
    let Some(frame) = frame(name) else { return (name.to_string(), name.to_string()) };
    let file = frame.file.rsplit(['/', '\\']).next().unwrap_or(frame.file);
    (format!("{file}({}): {}", frame.line, frame.function), format!("{file}: {}", frame.function))
}

/// `LlamaMLP_11` is one of many with the same code: its class.
fn of_module(module: &str) -> (String, String) {
    let class = module.trim_end_matches(|letter: char| letter.is_ascii_digit()).trim_end_matches('_');
    (class.to_string(), class.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_trace::read_bytes;

    fn span(name: &str, category: &str, start: u32, length: u32, dims: &str) -> String {
        let arguments = if dims.is_empty() { String::new() } else { format!(r#","args":{{"Input Dims":{dims}}}"#) };
        format!(
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":1,"ts":{start},"dur":{length}{arguments}}}"#
        )
    }

    #[test]
    fn self_times_of_a_step_add_up_to_it() {
        let events = [
            span("ProfilerStep#1", "user_annotation", 10, 100, ""),
            span("ProfilerStep#2", "user_annotation", 110, 100, ""),
            // Runs through both steps.
            span("src/train.py(50): train", "python_function", 5, 210, ""),
            span("aten::linear", "cpu_op", 20, 30, "[[8,4]]"),
            span("aten::mm", "cpu_op", 25, 10, "[[8,4],[4,2]]"),
            span("aten::mm", "cpu_op", 120, 10, "[[8,4],[4,2]]"),
        ];
        let trace = read_bytes(format!(r#"{{"traceEvents":[{}]}}"#, events.join(",")).as_bytes()).unwrap();
        let rows = sites(&View::new(&trace));
        let micros = |list: &[f64]| list.iter().map(|seconds| (1e6 * seconds).round()).collect::<Vec<_>>();
        let found: Vec<(&str, &str, Vec<f64>)> =
            rows.iter().map(|row| (row.name.as_str(), row.place_key.as_str(), micros(&row.host_seconds))).collect();
        assert_eq!(
            found,
            [
                ("aten::linear", "train.py: train", vec![20.0, 0.0]),
                ("aten::mm", "train.py: train", vec![10.0, 10.0]),
                ("train.py(50): train", "train.py: train", vec![70.0, 90.0]),
                ("outside the recorded operators and functions", "", vec![0.0, 0.0]),
            ]
        );
    }
}
