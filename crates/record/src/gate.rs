//! A gate (a check with a limit), and its form in files.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    pub name: &'static str,
    pub answer: Answer,
    /// Measured value, and the limit it is compared with.
    pub figure: f64,
    pub limit: f64,
    pub about: String,
    /// 95% confidence interval of the figure, if it was timed.
    pub interval: Option<(f64, f64)>,
}

impl Gate {
    pub fn passed(&self) -> bool {
        self.answer == Answer::Pass
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Pass,
    Fail,
    /// The measured interval contains the limit.
    Undecided,
}

impl Answer {
    pub fn name(self) -> &'static str {
        match self {
            Answer::Pass => "pass",
            Answer::Fail => "fail",
            Answer::Undecided => "undecided",
        }
    }
}

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
