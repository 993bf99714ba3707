//! The list of runs: a row each, with the figures that one chooses by.

use serde::Serialize;

use super::records::RunRecords;

#[derive(Clone, Debug, Serialize)]
pub struct RunRow {
    pub id: String,
    pub name: String,
    pub folder: String,
    pub kind: Kind,
    pub status: Status,
    pub size: Option<String>,
    pub version: Option<String>,
    pub device: Option<String>,
    pub timestamp: Option<String>,
    pub parameters: Option<u64>,
    pub step_seconds: Option<f64>,
    pub tokens_per_second: Option<f64>,
    pub peak_memory_mb: Option<f64>,
    pub mfu_percent: Option<f64>,
    pub bound: Option<&'static str>,
    pub final_loss: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Run,
    Trace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Finished,
    /// A process holds the folder.
    Running,
    /// Nobody holds the folder, and there is no summary in it.
    Stopped,
}

impl RunRow {
    pub fn of_run(id: String, name: String, folder: String, status: Status, records: &RunRecords) -> RunRow {
        let config = records.config.as_ref();
        let record = records.performance.as_ref();
        let summary = record.map(|record| &record.performance_summary);
        RunRow {
            size: config.map(|config| config.size.clone()),
            version: config.map(|config| config.version.clone()),
            device: record.map(|record| record.system_info.device.clone()),
            timestamp: config.map(|config| config.timestamp.clone()),
            parameters: config.map(|config| config.configuration.parameters),
            step_seconds: record.and_then(|record| record.statistics.median),
            tokens_per_second: summary.and_then(|summary| summary.tokens_per_sec),
            peak_memory_mb: summary.and_then(|summary| summary.peak_memory_mb),
            mfu_percent: records.flops.as_ref().map(|flops| flops.efficiency_metrics.mfu_percent),
            bound: records.intensity.as_ref().map(|intensity| intensity.memory_bound_vs_compute_bound.word()),
            final_loss: summary.and_then(|summary| summary.final_loss),
            ..RunRow::bare(id, name, folder, Kind::Run, status)
        }
    }

    /// Of a trace nothing is known before it is read.
    pub fn of_trace(id: String, name: String, folder: String) -> RunRow {
        RunRow::bare(id, name, folder, Kind::Trace, Status::Finished)
    }

    fn bare(id: String, name: String, folder: String, kind: Kind, status: Status) -> RunRow {
        RunRow {
            id,
            name,
            folder,
            kind,
            status,
            size: None,
            version: None,
            device: None,
            timestamp: None,
            parameters: None,
            step_seconds: None,
            tokens_per_second: None,
            peak_memory_mb: None,
            mfu_percent: None,
            bound: None,
            final_loss: None,
        }
    }
}
