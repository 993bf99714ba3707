//! The list of runs: one row each, with the figures by which to choose.

use headroom_diagnosis::Analysis;
use serde::Serialize;

use super::records::RunRecords;
use crate::analyze::withholds_idle;

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
    /// For a trace: the share of the step in which the device was busy, and its first finding.
    pub busy_share: Option<f64>,
    pub first_finding: Option<String>,
}

/// Figures that the list shows for a trace that was read.
#[derive(Clone, Debug, Default)]
pub struct TraceFigures {
    pub device: Option<String>,
    pub ranks: usize,
    pub step_seconds: f64,
    pub busy_share: Option<f64>,
    pub peak_memory_bytes: u64,
    pub mfu_percent: Option<f64>,
    pub first_finding: Option<String>,
    /// Why the trace could not be read.
    pub problem: Option<String>,
}

impl TraceFigures {
    pub fn of(analysis: &Analysis) -> TraceFigures {
        let measures = &analysis.measures;
        let first = analysis.findings.first().map(|finding| match finding.share_of_step {
            Some(share) => format!("{} {} {:.0}%", finding.code, finding.name, 100.0 * share),
            None => format!("{} {}", finding.code, finding.name),
        });
        TraceFigures {
            device: analysis.trace.device.clone(),
            ranks: analysis.ranks.as_ref().map_or(1, |ranks| ranks.ranks.len()),
            step_seconds: measures.breakdown.wall_seconds / analysis.steps.count(),
            busy_share: Some(measures.breakdown.busy_share).filter(|_| !withholds_idle(analysis)),
            peak_memory_bytes: measures.memory.peak_bytes,
            mfu_percent: measures.roofline.mfu_percent,
            first_finding: first,
            problem: None,
        }
    }
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
    /// A process holds the folder's lock.
    Running,
    /// No process holds the folder's lock, and there is no summary in it.
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

    /// The row of a trace: without `figures` it has not been read yet.
    pub fn of_trace(id: String, name: String, folder: String, figures: Option<TraceFigures>) -> RunRow {
        let bare = RunRow::bare(id, name, folder, Kind::Trace, Status::Finished);
        let Some(figures) = figures else { return bare };
        if let Some(problem) = figures.problem {
            return RunRow { first_finding: Some(problem), ..bare };
        }
        RunRow {
            device: figures.device,
            size: (figures.ranks > 1).then(|| format!("{} ranks", figures.ranks)),
            step_seconds: (figures.step_seconds > 0.0).then_some(figures.step_seconds),
            peak_memory_mb: (figures.peak_memory_bytes > 0)
                .then_some(figures.peak_memory_bytes as f64 / f64::from(1 << 20)),
            mfu_percent: figures.mfu_percent,
            busy_share: figures.busy_share,
            first_finding: figures.first_finding,
            ..bare
        }
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
            busy_share: None,
            first_finding: None,
        }
    }
}
