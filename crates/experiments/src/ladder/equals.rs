//! The selection among lists that all run Version 1: whatever it proves is wrong, so this tells how often it is.

use super::{Climber, Lists, RECORDED, Wanted, Watcher, select};
use crate::bench::{ExperimentError, Setting, fastest_calls};
use crate::prediction::Calibration;
use crate::turns::Speedup;
use headroom_graph::passes::PassList;
use headroom_training::program::StepConfig;
use std::time::Instant;

/// The speed-up of the list that would be recommended, although all lists are the same; `None` if none would be. It goes
/// through the chain, the screening, the choice of finalists and the proof of [`super::climb`], but for the gates, which
/// could only recommend less.
pub fn proved_among_equals(
    step: &StepConfig,
    setting: &Setting,
    wanted: &Wanted,
    watcher: &mut dyn Watcher,
) -> Result<Option<Speedup>, ExperimentError> {
    let started = Instant::now();
    let climber = Climber { step, setting, lists: Lists::AllVersion1 };
    let mut baseline = climber.warm(&PassList::none())?;
    let recording = baseline.record_steps(RECORDED)?;
    let mut calibration = Calibration::default();
    calibration.learn(&baseline.program, &fastest_calls(&recording, baseline.calls()));
    let selection = select(&climber, wanted, started, baseline, calibration, watcher)?;
    let finals = &selection.finals;
    Ok(finals.proved().first().map(|at| finals.over_baseline(*at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ladder::Ablation;
    use crate::turns::Patience;
    use headroom_engine::{DeviceSpec, Opening};
    use headroom_graph::cost::Rates;
    use headroom_training::data::BatchShape;
    use headroom_training::models::Size;
    use headroom_training::optimizer::OptimizerConfig;
    use std::time::Duration;

    struct Heard(Vec<String>);

    impl Watcher for Heard {
        fn doing(&mut self, what: &str) {
            self.0.push(what.into());
        }
    }

    #[test]
    fn all_lists_run_version_1_through_the_ladders_own_race() {
        let step = StepConfig {
            model: Size::named("nano").unwrap().model(),
            shape: BatchShape { batch_size: 1, seq_len: 16 },
            optimizer: OptimizerConfig::default(),
            passes: PassList::none(),
            recomputed_layers: 0,
            precision: Default::default(),
            target: Default::default(),
        };
        let setting = Setting { seed: 42, device: DeviceSpec::Cpu, opening: Opening::threads(1) };
        let wanted = Wanted {
            patience: Patience { rounds: 5, most_rounds: 5, time: Duration::ZERO },
            curve_steps: 3,
            min_speedup: None,
            ablation: Ablation::No,
            more_if_busy: Duration::ZERO,
            rates: Rates { product_flops: 1e11, bytes: 1e10, call_seconds: 1e-6 },
            room: None,
        };
        let mut heard = Heard(vec![]);
        let found = proved_among_equals(&step, &setting, &wanted, &mut heard).unwrap();
        // Five rounds prove large gains only, and among equals there are none.
        assert!(found.is_none_or(|found| found.ratio < 1.3), "{found:?}");
        // The screening and the proof.
        assert_eq!(heard.0.iter().filter(|line| line.starts_with("measuring ")).count(), 2, "{:?}", heard.0);
        let climber = Climber { step: &step, setting: &setting, lists: Lists::AllVersion1 };
        let kernels = |list: &PassList| climber.warm(list).unwrap().kernels();
        assert_eq!(kernels(&PassList::all()), kernels(&PassList::none()));
        let as_named = Climber { lists: Lists::AsNamed, ..climber };
        assert!(as_named.warm(&PassList::all()).unwrap().kernels() < kernels(&PassList::none()));
    }
}
