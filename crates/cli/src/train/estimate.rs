//! A lower bound on a run's time from its plan and the machine's peaks, known before the first step.

use super::plan::Planned;
use super::settings::Settings;
use super::start::{between, kept_rates, link};
use headroom_engine::DeviceSpec;
use headroom_engine::peaks::ASSUMED_RATES;
use headroom_graph::Phase;
use headroom_graph::cost::{Rates, predicted_among_ranks, predicted_seconds};
use headroom_report::numbers::seconds;
use headroom_training::program::TrainingProgram;

pub struct Estimate {
    pub step_seconds: f64,
    /// Whether the machine's peaks were measured.
    pub measured: bool,
}

impl Estimate {
    /// The estimate; `None` on a GPU whose peaks were never measured: there is nothing to assume.
    pub fn of(settings: &Settings, planned: &Planned) -> Option<Estimate> {
        let (rates, measured) = match (kept_rates(settings), settings.device) {
            (Some(rates), _) => (rates, true),
            (None, DeviceSpec::Cuda(_)) => return None,
            (None, _) => (ASSUMED_RATES, false),
        };
        Some(Estimate { step_seconds: step_seconds(settings, planned, &rates), measured })
    }

    /// The estimate as a line of the opening.
    pub fn line(&self, steps: u64) -> String {
        let by = match self.measured {
            true => "this machine's measured peaks",
            false => "assumed peaks (`headroom device` measures this machine)",
        };
        let whole = duration(self.step_seconds * steps as f64);
        format!("{whole} at least, {} per step: the plan at {by}", seconds(self.step_seconds))
    }
}

fn step_seconds(settings: &Settings, planned: &Planned, rates: &Rates) -> f64 {
    let (plan, accumulation) = (&planned.training.program.plan, settings.optimizer.accumulation);
    let phase =
        |phase: Phase| plan.calls[plan.phase(phase)].iter().map(|call| predicted_seconds(call, rates)).sum::<f64>();
    let micro_batch = phase(Phase::Forward) + phase(Phase::Backward);
    match planned.training.ranks {
        1 => micro_batch * accumulation as f64 + phase(Phase::Optimizer),
        _ => micro_batch * (accumulation - 1) as f64 + among_ranks(settings, planned, rates).0,
    }
}

/// The time of one micro-batch and the update, and the part of it in which a rank waits for others.
fn among_ranks(settings: &Settings, planned: &Planned, rates: &Rates) -> (f64, f64) {
    let TrainingProgram { program, ranks, .. } = &planned.training;
    predicted_among_ranks(&program.graph, &program.plan, rates, &link(between(settings), *ranks).0)
}

/// The opening's lines about several ranks.
pub fn ranks_line(settings: &Settings, planned: &Planned, started: Option<String>) -> Option<String> {
    if settings.ranks < 2 {
        return None;
    }
    let (step, exposed) = among_ranks(settings, planned, &kept_rates(settings).unwrap_or(ASSUMED_RATES));
    let by = messages_by(link(between(settings), settings.ranks).1);
    let started = started.unwrap_or_else(|| settings.ranks.to_string());
    let share = 100.0 * exposed / step.max(f64::MIN_POSITIVE);
    Some(format!("{started}; {share:.0}% of a step is predicted to be exposed communication, by {by}"))
}

/// The source of the message costs; `measured` is the number of ranks they were measured with.
pub fn messages_by(measured: Option<u64>) -> String {
    match measured {
        Some(ranks) => format!("messages as measured between {ranks}"),
        None => "assumed messages (`headroom device` under a launcher measures them)".into(),
    }
}

/// A duration in a readable unit.
fn duration(time: f64) -> String {
    match time {
        time if time >= 2.0 * 86_400.0 => format!("{:.1} days", time / 86_400.0),
        time if time >= 2.0 * 3600.0 => format!("{:.1} hours", time / 3600.0),
        time if time >= 120.0 => format!("{:.1} minutes", time / 60.0),
        time => seconds(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_a_unit_that_people_would_use() {
        let told = |time| duration(time);
        assert_eq!(
            [told(1.5), told(150.0), told(9000.0), told(260_000.0)],
            ["1.50 s", "2.5 minutes", "2.5 hours", "3.0 days"]
        );
        let estimate = Estimate { step_seconds: 0.5, measured: false };
        assert!(estimate.line(1000).starts_with("8.3 minutes at least, "), "{}", estimate.line(1000));
        assert!(estimate.line(1000).contains("assumed peaks"));
    }
}
