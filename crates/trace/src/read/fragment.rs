//! Parses one block of text into event columns with their own names, and merges such fragments into one trace.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::category::Category;
use crate::columns::{HOST_MEMORY, Label, NONE, Track, TrackId};
use crate::counters::{self, Sample};
use crate::messages::Message;
use crate::names::{NameId, Names};
use crate::run::{Phase, Stated};
use crate::trace::{Reading, Trace};

use super::append::{append_device, append_host, append_memory};
use super::event::{Duration, RawArguments, RawEvent, event, next_candidate, numbers, unquoted};
use super::json::{Cursor, RawString, Stop, integer};
use super::tracks::{self, Edge, Row, TrackNames, Untyped};

#[derive(Default)]
pub struct Fragment {
    trace: Trace,
    tracks: TrackTable,
    end: End,
    track_names: TrackNames,
    untyped: Vec<Untyped>,
    edges: Vec<Edge>,
    /// The first few categories that no profiler writes.
    foreign: Vec<String>,
}

const MOST_FOREIGN_CATEGORIES: usize = 5;

/// How the text of a block ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// Between two events.
    #[default]
    Between,
    /// The list was closed; the text after it starts here.
    Closed(usize),
    /// Within the event that starts here.
    Within(usize),
}

/// The tracks seen so far, by their text. Consecutive events are usually on the same track, so the last one is tried
/// first.
#[derive(Clone, Debug, Default)]
struct TrackTable {
    keys: Vec<(Vec<u8>, Vec<u8>)>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
    last: u32,
}

impl Fragment {
    /// Reads `text` from an event's start (or a comma or white space before it).
    pub fn read(text: &[u8]) -> Fragment {
        let mut fragment = Fragment::default();
        fragment.read_more(text, 0, &[]);
        fragment
    }

    /// Like [`Fragment::read`], but starts at `from` and adds to this fragment. Objects at the offsets in `endless`,
    /// which is sorted, are known not to end and are not scanned again.
    pub fn read_more(&mut self, text: &[u8], from: usize, endless: &[u32]) -> End {
        let mut endless = &endless[endless.partition_point(|&at| (at as usize) < from)..];
        let mut cursor = Cursor { text, at: from };
        self.end = loop {
            match cursor.peek() {
                Err(_) => break End::Between,
                Ok(b',') => cursor.at += 1,
                Ok(b']') => break End::Closed(cursor.at + 1),
                Ok(b'{') => {
                    let start = cursor.at;
                    while let [first, later @ ..] = endless
                        && (*first as usize) < start
                    {
                        endless = later;
                    }
                    if endless.first().is_some_and(|&first| first as usize == start) {
                        break End::Within(start);
                    }
                    match event(&mut cursor) {
                        Ok(event) => self.add(&event),
                        Err(Stop::EndOfText) => break End::Within(start),
                        Err(Stop::Unexpected) => {
                            if let Some(end) = self.resume(&mut cursor) {
                                break end;
                            }
                        }
                    }
                }
                Ok(_) => {
                    if let Some(end) = self.resume(&mut cursor) {
                        break end;
                    }
                }
            }
        };
        self.end
    }

    pub fn end(&self) -> End {
        self.end
    }

    /// Resumes after damage at the next place where an event may begin, or returns how the block ends without one.
    fn resume(&mut self, cursor: &mut Cursor) -> Option<End> {
        self.trace.reading.damaged_events += 1;
        match next_candidate(cursor.text, cursor.at + 1) {
            Some(next) => {
                cursor.at = next;
                None
            }
            None => Some(End::Between),
        }
    }

    fn add(&mut self, event: &RawEvent) {
        self.trace.reading.events += 1;
        match event.phase {
            b'X' => self.add_whole_span(event),
            b'B' | b'E' => self.add_edge(event),
            b'M' => self.add_track_name(event),
            b'i' | b'I' if event.name.bytes == b"[memory]" => self.add_memory(event),
            b'C' => self.add_counter(event),
            b'b' | b'n' | b'e' | b'S' | b'T' | b'p' | b'F' => self.trace.reading.async_events += 1,
            _ => {}
        }
    }

    fn add_whole_span(&mut self, event: &RawEvent) {
        let duration = match event.duration {
            Duration::Nanos(nanos) => nanos,
            Duration::Impossible => return self.trace.reading.impossible_durations += 1,
            Duration::Missing => return self.trace.reading.damaged_events += 1,
        };
        self.add_span(event, duration);
    }

