//! Classifies spans without a category. JAX's profiler and PyTorch's before Kineto write none: a span's kind follows
//! from its process's and thread's names, and its own.

use super::event::{RawArguments, numbers};
use crate::category::Category;
use crate::columns::{Label, NONE, Track, TrackId};
use crate::names::NameId;
use crate::trace::Trace;

/// A span whose category depends on process and thread names, which are complete only at the end of the file.
#[derive(Clone, Copy, Debug)]
pub struct Untyped {
    pub name: NameId,
    pub track: TrackId,
    pub start: i64,
    pub duration: i64,
    pub correlation: u32,
    /// The number of the step that this span marks, or [`NONE`].
    pub step: u32,
    /// Whether it names an XLA operation.
    pub is_operation: bool,
    pub bytes: u64,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub occupancy: u8,
}

/// Names that events of phase `M` give to processes and threads.
#[derive(Clone, Debug, Default)]
pub struct TrackNames {
    processes: Vec<(Label, String)>,
    threads: Vec<(Label, Label, String)>,
}

/// Kind of content on a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrackKind {
    /// Work of a device.
    Work,
    /// A device's steps, modules and scopes, derived from its work.
    Derived,
    /// A thread of a host that runs XLA.
    XlaHost,
    /// Operators of a host.
    Operators,
}

impl TrackNames {
    pub fn name_process(&mut self, process: Label, name: String) {
        self.processes.push((process, name));
    }

    pub fn name_thread(&mut self, process: Label, thread: Label, name: String) {
        self.threads.push((process, thread, name));
    }

    pub fn append(&mut self, mut next: TrackNames) {
        self.processes.append(&mut next.processes);
        self.threads.append(&mut next.threads);
    }

    fn process<'a>(&'a self, process: &'a Label) -> &'a str {
        let named = self.processes.iter().rev().find(|(label, _)| label == process).map(|(_, name)| name.as_str());
        named.unwrap_or(match process {
            Label::Text(text) => text,
            Label::Number(_) => "",
        })
    }

    fn thread(&self, track: &Track) -> &str {
        let is_it =
            |(process, thread, _): &&(Label, Label, String)| *process == track.process && *thread == track.thread;
        self.threads.iter().rev().find(is_it).map_or("", |(_, _, name)| name)
    }

    fn kind(&self, track: &Track) -> TrackKind {
        match self.process(&track.process) {
            process if process.starts_with("/device:") => {
                let is_stream = |thread: &str| thread.starts_with("Stream #") || thread.starts_with("stream ");
                let thread = self.thread(track);
                let has_streams =
                    self.threads.iter().any(|(other, _, name)| *other == track.process && is_stream(name));
                // A TPU has no streams: its operations are the device's work.
                let is_work = is_stream(thread) || (!has_streams && thread == "XLA Ops");
                if is_work { TrackKind::Work } else { TrackKind::Derived }
            }
            process if process.starts_with("/host:") => TrackKind::XlaHost,
            "CUDA functions" => TrackKind::Work,
            _ => TrackKind::Operators,
        }
    }
}

impl Untyped {
    pub fn new(name: NameId, track: TrackId, start: i64, duration: i64, arguments: &RawArguments) -> Untyped {
        let number = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok()).unwrap_or(NONE);
        let detail = |key: &str| detail(arguments.kernel_details, key);
        Untyped {
            name,
            track,
            start,
            duration,
            correlation: number(arguments.correlation),
            step: number(arguments.step),
            is_operation: arguments.is_operation,
            bytes: self::detail(arguments.copy_details, "size").and_then(|size| size.parse().ok()).unwrap_or(0),
            grid: detail("grid").map(|list| numbers(format!("[{list}]").as_bytes())).unwrap_or_default(),
            block: detail("block").map(|list| numbers(format!("[{list}]").as_bytes())).unwrap_or_default(),
            occupancy: detail("occ_pct").and_then(percent).unwrap_or(255),
        }
    }
}

fn percent(text: &str) -> Option<u8> {
    text.parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent)).map(|percent| percent as u8)
}

/// The value of `key` in text such as `regs:32 grid:16,1,1 block:256,1,1`.
fn detail<'a>(text: &'a [u8], key: &str) -> Option<&'a str> {
    let text = std::str::from_utf8(text).ok()?.trim_matches('"');
    text.split([' ', '\n']).find_map(|part| part.strip_prefix(key)?.strip_prefix(':'))
}

/// Adds every span without a category to the host's or the device's spans.
pub fn place(trace: &mut Trace, untyped: Vec<Untyped>, names: &TrackNames) {
    if untyped.is_empty() {
        return;
    }
    let kinds: Vec<TrackKind> = trace.tracks.iter().map(|track| names.kind(track)).collect();
    trace.reading.is_of_xla = kinds.iter().any(|track| matches!(track, TrackKind::XlaHost));
    if !trace.reading.is_of_xla {
        trace.reading.uncategorised_spans = untyped.len() as u64;
        let work: Vec<&Untyped> =
            untyped.iter().filter(|span| kinds[span.track.0 as usize] == TrackKind::Work).collect();
        trace.reading.nested_device_spans = nested(work);
    }
    for mut span in untyped {
        let name = trace.name(span.name).to_string();
        let category = match kinds[span.track.0 as usize] {
            TrackKind::Work => work(&name),
            TrackKind::Derived => Category::GpuAnnotation,
            TrackKind::Operators => Category::CpuOp,
            TrackKind::XlaHost => xla_host(&name, &span),
        };
        if category == Category::UserAnnotation && span.step != NONE {
            span.name = trace.names.intern(&format!("ProfilerStep#{}", span.step));
        } else if let Some(function) = kineto_function(&name).filter(|_| category == Category::PythonFunction) {
            span.name = trace.names.intern(&function);
        }
        push(trace, &span, category);
    }
}

