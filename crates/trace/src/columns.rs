//! The columns that hold a trace's events. Times are nanoseconds on the trace's own clock.

use crate::category::Category;
use crate::names::NameId;

/// Marks a missing number.
pub const NONE: u32 = u32::MAX;

/// A host thread or device stream, as an index into [`crate::Trace::tracks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TrackId(pub u32);

/// A row of the trace viewer: a process and one of its threads, or a device and one of its streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    pub process: Label,
    pub thread: Label,
}

/// A process or thread: Kineto numbers most of them and names a few.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Label {
    Number(i64),
    Text(String),
}

impl Label {
    pub fn number(&self) -> Option<i64> {
        match self {
            Label::Number(number) => Some(*number),
            Label::Text(_) => None,
        }
    }
}

/// Spans on the host: operators, annotations, Python functions and runtime calls, ordered by track, then start, the
/// longer first.
#[derive(Clone, Debug, Default)]
pub struct HostSpans {
    pub name: Vec<NameId>,
    pub category: Vec<Category>,
    pub track: Vec<TrackId>,
    pub start: Vec<i64>,
    pub duration: Vec<i64>,
    /// External id of an operator or annotation, correlation id of a runtime call, or [`NONE`].
    pub id: Vec<u32>,
    /// Links a forward operator to its backward, or [`NONE`].
    pub sequence: Vec<u32>,
    /// The JSON of `Input Dims`, `Input type` and (for operators whose cost or meaning depends on it) `Concrete
    /// Inputs`.
    pub dims: Vec<NameId>,
    pub types: Vec<NameId>,
    pub concrete: Vec<NameId>,
    /// Index into [`crate::Trace::stated`] of the facts that the operator states about itself, or [`NONE`].
    pub stated: Vec<u32>,
}

/// Spans on devices, ordered by track and start.
#[derive(Clone, Debug, Default)]
pub struct DeviceSpans {
    pub name: Vec<NameId>,
    pub category: Vec<Category>,
    pub track: Vec<TrackId>,
    pub start: Vec<i64>,
    pub duration: Vec<i64>,
    /// The runtime call that queued it, or [`NONE`].
    pub correlation: Vec<u32>,
    /// The operator in which that call was made, or [`NONE`].
    pub external: Vec<u32>,
    /// Bytes moved by a copy or a fill, or sent by a collective; otherwise 0.
    pub bytes: Vec<u64>,
    pub grid: Vec<[u32; 3]>,
    pub block: Vec<[u32; 3]>,
    /// The profiler's estimate in percent; 255 if it gave none.
    pub occupancy: Vec<u8>,
}

/// Allocations (positive bytes) and releases (negative), in order of time.
#[derive(Clone, Debug, Default)]
pub struct MemoryEvents {
    pub time: Vec<i64>,
    pub track: Vec<TrackId>,
    pub address: Vec<u64>,
    pub bytes: Vec<i64>,
    /// Bytes live on the device after the event, and bytes that its allocator holds.
    pub allocated: Vec<u64>,
    pub reserved: Vec<u64>,
    /// Device number, or [`HOST_MEMORY`].
    pub device: Vec<u16>,
}

/// The `device` value for memory on the host.
pub const HOST_MEMORY: u16 = u16::MAX;

impl HostSpans {
    pub fn len(&self) -> usize {
        self.name.len()
    }

    pub fn is_empty(&self) -> bool {
        self.name.is_empty()
    }

    pub fn end(&self, index: usize) -> i64 {
        self.start[index] + self.duration[index]
    }
}

impl DeviceSpans {
    pub fn len(&self) -> usize {
        self.name.len()
    }

    pub fn is_empty(&self) -> bool {
        self.name.is_empty()
    }

    pub fn end(&self, index: usize) -> i64 {
        self.start[index] + self.duration[index]
    }

    /// The spans during which a device works: kernels, copies and fills.
    pub fn busy(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.len()).filter(|&index| self.category[index].keeps_device_busy())
    }
}

impl MemoryEvents {
    pub fn len(&self) -> usize {
        self.time.len()
    }

    pub fn is_empty(&self) -> bool {
        self.time.is_empty()
    }
}