    /// Adds the begin or end of a span that has an event for each.
    fn add_edge(&mut self, event: &RawEvent) {
        let Some(time) = event.start else { return self.trace.reading.damaged_events += 1 };
        let begins = match event.phase {
            b'B' => match self.add_span(event, 0) {
                Some(row) => {
                    self.trace.reading.begin_end_spans += 1;
                    Some(row)
                }
                None => return,
            },
            _ => None,
        };
        let track = self.tracks.number(event.process, event.thread, &mut self.trace.tracks);
        self.edges.push(Edge { track, time, begins });
    }

    fn add_track_name(&mut self, event: &RawEvent) {
        let name = String::from_utf8_lossy(unquoted(event.arguments.name)).into_owned();
        match event.name.bytes {
            b"process_name" => self.track_names.name_process(label(event.process), name),
            b"thread_name" => self.track_names.name_thread(label(event.process), label(event.thread), name),
            _ => {}
        }
    }

    fn add_span(&mut self, event: &RawEvent, duration: i64) -> Option<Row> {
        let (Some(start), false) = (event.start, event.name.bytes.is_empty()) else {
            self.trace.reading.damaged_events += 1;
            return None;
        };
        let track = self.tracks.number(event.process, event.thread, &mut self.trace.tracks);
        let names = &mut self.trace.names;
        let name = intern(names, event.name);
        let arguments = &event.arguments;
        if event.category.is_empty() {
            self.untyped.push(Untyped::new(name, track, start, duration, arguments));
            return Some(Row::Untyped(self.untyped.len() as u32 - 1));
        }
        let category = category_of(event.category).of_span_named(event.name.bytes);
        if category == Category::Other && !matches!(event.category, b"Trace" | b"trace") {
            note_foreign(&mut self.foreign, &String::from_utf8_lossy(event.category));
        }
        if category.is_on_device() {
            let spans = &mut self.trace.device;
            spans.name.push(name);
            spans.category.push(category);
            spans.track.push(track);
            spans.start.push(start);
            spans.duration.push(duration);
            spans.correlation.push(id(arguments.correlation));
            spans.external.push(id(arguments.external));
            let bytes = arguments.bytes.or_else(|| {
                let width = element_bytes(arguments.message_type);
                arguments.message_elements.map(|elements| elements.saturating_mul(width))
            });
            spans.bytes.push(unsigned(bytes));
            spans.grid.push(numbers(arguments.grid));
            spans.block.push(numbers(arguments.block));
            spans.occupancy.push(arguments.occupancy.and_then(|percent| u8::try_from(percent).ok()).unwrap_or(255));
            let row = Row::Device(spans.name.len() as u32 - 1);
            if !arguments.collective.is_empty() {
                let names = &mut self.trace.names;
                self.trace.messages.push(message(arguments, track, start, names));
            }
            Some(row)
        } else {
            let spans = &mut self.trace.host;
            spans.name.push(name);
            spans.category.push(category);
            spans.track.push(track);
            spans.start.push(start);
            spans.duration.push(duration);
            spans.id.push(id(match category {
                Category::Runtime if is_of_rocm(event.name.bytes) => arguments.correlation.or(arguments.external),
                Category::Runtime => arguments.correlation,
                _ => arguments.external,
            }));
            spans.sequence.push(id(arguments.sequence));
            spans.dims.push(names.intern_bytes(arguments.dims));
            spans.types.push(names.intern_bytes(arguments.types));
            let concrete = if needs_concrete_inputs(event.name.bytes) { arguments.concrete } else { b"" };
            spans.concrete.push(names.intern_bytes(concrete));
            spans.stated.push(match stated(arguments, names) {
                Some(stated) => {
                    self.trace.stated.push(stated);
                    self.trace.stated.len() as u32 - 1
                }
                None => NONE,
            });
            Some(Row::Host(spans.name.len() as u32 - 1))
        }
    }

    fn add_memory(&mut self, event: &RawEvent) {
        let arguments = &event.arguments;
        let (Some(time), Some(bytes)) = (event.start, arguments.bytes) else {
            return self.trace.reading.damaged_events += 1;
        };
        let track = self.tracks.number(event.process, event.thread, &mut self.trace.tracks);
        let memory = &mut self.trace.memory;
        memory.time.push(time);
        memory.track.push(track);
        memory.bytes.push(bytes);
        memory.address.push(unsigned(arguments.address));
        memory.allocated.push(unsigned(arguments.total_allocated));
        memory.reserved.push(unsigned(arguments.total_reserved));
        // Type 0 is the host; every other type is a device of some vendor.
        memory.device.push(match (arguments.device_type, arguments.device_id) {
            (Some(0) | None, _) => HOST_MEMORY,
            (_, id) => id.and_then(|id| u16::try_from(id).ok()).unwrap_or(0),
        });
    }

