//! What happened: the events of a run, and the readers and writers of profiler traces.

pub mod category;
pub mod columns;
pub mod names;
mod trace;

pub use category::{CallKind, Category};
pub use columns::{DeviceSpans, HostSpans, Label, Lane, LaneId, MemoryEvents};
pub use names::{NameId, Names};
pub use trace::{DeviceProperties, Distributed, Header, Reading, Trace};
