//! A profile as a person reads it: in short on the terminal, as Markdown, and as one HTML page that needs nothing else.

mod breakdown_bar;
mod html;
mod markdown;
mod memory_plot;
mod roofline_plot;
mod tables;
mod terminal;

pub use html::html;
pub use markdown::markdown;
pub use terminal::terminal;

use headroom_record::attribution::AttributionRecord;
use headroom_record::flops::FlopsRecord;
use headroom_record::intensity::IntensityRecord;
use headroom_record::memory::MemoryRecord;
use headroom_record::operators::OperatorRecord;
use headroom_record::performance::PerformanceRecord;
use headroom_record::roofline::RooflineRecord;
use headroom_record::timeline::TimelineRecord;

pub struct Profile<'a> {
    pub size: &'a str,
    /// Passes and precision, as the run's opening names them.
    pub label: &'a str,
    pub performance: &'a PerformanceRecord,
    pub flops: &'a FlopsRecord,
    pub intensity: &'a IntensityRecord,
    pub roofline: &'a RooflineRecord,
    pub operators: &'a OperatorRecord,
    pub memory: &'a MemoryRecord,
    pub timeline: &'a TimelineRecord,
    /// What steps chose to update, where they chose.
    pub attribution: Option<&'a AttributionRecord>,
    /// First and last recorded step.
    pub steps: (u64, u64),
    pub first_step_seconds: Option<f64>,
    /// Steps that were recorded in turns with others, only to see what recording costs.
    pub turns: u64,
}
