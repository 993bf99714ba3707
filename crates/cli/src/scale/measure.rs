//! Runs a point of a sweep in a separate process.

use crate::study::child::{ChildEnd, run_child};
use crate::train::request::TrainRequest;
use headroom_record::performance::PerformanceRecord;
use headroom_record::scaling::ScalingPoint;
use headroom_record::statistics::StepStatistics;
use std::path::Path;
use std::sync::atomic::AtomicBool;

pub struct Measuring<'a> {
    pub folder: &'a Path,
    pub parent: Option<i64>,
    pub stop: &'a AtomicBool,
}

pub struct Figures {
    pub statistics: StepStatistics,
    pub samples_per_sec: Option<f64>,
    pub tokens_per_sec: Option<f64>,
    pub process_peak_memory_mb: Option<f64>,
}

pub enum Measured {
    Done(Figures),
    Broken(String),
    Stopped,
}

impl Measuring<'_> {
    /// Runs `train` into a folder of this name.
    pub fn run(&self, request: &TrainRequest, name: &str) -> anyhow::Result<Measured> {
        let words = [vec!["train".to_string()], request.flags()].concat();
        let end = run_child(&words, &self.folder.join(name), self.parent, self.stop, |_| Ok(()))?;
        Ok(match end {
            ChildEnd::Finished(record) => Measured::Done(figures(&record)),
            ChildEnd::Failed(why) | ChildEnd::Killed(why) => Measured::Broken(why),
            ChildEnd::Stopped => Measured::Stopped,
        })
    }
}

pub fn figures(record: &PerformanceRecord) -> Figures {
    let summary = &record.performance_summary;
    // GPU memory is not part of the process's memory.
    let ran = record.system_info.device == "cpu";
    Figures {
        statistics: record.statistics,
        samples_per_sec: summary.avg_training_speed,
        tokens_per_sec: summary.tokens_per_sec,
        process_peak_memory_mb: summary.process_peak_memory_mb.filter(|_| ran),
    }
}

impl Figures {
    pub fn write_into(self, point: &mut ScalingPoint) {
        point.step_seconds = self.statistics.median;
        point.step_seconds_low = self.statistics.ci95_low;
        point.step_seconds_high = self.statistics.ci95_high;
        point.samples_per_sec = self.samples_per_sec;
        point.tokens_per_sec = self.tokens_per_sec;
        point.process_peak_memory_mb = self.process_peak_memory_mb;
    }
}
