//! A trace in the timeline's format: rows without overlaps, in columns of plain numbers.
//!
//! The bytes are, little-endian: the length of a JSON header (4 bytes) and 4 zero bytes; the header, padded with spaces
//! to a multiple of 8; then for all events, sorted by row and start, the columns `start` and `end` (f64, nanoseconds
//! from the trace's beginning), `name`, `module` and `launcher` (u32) and `category` (u8). Since nothing overlaps
//! within a row, both starts and ends ascend, so the renderer finds the visible events by bisection without visiting
//! the rest.

use std::cmp::Reverse;
use std::collections::HashMap;

use headroom_diagnosis::measures::counters::counters;
use headroom_diagnosis::measures::critical_path::{On, critical_path};
use headroom_diagnosis::measures::queue::queue;
use headroom_diagnosis::measures::view::View;
use headroom_trace::{Category, Label, NONE, NameId, Trace, TrackId};
use serde::Serialize;

#[derive(Serialize)]
struct Header {
    span_nanos: f64,
    events: usize,
    names: Vec<String>,
    categories: Vec<&'static str>,
    #[serde(rename = "lanes")]
    tracks: Vec<TrackHeader>,
    steps: Vec<StepMark>,
    /// The critical path: start, end, and location (0 host, 1 between a launch and its work, 2 device).
    path: Vec<[f64; 3]>,
    /// Device events on the critical path.
    path_events: Vec<u32>,
    /// Work in the queue: time, and mean amount until the next point.
    queue: Vec<[f64; 2]>,
    queue_most: u32,
    counters: Vec<CounterHeader>,
}

/// A sampled value over time.
#[derive(Serialize)]
struct CounterHeader {
    name: String,
    least: f64,
    most: f64,
    curve: Vec<[f64; 2]>,
}

/// Counter strips above the rows: more would leave no room for the rows.
const MOST_COUNTERS: usize = 4;

#[derive(Serialize)]
struct TrackHeader {
    name: String,
    /// The end of each row in the columns; it begins where the previous row ends.
    row_ends: Vec<usize>,
}

#[derive(Serialize)]
struct StepMark {
    name: String,
    start: f64,
    end: f64,
}

const CATEGORIES: [Category; 11] = [
    Category::CpuOp,
    Category::UserAnnotation,
    Category::PythonFunction,
    Category::Runtime,
    Category::Kernel,
    Category::Memcpy,
    Category::Memset,
    Category::GpuAnnotation,
    Category::GpuSync,
    Category::Overhead,
    Category::Other,
];

/// Marks an event without a launcher.
const NO_EVENT: u32 = u32::MAX;

pub fn encode(trace: &Trace) -> Vec<u8> {
    let view = View::new(trace);
    let spans = Spans { trace };
    let origin = (0..spans.len()).map(|at| spans.start(at)).min().unwrap_or(0);
    let last = (0..spans.len()).map(|at| spans.start(at) + spans.duration(at)).max().unwrap_or(origin);
    let rows = rows(&spans);

    let mut names = UsedNames::default();
    let mut place = vec![NO_EVENT; spans.len()];
    let mut order: Vec<usize> = Vec::with_capacity(spans.len());
    let mut tracks: Vec<TrackHeader> = Vec::new();
    for (track, track_rows) in &rows {
        let mut row_ends = Vec::new();
        for row in track_rows {
            for &at in row {
                place[at] = order.len() as u32;
                order.push(at);
            }
            row_ends.push(order.len());
        }
        tracks.push(TrackHeader { name: track_name(trace, *track), row_ends });
    }
    let name: Vec<u32> = order.iter().map(|&at| names.number(trace, spans.name(at))).collect();
    let module: Vec<u32> = order.iter().map(|&at| names.number(trace, spans.module(at))).collect();
    let launcher: Vec<u32> = order
        .iter()
        .map(|&at| match at.checked_sub(trace.host.len()) {
            Some(device) if view.call_of[device] != NONE => place[view.call_of[device] as usize],
            _ => NO_EVENT,
        })
        .collect();
    let category: Vec<u8> = order.iter().map(|&at| category_number(spans.category(at))).collect();
    let start: Vec<f64> = order.iter().map(|&at| (spans.start(at) - origin) as f64).collect();
    let end: Vec<f64> = order.iter().map(|&at| (spans.start(at) + spans.duration(at) - origin) as f64).collect();

    let steps = view.steps.list.iter().map(|step| StepMark {
        name: step.name.clone(),
        start: (step.span.start - origin) as f64,
        end: (step.span.end - origin) as f64,
    });
    let links = critical_path(&view).links;
    let path = links.iter().map(|link| {
        let on = match link.on {
            On::Host => 0.0,
            On::Launch => 1.0,
            On::Device(_) => 2.0,
        };
        [(link.span.start - origin) as f64, (link.span.end - origin) as f64, on]
    });
    let on_device = links.iter().filter_map(|link| match link.on {
        On::Device(at) => Some(place[trace.host.len() + at]),
        _ => None,
    });
    let waiting = queue(&view);
    let first = (view.steps.range().start - origin) as f64;
    let header = Header {
        path: path.collect(),
        path_events: on_device.collect(),
        queue: waiting.curve.iter().map(|point| [first + 1e9 * point.seconds, point.mean]).collect(),
        queue_most: waiting.most,
        counters: counters(&view)
            .into_iter()
            .take(MOST_COUNTERS)
            .map(|row| CounterHeader {
                name: row.name,
                least: row.least.min(0.0),
                most: row.most.max(0.0),
                curve: row.curve.iter().map(|[seconds, value]| [first + 1e9 * seconds, *value]).collect(),
            })
            .collect(),
        span_nanos: (last - origin) as f64,
        events: order.len(),
        names: names.texts,
        categories: CATEGORIES.map(Category::kineto).to_vec(),
        tracks,
        steps: steps.collect(),
    };
    let mut head = serde_json::to_vec(&header).unwrap_or_default();
    head.resize(head.len().next_multiple_of(8), b' ');
    let mut bytes = Vec::with_capacity(8 + head.len() + order.len() * 29);
    bytes.extend((head.len() as u64).to_le_bytes());
    bytes.extend(head);
    [start, end].iter().flatten().for_each(|time| bytes.extend(time.to_le_bytes()));
    [name, module, launcher].iter().flatten().for_each(|number| bytes.extend(number.to_le_bytes()));
    bytes.extend(category);
    bytes
}