/// Spans that lie inside another one of their track.
fn nested(mut spans: Vec<&Untyped>) -> u64 {
    spans.sort_by_key(|span| (span.track.0, span.start, std::cmp::Reverse(span.duration)));
    let mut outer: Option<(TrackId, i64)> = None;
    let mut count = 0;
    for span in spans {
        let end = span.start + span.duration;
        match outer {
            Some((track, outer_end)) if track == span.track && end <= outer_end => count += 1,
            _ => outer = Some((span.track, end)),
        }
    }
    count
}

fn work(name: &str) -> Category {
    let lower = name.to_ascii_lowercase();
    if lower.starts_with("memcpy") {
        Category::Memcpy
    } else if lower.starts_with("memset") {
        Category::Memset
    } else {
        Category::Kernel
    }
}

fn xla_host(name: &str, span: &Untyped) -> Category {
    let runtime = ["cuda", "cu", "hip"].iter().filter_map(|prefix| name.strip_prefix(prefix));
    if span.step != NONE {
        Category::UserAnnotation
    } else if name.starts_with('$') {
        Category::PythonFunction
    } else if matches!(name, "BUFFER_FLUSH" | "INSTRUMENTATION" | "RESOURCE" | "<UNKNOWN>") {
        Category::Overhead // of the library that records device activity
    } else if span.correlation != NONE {
        Category::Runtime
    } else if span.is_operation {
        Category::CpuOp
    } else if runtime.clone().any(|rest| rest.starts_with(|first: char| first.is_ascii_uppercase())) {
        Category::Runtime
    } else if span.duration == 0 {
        Category::Other // a mark, not a span
    } else {
        Category::UserAnnotation
    }
}

/// `$train.py:12 step` as Kineto writes it: `train.py(12): step`.
fn kineto_function(name: &str) -> Option<String> {
    let (place, function) = name.strip_prefix('$')?.split_once(' ')?;
    let (file, line) = place.rsplit_once(':')?;
    line.parse::<u32>().ok()?;
    Some(format!("{file}({line}): {function}"))
}

fn push(trace: &mut Trace, span: &Untyped, category: Category) {
    if category.is_on_device() {
        let spans = &mut trace.device;
        spans.name.push(span.name);
        spans.category.push(category);
        spans.track.push(span.track);
        spans.start.push(span.start);
        spans.duration.push(span.duration);
        spans.correlation.push(span.correlation);
        spans.external.push(NONE);
        spans.bytes.push(span.bytes);
        spans.grid.push(span.grid);
        spans.block.push(span.block);
        spans.occupancy.push(span.occupancy);
    } else {
        let nothing = trace.names.intern("");
        let spans = &mut trace.host;
        spans.name.push(span.name);
        spans.category.push(category);
        spans.track.push(span.track);
        spans.start.push(span.start);
        spans.duration.push(span.duration);
        spans.id.push(if category == Category::Runtime { span.correlation } else { NONE });
        spans.sequence.push(NONE);
        spans.dims.push(nothing);
        spans.types.push(nothing);
        spans.concrete.push(nothing);
        spans.stated.push(NONE);
    }
}

/// The row where a span was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    Host(u32),
    Device(u32),
    Untyped(u32),
}

/// An event of phase `B` or `E`.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    pub track: TrackId,
    pub time: i64,
    /// The span that begins, or `None` where one ends.
    pub begins: Option<Row>,
}

/// Sets the durations of spans that begin and end in separate events. Returns how many never end.
pub fn close(mut edges: Vec<Edge>, mut set_duration: impl FnMut(Row, i64)) -> u64 {
    edges.sort_by_key(|edge| (edge.track, edge.time));
    let mut open: Vec<Edge> = Vec::new();
    let mut never_end = 0;
    for edge in edges {
        if open.last().is_some_and(|last| last.track != edge.track) {
            never_end += open.len() as u64;
            open.clear();
        }
        match edge.begins {
            Some(_) => open.push(edge),
            // An end without a begin belongs to a span that began before the recording.
            None => {
                if let Some(begin) = open.pop()
                    && let Some(row) = begin.begins
                {
                    set_duration(row, edge.time - begin.time);
                }
            }
        }
    }
    never_end + open.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_of_a_kernel_are_found_in_its_text() {
        let text = b"\"regs:32 static_shared:0 grid:16,2,1 block:256,1,1 occ_pct:87.5\"";
        assert_eq!((detail(text, "grid"), detail(text, "occ_pct")), (Some("16,2,1"), Some("87.5")));
        assert_eq!(detail(text, "size"), None);
    }

    #[test]
    fn functions_of_jax_are_spelled_as_kineto_spells_them() {
        assert_eq!(kineto_function("$train.py:12 step").as_deref(), Some("train.py(12): step"));
        assert_eq!(kineto_function("$broken"), None);
    }

    #[test]
    fn spans_that_begin_and_end_in_events_nest() {
        let begin = |track, time, row| Edge { track: TrackId(track), time, begins: Some(Row::Host(row)) };
        let end = |track, time| Edge { track: TrackId(track), time, begins: None };
        let mut durations = Vec::new();
        let edges = vec![
            end(0, 1),
            begin(0, 2, 0),
            begin(0, 3, 1),
            end(0, 7),
            end(0, 9),
            begin(1, 4, 2),
            begin(2, 1, 3),
            end(2, 5),
        ];
        let never_end = close(edges, |row, nanos| durations.push((row, nanos)));
        assert_eq!(never_end, 1);
        assert_eq!(durations, [(Row::Host(1), 4), (Row::Host(0), 7), (Row::Host(3), 4)]);
    }
}
