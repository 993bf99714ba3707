//! A finding: one cause that costs time or memory, where it is, what shows it and what to do.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The root cause of a finding. A source rule suspects a cause, a trace rule measures it; findings with the same cause
/// at the same place are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    HostSync,
    GpuIdle,
    LaunchBound,
    DataLoading,
    HostCopies,
    NoTensorCores,
    AttentionMaterialised,
    SmallKernels,
    OptimizerPerParameter,
    MemoryNearLimit,
    AllocatorChurn,
    MemoryGrows,
    BelowRoof,
    ConstantRebuilt,
    CommunicationExposed,
    Straggler,
    BatchTooSmall,
    UnevenSteps,
    CpuBoundOperator,
    ProfilerOverhead,
    PassMissing,
    ColdStart,
    DeviceStalled,
    DeviceCopies,
    Recomputed,
    /// Not about speed: stability, or the accuracy of a log.
    Practice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Low,
    Medium,
    High,
    Critical,
}

impl Severity {
    /// Severity from the measured cost, as a share of the step.
    pub fn of_share(share: f64) -> Severity {
        match share {
            share if share >= 0.25 => Severity::Critical,
            share if share >= 0.10 => Severity::High,
            share if share >= 0.03 => Severity::Medium,
            _ => Severity::Low,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Severity::Low => "low",
            Severity::Medium => "medium",
            Severity::High => "high",
            Severity::Critical => "critical",
        }
    }
}

/// `12.4% of the step`.
pub fn percent_of_step(share: f64) -> String {
    let decimals = if share < 0.01 { 2 } else { 1 };
    format!("{:.decimals$}% of the step", 100.0 * share)
}

impl fmt::Display for Severity {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// How much work it takes to follow the advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    Low,
    Medium,
    High,
}

/// How certain the finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    Low,
    Medium,
    High,
}

/// A place in the source: lines and columns count from 1, columns in characters, the end is exclusive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Place {
    pub file: String,
    /// In a notebook: the cell, counted from 1 including text cells. Lines are relative to the cell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cell: Option<u32>,
    pub line: u32,
    pub column: u32,
    pub end_line: u32,
    pub end_column: u32,
}

impl Place {
    /// `train.py:12`; in a notebook `study.ipynb:cell 3:12`.
    pub fn shown(&self) -> String {
        match self.cell {
            Some(cell) => format!("{}:cell {cell}:{}", self.file, self.line),
            None => format!("{}:{}", self.file, self.line),
        }
    }
}
