//! Time by operator and module: self time of the host, and of the device work it queued.

use std::collections::HashMap;

use headroom_trace::{NONE, NameId};
use serde::Serialize;

use super::intervals::seconds;
use super::view::View;

/// An operator in one module, over all steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PlaceRow {
    pub name: String,
    /// Outermost first, joined by dots; empty if the trace names none.
    pub module: String,
    pub calls: u64,
    pub host_self_seconds: f64,
    pub device_self_seconds: f64,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    calls: u64,
    host_nanos: i64,
    device_nanos: i64,
}

/// Sorted by device time, then by self time, the largest first. Sums over modules equal those of
/// [`super::operators::operators`].
pub fn places(view: &View) -> Vec<PlaceRow> {
    let (host, device) = (&view.trace.host, &view.trace.device);
    let range = view.steps.host_range();
    let inside = |at: usize| host.start[at] >= range.start && host.start[at] < range.end;
    let is_operator = |at: usize| view.is_operator(at);
    let modules = Modules::new(view);

    let mut sums: HashMap<(NameId, u32), Sum> = HashMap::new();
    let mut children = vec![0i64; host.len()];
    for at in (0..host.len()).filter(|&at| is_operator(at)) {
        if let Some(outer) = view.ancestors(at).skip(1).find(|&outer| is_operator(outer)) {
            children[outer] += host.duration[at].min(host.end(outer) - host.start[at]);
        }
    }
    for at in (0..host.len()).filter(|&at| is_operator(at) && inside(at)) {
        let sum = sums.entry((host.name[at], modules.of(view, at))).or_default();
        sum.calls += 1;
        sum.host_nanos += (host.duration[at] - children[at]).max(0);
    }
    for at in device.busy().filter(|&at| view.call_of[at] != NONE && inside(view.call_of[at] as usize)) {
        if let Some(operator) = view.operator_of(view.call_of[at] as usize) {
            sums.entry((host.name[operator], modules.of(view, operator))).or_default().device_nanos +=
                device.duration[at];
        }
    }
    let row = |((name, module), sum): ((NameId, u32), Sum)| PlaceRow {
        name: view.name(name).to_string(),
        module: modules.paths[module as usize].clone(),
        calls: sum.calls,
        host_self_seconds: seconds(sum.host_nanos),
        device_self_seconds: seconds(sum.device_nanos),
    };
    let mut rows: Vec<PlaceRow> = sums.into_iter().map(row).collect();
    rows.sort_by(|left, right| {
        let time = |row: &PlaceRow| (row.device_self_seconds, row.host_self_seconds);
        let by_time = time(right).partial_cmp(&time(left)).unwrap_or(std::cmp::Ordering::Equal);
        by_time.then_with(|| (&left.name, &left.module).cmp(&(&right.name, &right.module)))
    });
    rows
}

/// The module path of every host span, with each path stored once. Number 0 is "none".
struct Modules {
    paths: Vec<String>,
    at: Vec<u32>,
}

impl Modules {
    /// A span comes after the spans around it, so one pass is enough.
    fn new(view: &View) -> Modules {
        let host = &view.trace.host;
        let mut modules = Modules { paths: vec![String::new()], at: Vec::with_capacity(host.len()) };
        let mut known: HashMap<(u32, NameId), u32> = HashMap::new();
        let is_module: Vec<bool> = view.trace.names.iter().map(|(_, name)| name.starts_with(MODULE)).collect();
        for at in 0..host.len() {
            let parent = view.parent[at];
            let outer = if parent == NONE { 0 } else { modules.at[parent as usize] };
            let stated = view.trace.stated(at).map_or(NameId::NONE, |stated| stated.module);
            let own = match (stated, is_module[host.name[at].index()]) {
                // Headroom's own operators carry their full path.
                (module, _) if !module.is_none() => *known.entry((u32::MAX, module)).or_insert_with(|| {
                    modules.paths.push(view.name(module).to_string());
                    modules.paths.len() as u32 - 1
                }),
                (_, true) => *known.entry((outer, host.name[at])).or_insert_with(|| {
                    let name = &view.host_name(at)[MODULE.len()..];
                    let path = match modules.paths[outer as usize].as_str() {
                        "" => name.to_string(),
                        // For endlessly nested modules, the path of the outer ones is enough.
                        around if around.len() > LONGEST_PATH => around.to_string(),
                        around => format!("{around}.{name}"),
                    };
                    modules.paths.push(path);
                    modules.paths.len() as u32 - 1
                }),
                _ => outer,
            };
            modules.at.push(own);
        }
        modules
    }

    /// Module of a span; for a backward, that of its forward.
    fn of(&self, view: &View, at: usize) -> u32 {
        match self.at[at] {
            0 => view.forward_of(at).map_or(0, |forward| self.at[forward]),
            module => module,
        }
    }
}

const MODULE: &str = "nn.Module: ";
const LONGEST_PATH: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_trace::read_bytes;

    #[test]
    fn time_goes_to_the_module_around_an_operator_and_each_operator_keeps_its_own() {
        let span = |name: &str, category: &str, start: u32, length: u32| {
            format!(r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":1,"ts":{start},"dur":{length}}}"#)
        };
        let events = [
            span("ProfilerStep#1", "user_annotation", 0, 100),
            span("nn.Module: Net_0", "python_function", 5, 60),
            span("nn.Module: Linear_1", "python_function", 10, 40),
            span("aten::linear", "cpu_op", 12, 20),
            span("aten::mm", "cpu_op", 15, 10),
            span("aten::mm", "cpu_op", 55, 4),
            span("aten::mm", "cpu_op", 80, 3),
        ];
        let trace = read_bytes(format!(r#"{{"traceEvents":[{}]}}"#, events.join(",")).as_bytes()).unwrap();
        let rows = places(&View::new(&trace));
        let rows: Vec<(&str, &str, u64, f64)> = rows
            .iter()
            .map(|row| (row.name.as_str(), row.module.as_str(), row.calls, (row.host_self_seconds * 1e6).round()))
            .collect();
        assert_eq!(
            rows,
            [
                ("aten::linear", "Net_0.Linear_1", 1, 10.0),
                ("aten::mm", "Net_0.Linear_1", 1, 10.0),
                ("aten::mm", "Net_0", 1, 4.0),
                ("aten::mm", "", 1, 3.0),
            ]
        );
    }
}
