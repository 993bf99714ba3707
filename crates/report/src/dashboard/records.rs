//! The files of a run folder, as far as they exist.

use headroom_record::config::ConfigRecord;
use headroom_record::flops::FlopsRecord;
use headroom_record::intensity::IntensityRecord;
use headroom_record::memory::MemoryRecord;
use headroom_record::operators::OperatorRecord;
use headroom_record::performance::PerformanceRecord;
use headroom_record::roofline::RooflineRecord;
use headroom_record::timeline::TimelineRecord;

/// The records of a run. A run that was only trained has the first two; one still in progress has the first.
#[derive(Clone, Debug, Default)]
pub struct RunRecords {
    pub config: Option<ConfigRecord>,
    pub performance: Option<PerformanceRecord>,
    pub flops: Option<FlopsRecord>,
    pub intensity: Option<IntensityRecord>,
    pub roofline: Option<RooflineRecord>,
    pub operators: Option<OperatorRecord>,
    pub memory: Option<MemoryRecord>,
    pub timeline: Option<TimelineRecord>,
    /// Files that exist but could not be read, one sentence each.
    pub unreadable: Vec<String>,
}