/// Host spans, then device spans, under one numbering.
struct Spans<'t> {
    trace: &'t Trace,
}

impl Spans<'_> {
    fn len(&self) -> usize {
        self.trace.host.len() + self.trace.device.len()
    }

    fn device(&self, at: usize) -> Option<usize> {
        at.checked_sub(self.trace.host.len())
    }

    fn start(&self, at: usize) -> i64 {
        self.device(at).map_or_else(|| self.trace.host.start[at], |at| self.trace.device.start[at])
    }

    fn duration(&self, at: usize) -> i64 {
        self.device(at).map_or_else(|| self.trace.host.duration[at], |at| self.trace.device.duration[at])
    }

    fn track(&self, at: usize) -> TrackId {
        self.device(at).map_or_else(|| self.trace.host.track[at], |at| self.trace.device.track[at])
    }

    fn name(&self, at: usize) -> NameId {
        self.device(at).map_or_else(|| self.trace.host.name[at], |at| self.trace.device.name[at])
    }

    fn module(&self, at: usize) -> NameId {
        match self.device(at) {
            Some(_) => NameId::NONE,
            None => self.trace.stated(at).map_or(NameId::NONE, |stated| stated.module),
        }
    }

    fn band(&self, at: usize) -> Band {
        match self.category(at) {
            _ if self.device(at).is_some() => Band::Stream,
            Category::PythonFunction => Band::Python,
            Category::Other | Category::Overhead => Band::Profiler,
            _ => Band::Work,
        }
    }

    fn category(&self, at: usize) -> Category {
        self.device(at).map_or_else(|| self.trace.host.category[at], |at| self.trace.device.category[at])
    }
}

/// Kinds of spans, each drawn as a separate track, in display order. Python functions nest dozens deep and would push a
/// thread's work off the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Band {
    Work,
    Stream,
    /// The profiler's spans about itself.
    Profiler,
    Python,
}

/// The rows of each track, from the outermost down: a span goes below every span that is open when it starts.
fn rows(spans: &Spans) -> Vec<((Band, TrackId), Vec<Vec<usize>>)> {
    let mut tracks: Vec<((Band, TrackId), Vec<Vec<usize>>)> = Vec::new();
    let mut index: HashMap<(Band, TrackId), usize> = HashMap::new();
    let mut open: Vec<Vec<i64>> = Vec::new();
    // Host and device spans are each sorted by track and start, the longer first.
    for at in 0..spans.len() {
        let key = (spans.band(at), spans.track(at));
        let track = *index.entry(key).or_insert_with(|| {
            tracks.push((key, Vec::new()));
            open.push(Vec::new());
            tracks.len() - 1
        });
        let (start, ends) = (spans.start(at), &mut open[track]);
        let row = ends.iter().rposition(|end| *end > start).map_or(0, |covering| covering + 1);
        if row == ends.len() {
            ends.push(i64::MIN);
            tracks[track].1.push(Vec::new());
        }
        ends[row] = ends[row].max(start + spans.duration(at));
        tracks[track].1[row].push(at);
    }
    // Within each kind, the fullest track comes first.
    tracks.sort_by_key(|((band, track), rows)| (*band, Reverse(rows.iter().map(Vec::len).sum::<usize>()), *track));
    tracks
}

fn track_name(trace: &Trace, (band, id): (Band, TrackId)) -> String {
    let text = |label: &Label| match label {
        Label::Number(number) => number.to_string(),
        Label::Text(text) => text.clone(),
    };
    let track = trace.track(id);
    let (process, thread) = (text(&track.process), text(&track.thread));
    match band {
        Band::Stream => format!("device {process} · stream {thread}"),
        Band::Work | Band::Profiler => format!("process {process} · thread {thread}"),
        Band::Python => format!("process {process} · thread {thread} · Python"),
    }
}

