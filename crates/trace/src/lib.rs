//! Records of runs: their events, and readers and writers of profiler traces.

pub mod category;
pub mod columns;
pub mod counters;
pub mod messages;
pub mod names;
mod read;
pub mod run;
mod trace;
pub mod validate;
pub mod write;

pub use category::{CallKind, Category};
pub use columns::{DeviceSpans, HOST_MEMORY, HostSpans, Label, MemoryEvents, NONE, Track, TrackId};
pub use counters::Sample;
pub use messages::Message;
pub use names::{NameId, Names};
pub use read::{GzipRatio, ReadError, begins_as_trace, read, read_bytes, read_file, read_packed};
pub use run::{Phase, RecordingHeader, RunHeader, Stated};
pub use trace::{DeviceProperties, Distributed, Header, Reading, Trace};
