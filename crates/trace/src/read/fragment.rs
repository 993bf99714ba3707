//! Events of one block of text as columns with their own names, and how fragments become one trace.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::category::Category;
use crate::columns::{DeviceSpans, HOST_MEMORY, HostSpans, Label, Lane, LaneId, MemoryEvents, NONE};
use crate::names::{NameId, Names};
use crate::run::{Phase, Stated};
use crate::trace::{Reading, Trace};

use super::event::{Duration, RawArguments, RawEvent, event, next_candidate, numbers};
use super::json::{Cursor, RawString, Stop, integer};

#[derive(Default)]
pub struct Fragment {
    trace: Trace,
    lanes: LaneTable,
    end: End,
}

/// How the text of a block ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// Between two events.
    #[default]
    Between,
    /// The list was closed; what follows it starts here.
    Closed(usize),
    /// Within the event that starts here.
    Within(usize),
}

/// The lanes met so far, by their text. The last one usually comes again.
#[derive(Clone, Debug, Default)]
struct LaneTable {
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

    /// As [`Fragment::read`] from `from` on, added to what is here. Objects at the places of `endless`, which are in order,
    /// are known not to end: they are not read to find out again.
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

    /// After damage: goes on where the next event may begin, or tells how the block ends without one.
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
            b'X' => self.add_span(event),
            b'i' | b'I' if event.name.bytes == b"[memory]" => self.add_memory(event),
            _ => {}
        }
    }

    fn add_span(&mut self, event: &RawEvent) {
        let duration = match event.duration {
            Duration::Nanos(nanos) => nanos,
            Duration::Impossible => return self.trace.reading.impossible_durations += 1,
            Duration::Missing => return self.trace.reading.damaged_events += 1,
        };
        let (Some(start), false) = (event.start, event.name.bytes.is_empty()) else {
            return self.trace.reading.damaged_events += 1;
        };
        let category = category_of(event.category);
        let lane = self.lanes.number(event.process, event.thread, &mut self.trace.lanes);
        let names = &mut self.trace.names;
        let name = intern(names, event.name);
        let arguments = &event.arguments;
        if category.is_on_device() {
            let spans = &mut self.trace.device;
            spans.name.push(name);
            spans.category.push(category);
            spans.lane.push(lane);
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
        } else {
            let spans = &mut self.trace.host;
            spans.name.push(name);
            spans.category.push(category);
            spans.lane.push(lane);
            spans.start.push(start);
            spans.duration.push(duration);
            spans.id.push(id(match category {
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
        }
    }

    fn add_memory(&mut self, event: &RawEvent) {
        let arguments = &event.arguments;
        let (Some(time), Some(bytes)) = (event.start, arguments.bytes) else {
            return self.trace.reading.damaged_events += 1;
        };
        let lane = self.lanes.number(event.process, event.thread, &mut self.trace.lanes);
        let memory = &mut self.trace.memory;
        memory.time.push(time);
        memory.lane.push(lane);
        memory.bytes.push(bytes);
        memory.address.push(unsigned(arguments.address));
        memory.allocated.push(unsigned(arguments.total_allocated));
        memory.reserved.push(unsigned(arguments.total_reserved));
        // Type 0 is the host; every other one a device of some maker.
        memory.device.push(match (arguments.device_type, arguments.device_id) {
            (Some(0) | None, _) => HOST_MEMORY,
            (_, id) => id.and_then(|id| u16::try_from(id).ok()).unwrap_or(0),
        });
    }

    /// Adds what `next` holds, its names and lanes renumbered.
    pub fn append(&mut self, next: Fragment) {
        let names: Vec<NameId> = next.trace.names.iter().map(|(_, name)| self.trace.names.intern(name)).collect();
        let lanes: Vec<LaneId> = next
            .lanes
            .keys
            .iter()
            .map(|(process, thread)| self.lanes.number(process, thread, &mut self.trace.lanes))
            .collect();
        let first_stated = self.trace.stated.len() as u32;
        append_host(&mut self.trace.host, next.trace.host, &names, &lanes, first_stated);
        let renamed = |stated: &Stated| Stated {
            module: names[stated.module.index()],
            shares: names[stated.shares.index()],
            ..*stated
        };
        self.trace.stated.extend(next.trace.stated.iter().map(renamed));
        append_device(&mut self.trace.device, next.trace.device, &names, &lanes);
        append_memory(&mut self.trace.memory, next.trace.memory, &lanes);
        let (sum, part) = (&mut self.trace.reading, &next.trace.reading);
        sum.events += part.events;
        sum.damaged_events += part.damaged_events;
        sum.impossible_durations += part.impossible_durations;
        self.end = next.end;
    }

    pub fn reading_mut(&mut self) -> &mut Reading {
        &mut self.trace.reading
    }

    pub fn into_trace(self) -> Trace {
        self.trace
    }
}

/// What the operator says of itself, where it says anything.
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

fn append_host(sum: &mut HostSpans, mut part: HostSpans, names: &[NameId], lanes: &[LaneId], first_stated: u32) {
    sum.name.extend(part.name.iter().map(|id| names[id.index()]));
    sum.category.append(&mut part.category);
    sum.lane.extend(part.lane.iter().map(|id| lanes[id.0 as usize]));
    sum.start.append(&mut part.start);
    sum.duration.append(&mut part.duration);
    sum.id.append(&mut part.id);
    sum.sequence.append(&mut part.sequence);
    sum.dims.extend(part.dims.iter().map(|id| names[id.index()]));
    sum.types.extend(part.types.iter().map(|id| names[id.index()]));
    sum.concrete.extend(part.concrete.iter().map(|id| names[id.index()]));
    sum.stated.extend(part.stated.iter().map(|&row| if row == NONE { NONE } else { first_stated + row }));
}

fn append_device(sum: &mut DeviceSpans, mut part: DeviceSpans, names: &[NameId], lanes: &[LaneId]) {
    sum.name.extend(part.name.iter().map(|id| names[id.index()]));
    sum.category.append(&mut part.category);
    sum.lane.extend(part.lane.iter().map(|id| lanes[id.0 as usize]));
    sum.start.append(&mut part.start);
    sum.duration.append(&mut part.duration);
    sum.correlation.append(&mut part.correlation);
    sum.external.append(&mut part.external);
    sum.bytes.append(&mut part.bytes);
    sum.grid.append(&mut part.grid);
    sum.block.append(&mut part.block);
    sum.occupancy.append(&mut part.occupancy);
}

fn append_memory(sum: &mut MemoryEvents, mut part: MemoryEvents, lanes: &[LaneId]) {
    sum.time.append(&mut part.time);
    sum.lane.extend(part.lane.iter().map(|id| lanes[id.0 as usize]));
    sum.address.append(&mut part.address);
    sum.bytes.append(&mut part.bytes);
    sum.allocated.append(&mut part.allocated);
    sum.reserved.append(&mut part.reserved);
    sum.device.append(&mut part.device);
}

impl LaneTable {
    /// The number of the lane, which is added when new.
    #[inline]
    fn number(&mut self, process: &[u8], thread: &[u8], lanes: &mut Vec<Lane>) -> LaneId {
        let is_it = |key: &(Vec<u8>, Vec<u8>)| key.1 == thread && key.0 == process;
        if !self.keys.get(self.last as usize).is_some_and(is_it) {
            let hash = self.hasher.hash_one((process, thread));
            self.last = match self.table.find(hash, |&number| is_it(&self.keys[number as usize])) {
                Some(&found) => found,
                None => self.add(hash, process, thread, lanes),
            };
        }
        LaneId(self.last)
    }

    fn add(&mut self, hash: u64, process: &[u8], thread: &[u8], lanes: &mut Vec<Lane>) -> u32 {
        let number = self.keys.len() as u32;
        self.keys.push((process.to_vec(), thread.to_vec()));
        lanes.push(Lane { process: label(process), thread: label(thread) });
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

fn id(value: Option<i64>) -> u32 {
    value.and_then(|value| u32::try_from(value).ok()).unwrap_or(NONE)
}

fn category_of(text: &[u8]) -> Category {
    std::str::from_utf8(text).map_or(Category::Other, Category::from_kineto)
}

/// Operators whose cost or meaning hangs on arguments that are no tensors: strides, causality, the size to make.
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
        Some(b'e') => starts(b"eye") || starts(b"empty"),
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
