//! A gate (a check with a limit) as the files store it.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateRecord {
    /// `pass`, `fail` or, for `throughput`, `undecided`: the interval contains the limit.
    pub result: String,
    pub figure: f64,
    pub limit: f64,
    pub about: String,
    /// 95% confidence interval, if the figure was timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95_low: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95_high: Option<f64>,
}
