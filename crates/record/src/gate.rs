//! A gate, a check with a limit, as the files hold it.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateRecord {
    /// `pass`, `fail` or, of `throughput`, `undecided`: the interval holds the limit.
    pub result: String,
    pub figure: f64,
    pub limit: f64,
    pub about: String,
    /// 95% interval of a figure that was timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95_low: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95_high: Option<f64>,
}