    fn add_counter(&mut self, event: &RawEvent) {
        let Some(time) = event.start else { return self.trace.reading.damaged_events += 1 };
        let name = String::from_utf8_lossy(event.name.bytes);
        for (series, value) in counters::series(&name, event.all_arguments) {
            let series = self.trace.names.intern(&series);
            self.trace.counters.push(Sample { series, time, value });
        }
    }

    /// Appends the rows of `next`, with its names and tracks renumbered.
    pub fn append(&mut self, next: Fragment) {
        let names: Vec<NameId> = next.trace.names.iter().map(|(_, name)| self.trace.names.intern(name)).collect();
        let tracks: Vec<TrackId> = next
            .tracks
            .keys
            .iter()
            .map(|(process, thread)| self.tracks.number(process, thread, &mut self.trace.tracks))
            .collect();
        let first_stated = self.trace.stated.len() as u32;
        let (hosts, devices, untyped) =
            (self.trace.host.len() as u32, self.trace.device.len() as u32, self.untyped.len() as u32);
        self.track_names.append(next.track_names);
        next.foreign.iter().for_each(|category| note_foreign(&mut self.foreign, category));
        self.untyped.extend(next.untyped.into_iter().map(|span| Untyped {
            name: names[span.name.index()],
            track: tracks[span.track.0 as usize],
            ..span
        }));
        self.edges.extend(next.edges.into_iter().map(|edge| Edge {
            track: tracks[edge.track.0 as usize],
            begins: edge.begins.map(|row| match row {
                Row::Host(row) => Row::Host(hosts + row),
                Row::Device(row) => Row::Device(devices + row),
                Row::Untyped(row) => Row::Untyped(untyped + row),
            }),
            ..edge
        }));
        append_host(&mut self.trace.host, next.trace.host, &names, &tracks, first_stated);
        let renamed = |stated: &Stated| Stated {
            module: names[stated.module.index()],
            shares: names[stated.shares.index()],
            ..*stated
        };
        self.trace.stated.extend(next.trace.stated.iter().map(renamed));
        self.trace.messages.extend(next.trace.messages.iter().map(|message| Message {
            track: tracks[message.track.0 as usize],
            collective: names[message.collective.index()],
            group: names[message.group.index()],
            ranks: names[message.ranks.index()],
            ..*message
        }));
        append_device(&mut self.trace.device, next.trace.device, &names, &tracks);
        append_memory(&mut self.trace.memory, next.trace.memory, &tracks);
        let renamed = |sample: &Sample| Sample { series: names[sample.series.index()], ..*sample };
        self.trace.counters.extend(next.trace.counters.iter().map(renamed));
        let (sum, part) = (&mut self.trace.reading, &next.trace.reading);
        sum.events += part.events;
        sum.damaged_events += part.damaged_events;
        sum.impossible_durations += part.impossible_durations;
        sum.begin_end_spans += part.begin_end_spans;
        sum.async_events += part.async_events;
        self.end = next.end;
    }

    pub fn reading_mut(&mut self) -> &mut Reading {
        &mut self.trace.reading
    }

    /// Finishes the trace, once all fragments were appended.
    pub fn into_trace(mut self) -> Trace {
        let edges = std::mem::take(&mut self.edges);
        let never_end = tracks::close(edges, |row, nanos| match row {
            Row::Host(row) => self.trace.host.duration[row as usize] = nanos,
            Row::Device(row) => self.trace.device.duration[row as usize] = nanos,
            Row::Untyped(row) => self.untyped[row as usize].duration = nanos,
        });
        self.trace.reading.damaged_events += never_end;
        let (untyped, names) = (std::mem::take(&mut self.untyped), std::mem::take(&mut self.track_names));
        tracks::place(&mut self.trace, untyped, &names);
        let knows_none = self.trace.host.category.iter().all(|category| *category == Category::Other);
        if knows_none && self.trace.device.is_empty() && !self.foreign.is_empty() {
            self.trace.host.category.fill(Category::CpuOp);
            self.trace.reading.foreign_categories = self.foreign;
        }
        self.trace
    }
}

fn message(arguments: &RawArguments, track: TrackId, start: i64, names: &mut Names) -> Message {
    let width = element_bytes(arguments.message_type);
    let bytes = |elements: Option<i64>| unsigned(elements.map(|elements| elements.saturating_mul(width)));
    Message {
        track,
        start,
        collective: names.intern_bytes(arguments.collective),
        group: names.intern_bytes(arguments.group),
        ranks: names.intern_bytes(arguments.group_ranks),
        group_size: arguments.group_size.and_then(|size| u32::try_from(size).ok()).unwrap_or(0),
        bytes_in: bytes(arguments.message_elements),
        bytes_out: bytes(arguments.message_elements_out),
    }
}

