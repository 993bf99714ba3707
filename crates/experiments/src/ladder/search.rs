//! The lists worth racing: a chain of passes in the order of their predicted saving, all passes but one, and after the
//! screening the passes that helped.

use super::finals::Finals;
use super::forecast::{Forecasts, Prediction};
use super::{Climber, Watcher};
use crate::bench::{Bench, ExperimentError, Variant, program};
use crate::prediction::{Calibration, Predicted};
use headroom_graph::passes::{OFFERED, Offered, PassList};
use headroom_training::data::BatchShape;
use headroom_training::program::Keep;

impl Climber<'_> {
    /// Runs one layer and a small batch of the same model, without and with passes, to compare fused kernels with their
    /// parts.
    pub(super) fn probe(&self, calibration: &mut Calibration) -> Result<(), ExperimentError> {
        let mut step = self.step.clone();
        step.model.n_layers = 1;
        step.shape = BatchShape { batch_size: step.shape.batch_size.min(2), ..step.shape };
        let measured = |list: &PassList| -> Result<_, ExperimentError> {
            let mut bench = Bench::new(&step, &Variant::of(list), Keep::OnlyTheLoss, self.setting)?;
            bench.losses(2 * bench.warm_up_steps())?;
            let seconds = bench.call_seconds(PROBED)?;
            Ok((bench, seconds))
        };
        let mut apart = Calibration::default();
        let (bench, seconds) = measured(&PassList::none())?;
        apart.learn(&bench.program, &seconds);
        for list in [PassList::version_2(), PassList::all()] {
            let (bench, seconds) = measured(&list)?;
            calibration.learn_factors(&apart, &bench.program, &seconds);
        }
        Ok(())
    }

    /// Enters a chain of lists from one pass to all of them, the largest predicted saving first. Each list runs a few
    /// recorded steps, from which the next prediction learns. Returns the passes in that order.
    pub(super) fn chain_by_prediction(
        &self,
        mut calibration: Calibration,
        forecasts: &mut Forecasts,
        finals: &mut Finals,
        watcher: &mut dyn Watcher,
    ) -> Result<Vec<&'static str>, ExperimentError> {
        watcher.doing("predicting what each pass saves");
        let (mut order, mut current) = (vec![], PassList::none());
        let mut left: Vec<&Offered> = OFFERED.iter().collect();
        while let Some((next, prediction)) = self.best_predicted(&calibration, &current, &mut left)? {
            let list = current.with(next.name);
            forecasts.made(&current, &list, prediction);
            let at = finals.enter(&list)?;
            let (program, calls) = finals.record(at)?;
            calibration.learn(program, calls);
            order.push(next.name);
            current = list;
        }
        Ok(order)
    }

    /// The applicable pass with the largest predicted saving; it is removed from `left`.
    fn best_predicted<'b>(
        &self,
        calibration: &Calibration,
        current: &PassList,
        left: &mut Vec<&'b Offered>,
    ) -> Result<Option<(&'b Offered, Prediction)>, ExperimentError> {
        let predict = |list: &PassList| -> Result<Predicted, ExperimentError> {
            Ok(calibration.predict(&program(self.step, &Variant::of(list), Keep::OnlyTheLoss)?.program))
        };
        let now = predict(current)?;
        let mut best: Option<(usize, f64, Predicted)> = None;
        for (index, pass) in left.iter().enumerate() {
            if !pass.needs.iter().all(|needed| current.contains(needed)) {
                continue;
            }
            let after = predict(&current.with(pass.name))?;
            let saving = now.seconds - after.seconds;
            if best.as_ref().is_none_or(|(_, most, _)| saving > *most) {
                best = Some((index, saving, after));
            }
        }
        Ok(best.map(|(index, _, after)| (left.remove(index), Prediction { now, after })))
    }
}

/// Recorded steps of each probe.
const PROBED: usize = 12;