fn category_number(category: Category) -> u8 {
    CATEGORIES.iter().position(|one| *one == category).unwrap_or(CATEGORIES.len() - 1) as u8
}

/// The names that events use, renumbered; number 0 is the empty name.
struct UsedNames {
    texts: Vec<String>,
    numbers: HashMap<NameId, u32>,
}

impl Default for UsedNames {
    fn default() -> UsedNames {
        UsedNames { texts: vec![String::new()], numbers: HashMap::from([(NameId::NONE, 0)]) }
    }
}

impl UsedNames {
    fn number(&mut self, trace: &Trace, id: NameId) -> u32 {
        *self.numbers.entry(id).or_insert_with(|| {
            self.texts.push(trace.name(id).to_string());
            self.texts.len() as u32 - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_trace::read_bytes;

    /// Events as (name, category, thread, start and length in microseconds, correlation).
    fn trace(events: &[(&str, &str, u32, f64, f64, u32)]) -> Trace {
        let event = |(name, category, thread, start, length, correlation): &(&str, &str, u32, f64, f64, u32)| {
            format!(
                r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":{thread},"ts":{start},"dur":{length},"args":{{"correlation":{correlation}}}}}"#
            )
        };
        let events: Vec<String> = events.iter().map(event).collect();
        read_bytes(format!(r#"{{"traceEvents":[{}]}}"#, events.join(",")).as_bytes()).unwrap()
    }

    struct Decoded {
        header: serde_json::Value,
        start: Vec<f64>,
        end: Vec<f64>,
        name: Vec<u32>,
        launcher: Vec<u32>,
        left: usize,
    }

    fn decode(bytes: &[u8]) -> Decoded {
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        assert_eq!(length % 8, 0, "columns must be aligned");
        let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        let events = header["events"].as_u64().unwrap() as usize;
        let mut rest = &bytes[8 + length..];
        let mut column = |width: usize| {
            let (taken, after) = rest.split_at(events * width);
            rest = after;
            taken.chunks(width).map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        let times =
            |column: Vec<Vec<u8>>| column.iter().map(|one| f64::from_le_bytes(one[..].try_into().unwrap())).collect();
        let numbers =
            |column: Vec<Vec<u8>>| column.iter().map(|one| u32::from_le_bytes(one[..].try_into().unwrap())).collect();
        let (start, end) = (times(column(8)), times(column(8)));
        let (name, _module, launcher) = (numbers(column(4)), column(4), numbers(column(4)));
        column(1);
        Decoded { header, start, end, name, launcher, left: rest.len() }
    }

    #[test]
    fn what_runs_inside_lies_below_and_nothing_in_a_row_overlaps() {
        let decoded = decode(&encode(&trace(&[
            ("outer", "cpu_op", 1, 0.0, 10.0, 0),
            ("inner", "cpu_op", 1, 1.0, 4.0, 0),
            ("crosses", "cpu_op", 1, 3.0, 20.0, 0),
            ("after", "cpu_op", 1, 30.0, 1.0, 0),
        ])));
        let track = &decoded.header["lanes"][0];
        let named = |at: usize| decoded.header["names"][decoded.name[at] as usize].as_str().unwrap().to_string();
        let mut begin = 0;
        let mut rows = Vec::new();
        for end in track["row_ends"].as_array().unwrap().iter().map(|end| end.as_u64().unwrap() as usize) {
            assert!((begin..end).skip(1).all(|at| decoded.start[at] >= decoded.end[at - 1]), "rows do not overlap");
            rows.push((begin..end).map(named).collect::<Vec<_>>());
            begin = end;
        }
        assert_eq!(rows, [vec!["outer", "after"], vec!["inner"], vec!["crosses"]]);
        assert_eq!((decoded.start[0], decoded.end[0], decoded.left), (0.0, 10_000.0, 0));
        assert_eq!(decoded.header["span_nanos"], 31_000.0);
    }

    #[test]
    fn a_kernel_knows_the_call_that_launched_it() {
        let decoded = decode(&encode(&trace(&[
            ("cudaLaunchKernel", "cuda_runtime", 1, 0.0, 2.0, 77),
            ("gemm", "kernel", 9, 5.0, 3.0, 77),
            ("lonely", "kernel", 9, 9.0, 1.0, 0),
        ])));
        let at = |name: &str| {
            let number = decoded.header["names"].as_array().unwrap().iter().position(|one| one == name).unwrap();
            decoded.name.iter().position(|one| *one as usize == number).unwrap()
        };
        assert_eq!(decoded.launcher[at("gemm")] as usize, at("cudaLaunchKernel"));
        assert_eq!(decoded.launcher[at("lonely")], NO_EVENT);
    }

    #[test]
    fn a_trace_without_events_is_an_empty_timeline() {
        let decoded = decode(&encode(&Trace::default()));
        assert_eq!((decoded.header["events"].as_u64(), decoded.left), (Some(0), 0));
    }
}