fn note_foreign(foreign: &mut Vec<String>, category: &str) {
    if foreign.len() < MOST_FOREIGN_CATEGORIES && !foreign.iter().any(|known| known == category) {
        foreign.push(category.to_string());
    }
}

/// Facts that the operator states about itself, where it states any.
fn stated(arguments: &RawArguments, names: &mut Names) -> Option<Stated> {
    let says = !arguments.module.is_empty() || arguments.flops.is_some() || !arguments.phase.is_empty();
    let module = arguments.module.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\""));
    says.then(|| Stated {
        module: names.intern_bytes(module.unwrap_or_default()),
        shares: names.intern_bytes(arguments.shares),
        phase: Phase::from_name(arguments.phase),
        flops: unsigned(arguments.flops),
        bytes: unsigned(arguments.bytes),
        is_product: arguments.product,
        live: numbers(arguments.live),
    })
}

impl TrackTable {
    /// The number of the track; a new track is added.
    #[inline]
    fn number(&mut self, process: &[u8], thread: &[u8], tracks: &mut Vec<Track>) -> TrackId {
        let is_it = |key: &(Vec<u8>, Vec<u8>)| key.1 == thread && key.0 == process;
        if !self.keys.get(self.last as usize).is_some_and(is_it) {
            let hash = self.hasher.hash_one((process, thread));
            self.last = match self.table.find(hash, |&number| is_it(&self.keys[number as usize])) {
                Some(&found) => found,
                None => self.add(hash, process, thread, tracks),
            };
        }
        TrackId(self.last)
    }

    fn add(&mut self, hash: u64, process: &[u8], thread: &[u8], tracks: &mut Vec<Track>) -> u32 {
        let number = self.keys.len() as u32;
        self.keys.push((process.to_vec(), thread.to_vec()));
        tracks.push(Track { process: label(process), thread: label(thread) });
        let (keys, hasher) = (&self.keys, &self.hasher);
        let hash_of = |&other: &u32| {
            let (process, thread) = &keys[other as usize];
            hasher.hash_one((process.as_slice(), thread.as_slice()))
        };
        self.table.insert_unique(hash, number, hash_of);
        number
    }
}

fn label(text: &[u8]) -> Label {
    match text {
        [b'"', inner @ .., b'"'] => Label::Text(String::from_utf8_lossy(inner).into_owned()),
        _ => integer(text).map_or_else(|| Label::Text(String::from_utf8_lossy(text).into_owned()), Label::Number),
    }
}

fn intern(names: &mut Names, name: RawString) -> NameId {
    if name.has_escapes { names.intern(&name.unescaped()) } else { names.intern_bytes(name.bytes) }
}

fn unsigned(value: Option<i64>) -> u64 {
    value.and_then(|value| u64::try_from(value).ok()).unwrap_or(0)
}

/// Whether a call is one of ROCm's runtime. Older profilers there write the number that links it to its work as
/// `External id`, and no `correlation`.
pub fn is_of_rocm(call: &[u8]) -> bool {
    call.starts_with(b"hip")
}

fn id(value: Option<i64>) -> u32 {
    value.and_then(|value| u32::try_from(value).ok()).unwrap_or(NONE)
}

fn category_of(text: &[u8]) -> Category {
    std::str::from_utf8(text).map_or(Category::Other, Category::from_kineto)
}

/// Operators whose cost or meaning depends on arguments that are not tensors: strides, causality, output size.
fn needs_concrete_inputs(name: &[u8]) -> bool {
    let Some(name) = name.strip_prefix(b"aten::") else {
        return false;
    };
    let starts = |prefix: &[u8]| name.starts_with(prefix);
    let holds = |part: &[u8]| memchr::memmem::find(name, part).is_some();
    match name.first() {
        Some(b'o') => name == b"ones",
        Some(b'z') => name == b"zeros",
        Some(b'f') => name == b"full",
        Some(b'a') => starts(b"arange"),
        Some(b't') => starts(b"triu") || starts(b"tril"),
        Some(b'e') => starts(b"eye") || starts(b"empty") || name == b"embedding_dense_backward",
        Some(b'l') => starts(b"linspace"),
        _ => holds(b"conv") || holds(b"attention"),
    }
}

fn element_bytes(kind: &[u8]) -> i64 {
    let kind = kind.strip_prefix(b"\"").and_then(|kind| kind.strip_suffix(b"\"")).unwrap_or(kind);
    match kind {
        b"Double" | b"Long" | b"double" | b"long" => 8,
        b"Half" | b"BFloat16" | b"Short" | b"half" | b"bfloat16" => 2,
        b"Byte" | b"Char" | b"Bool" => 1,
        _ => 4,
    }
}
