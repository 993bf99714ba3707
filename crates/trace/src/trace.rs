//! A trace: everything a profiler recorded about one process of a run.

use serde::{Deserialize, Serialize};

use crate::columns::{DeviceSpans, HostSpans, MemoryEvents, Track, TrackId};
use crate::counters::Sample;
use crate::messages::{self, Message};
use crate::names::{NameId, Names};
use crate::run::{RecordingHeader, RunHeader, Stated};

#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The file's name, without its folder.
    pub name: String,
    pub header: Header,
    pub names: Names,
    pub tracks: Vec<Track>,
    pub host: HostSpans,
    /// Rows of the few operators that state their module, phase, FLOPs or bytes.
    pub stated: Vec<Stated>,
    pub device: DeviceSpans,
    pub memory: MemoryEvents,
    /// In order of time.
    pub counters: Vec<Sample>,
    /// Messages of collectives, in order of track and start.
    pub messages: Vec<Message>,
    pub reading: Reading,
    /// Other steps of the same run, recorded with a light profiler.
    pub light: Option<Box<Trace>>,
}

/// Metadata before and after the events.
#[derive(Clone, Debug, Default)]
pub struct Header {
    pub devices: Vec<DeviceProperties>,
    pub distributed: Option<Distributed>,
    pub records_shapes: bool,
    pub records_stacks: bool,
    pub records_memory: bool,
    pub records_flops: bool,
    /// Nanoseconds since 1970 at the trace's time zero, where the profiler gives a base.
    pub base_nanos: Option<i64>,
    /// A headroom run's own facts: measured peaks, the plan, the steps around the recorded ones.
    pub headroom: Option<RunHeader>,
    /// Steps that `headroom record` timed before it recorded these.
    pub recording: Option<RecordingHeader>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceProperties {
    pub id: u32,
    pub name: String,
    #[serde(rename = "totalGlobalMem")]
    pub memory_bytes: u64,
    #[serde(rename = "computeMajor")]
    pub compute_major: u32,
    #[serde(rename = "computeMinor")]
    pub compute_minor: u32,
    #[serde(rename = "numSms")]
    pub multiprocessors: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Distributed {
    pub backend: String,
    pub rank: u32,
    pub world_size: u32,
}

/// How well the file could be read. Besides `bytes` and `events`, everything is zero, empty or `None` for an intact
/// file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Reading {
    pub bytes: u64,
    pub events: u64,
    /// Where the text ended before the list of events did.
    pub truncated_at_byte: Option<u64>,
    /// Events that are not JSON, or lack a field that their kind requires.
    pub damaged_events: u64,
    /// Spans dropped because their duration is negative or longer than a fortnight.
    pub impossible_durations: u64,
    /// Categories of a file that uses none of a profiler's: its spans count as host operators.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub foreign_categories: Vec<String>,
    /// Spans without a category, as PyTorch's profiler before Kineto writes them. JAX's are not counted.
    #[serde(skip)]
    pub uncategorised_spans: u64,
    /// Those on a device that lie inside another one: operators' times on the device, not kernels.
    #[serde(skip)]
    pub nested_device_spans: u64,
    /// Spans with one event for their begin and one for their end.
    #[serde(skip)]
    pub begin_end_spans: u64,
    /// Events of asynchronous spans. They belong to no thread and may overlap, so they are left out.
    #[serde(skip)]
    pub async_events: u64,
    /// Whether XLA ran the work: the trace comes from JAX's profiler.
    #[serde(skip)]
    pub is_of_xla: bool,
    /// Files of the folder that were left out because they are not traces, each with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped_files: Vec<String>,
}

impl Trace {
    pub fn name(&self, id: NameId) -> &str {
        self.names.get(id)
    }

    pub fn track(&self, id: TrackId) -> &Track {
        &self.tracks[id.0 as usize]
    }

    /// Facts that the host span at `at` states about itself.
    pub fn stated(&self, at: usize) -> Option<&Stated> {
        self.stated.get(self.host.stated[at] as usize)
    }

    /// The message of the device span at `at`, if it is a collective that states one.
    pub fn message(&self, at: usize) -> Option<&Message> {
        messages::find(&self.messages, self.device.track[at], self.device.start[at])
    }

    /// The rank in a distributed run; 0 where the trace states none.
    pub fn rank(&self) -> u32 {
        self.header.distributed.as_ref().map_or(0, |distributed| distributed.rank)
    }
}
