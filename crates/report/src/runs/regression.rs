//! The answer of `headroom regress`.

use crate::numbers::seconds;
use headroom_record::registry::RunRow;
use headroom_record::registry::change::{Change, Verdict};
use headroom_record::statistics::step_statistics;
use serde::Serialize;
use std::fmt::Write;

#[derive(Clone, Debug, Serialize)]
pub struct Regression {
    pub baseline: RunRow,
    pub run: RunRow,
    pub change: Change,
    /// Allowed growth of the step, in percent.
    pub threshold_percent: f64,
    pub verdict: Verdict,
    /// Growth of planned memory, and the growth allowed, in percent.
    pub memory_growth_percent: Option<f64>,
    pub max_memory_growth_percent: Option<f64>,
    pub memory_regressed: bool,
    /// Steps of both sides, in seconds, if they were run again in alternation: the change is computed from these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<Turn>,
    /// Notes on differences in how the two runs were made.
    pub notes: Vec<String>,
}

/// One round: the median step of each side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Turn {
    pub baseline_seconds: f64,
    pub run_seconds: f64,
}

impl Regression {
    /// Whether neither a regression nor its absence is shown.
    pub fn is_undecided(&self) -> bool {
        self.verdict == Verdict::Undecided && !self.memory_regressed
    }

    /// Median steps of the baseline and the run, as they were judged.
    fn steps(&self) -> [Option<f64>; 2] {
        if self.turns.is_empty() {
            return [self.baseline.figures.step_seconds, self.run.figures.step_seconds];
        }
        let median = |of: fn(&Turn) -> f64| step_statistics(&self.turns.iter().map(of).collect::<Vec<f64>>()).median;
        [median(|turn| turn.baseline_seconds), median(|turn| turn.run_seconds)]
    }

    pub fn regressed(&self) -> bool {
        self.verdict == Verdict::Regression || self.memory_regressed
    }
}

/// The verdict in the first line, then the figures it is based on.
pub fn regression(answer: &Regression) -> String {
    let mut out = String::new();
    let first = match (answer.verdict, answer.memory_regressed) {
        (Verdict::Regression, _) => "regression: steps are slower than the baseline's",
        (_, true) => "regression: more memory than the baseline",
        (Verdict::Faster, _) => "no regression: steps are faster than the baseline's",
        (Verdict::NoRegression, _) => "no regression",
        (Verdict::Undecided, _) => "not decided: the interval contains the threshold",
    };
    let _ = writeln!(out, "{first}");
    let [before, after] = answer.steps();
    let _ = writeln!(
        out,
        "  step {} → {}, {} (threshold +{}%)",
        before.map_or("?".into(), seconds),
        after.map_or("?".into(), seconds),
        change_text(&answer.change),
        answer.threshold_percent
    );
    if !answer.turns.is_empty() {
        let _ = writeln!(out, "  run again, alternating, {} times each", answer.turns.len());
    }
    if let (Some(growth), Some(before), Some(after)) =
        (answer.memory_growth_percent, answer.baseline.figures.peak_memory_mb, answer.run.figures.peak_memory_mb)
    {
        let limit = answer.max_memory_growth_percent.map_or(String::new(), |most| format!(" (at most +{most}%)"));
        let _ = writeln!(out, "  memory {before:.1} MiB → {after:.1} MiB, {growth:+.1}%{limit}");
    }
    let named = |run: &RunRow| match &run.name {
        Some(name) => format!("run {} ({name}, {})", run.id, run.start.started),
        None => format!("run {} ({})", run.id, run.start.started),
    };
    let _ = writeln!(out, "  baseline {}, against {}", named(&answer.baseline), named(&answer.run));
    for note in &answer.notes {
        let _ = writeln!(out, "  note: {note}");
    }
    out
}

/// `+3.1% (95%: +2.0% to +4.4%)`.
pub fn change_text(change: &Change) -> String {
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    format!("{:+.1}% (95%: {:+.1}% to {:+.1}%)", percent(change.ratio), percent(change.low), percent(change.high))
}