/// All passes but one, for each; without a pass, those that need it are left out too.
pub(super) fn all_but_one() -> Vec<PassList> {
    OFFERED.iter().map(|pass| leaving_out(&PassList::all(), pass.name)).collect()
}

/// The list without a pass, and without those that need it to have an effect.
fn leaving_out(list: &PassList, name: &str) -> PassList {
    let needing = OFFERED.iter().filter(|pass| pass.needs.contains(&name));
    needing.fold(list.without(name), |list, pass| list.without(pass.name))
}

/// The passes that helped in the screening. A pass has two figures there, its step of the chain and `all` against all
/// but it, and the mean of both decides. `speed` is the logarithm of a list's speed relative to Version 1, if it ran.
pub(super) fn helpful(order: &[&'static str], speed: impl Fn(&PassList) -> Option<f64>) -> PassList {
    let all = speed(&PassList::all());
    let mut before = PassList::none();
    let mut helpful = PassList::none();
    for &name in order {
        let after = before.with(name);
        let added = speed(&after).zip(speed(&before).or(before.names().is_empty().then_some(0.0)));
        let missed = all.zip(speed(&leaving_out(&PassList::all(), name)));
        let gains: Vec<f64> = [added, missed].into_iter().flatten().map(|(with, without)| with - without).collect();
        let needs_hold = OFFERED
            .iter()
            .find(|pass| pass.name == name)
            .is_none_or(|pass| pass.needs.iter().all(|needed| helpful.contains(needed)));
        if needs_hold && gains.iter().sum::<f64>() >= 0.0 {
            helpful = helpful.with(name);
        }
        before = after;
    }
    helpful
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Speeds of the chain and of all but one, if every pass acts alone with this effect.
    fn speeds(order: &[&'static str], effect: impl Fn(&str) -> f64) -> BTreeMap<String, f64> {
        let mut lists = super::super::chain(&PassList::all(), order);
        lists.extend(all_but_one());
        lists.push(PassList::none());
        let sum = |list: &PassList| list.names().iter().map(|name| effect(name)).sum::<f64>();
        lists.iter().map(|list| (list.label(), sum(list))).collect()
    }

    fn order() -> Vec<&'static str> {
        let (first, needing): (Vec<&Offered>, Vec<&Offered>) = OFFERED.iter().partition(|pass| pass.needs.is_empty());
        first.iter().chain(&needing).map(|pass| pass.name).collect()
    }

    #[test]
    fn passes_that_help_are_found_from_the_chain_and_from_leaving_out() {
        let order = order();
        let known = speeds(&order, |name| if name == "fuse-norm" || name == "fuse-loss" { -0.02 } else { 0.03 });
        let found = helpful(&order, |list| known.get(&list.label()).copied());
        assert_eq!(found, PassList::all().without("fuse-norm").without("fuse-loss"));
        // Without a pass, those that need it go as well.
        let known = speeds(&order, |name| if name == "flash-attention" { -0.5 } else { 0.01 });
        let found = helpful(&order, |list| known.get(&list.label()).copied());
        assert_eq!(found, leaving_out(&PassList::all(), "flash-attention"));
        assert!(!found.contains("fuse-rope"));
    }

    #[test]
    fn every_pass_is_left_out_once_with_those_that_need_it() {
        let lists = all_but_one();
        assert_eq!(lists.len(), OFFERED.len());
        assert!(lists.contains(&PassList::all().without("flash-attention").without("fuse-rope")));
    }

    #[test]
    fn a_chain_goes_through_its_list_to_all_passes() {
        let order = order();
        let list = PassList::version_2();
        let lists = super::super::chain(&list, &order);
        assert_eq!((lists.len(), &lists[3], lists.last().unwrap()), (OFFERED.len(), &list, &PassList::all()));
        assert!(lists.windows(2).all(|pair| pair[1].names().len() == pair[0].names().len() + 1));
    }
}
