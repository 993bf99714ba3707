//! How long a run takes at least, from its plan and what the machine can do; known before the first step.

use super::plan::Planned;
use super::settings::Settings;
use super::start::kept_rates;
use headroom_engine::DeviceSpec;
use headroom_engine::peaks::ASSUMED_RATES;
use headroom_graph::Phase;
use headroom_graph::cost::{Rates, predicted_seconds};
use headroom_report::numbers::seconds;

pub struct Estimate {
    pub step_seconds: f64,
    /// Were the machine's peaks measured?
    pub measured: bool,
}

impl Estimate {
    /// Missing on a GPU whose peaks were never measured: there is nothing to assume.
    pub fn of(settings: &Settings, planned: &Planned) -> Option<Estimate> {
        let (rates, measured) = match (kept_rates(settings), settings.device) {
            (Some(rates), _) => (rates, true),
            (None, DeviceSpec::Cuda(_)) => return None,
            (None, _) => (ASSUMED_RATES, false),
        };
        Some(Estimate { step_seconds: step_seconds(planned, settings.optimizer.accumulation, &rates), measured })
    }

    /// A line of what is said before the first step.
    pub fn line(&self, steps: u64) -> String {
        let by = match self.measured {
            true => "this machine's measured peaks",
            false => "assumed peaks (`headroom device` measures this machine's)",
        };
        let whole = duration(self.step_seconds * steps as f64);
        format!("{whole} at least, {} per step: the plan at {by}", seconds(self.step_seconds))
    }
}

fn step_seconds(planned: &Planned, accumulation: usize, rates: &Rates) -> f64 {
    let plan = &planned.training.program.plan;
    let phase =
        |phase: Phase| plan.calls[plan.phase(phase)].iter().map(|call| predicted_seconds(call, rates)).sum::<f64>();
    (phase(Phase::Forward) + phase(Phase::Backward)) * accumulation as f64 + phase(Phase::Optimizer)
}

/// In the unit that people would use.
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
