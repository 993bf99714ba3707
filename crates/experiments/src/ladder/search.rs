//! The search for lists worth racing: forwards, pass by pass, and backwards, by leaving passes out.

use super::finals::Finals;
use super::forecast::{Forecasts, Prediction};
use super::{Checks, Climber, Watcher};
use crate::bench::{Bench, ExperimentError, Variant, program};
use crate::prediction::{Calibration, Predicted};
use crate::turns::{Clock, Patience, Speedup};
use headroom_graph::passes::{OFFERED, Offered, PassList};
use headroom_training::data::BatchShape;
use headroom_training::program::Keep;
use std::time::Instant;

/// A pass at or above this speed ratio is worth a place in the race.
const NO_SLOWER: f64 = 0.99;

/// If leaving a pass out speeds the step up by this much, it gets a list of its own, even within the noise.
const WORTH_LEAVING: f64 = 1.01;

/// Most passes left out of `all` at once.
const LEFT_OUT: usize = 3;

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

    /// Tries passes in the order of their predicted saving, each in alternation with the list before it; returns those
    /// that are not slower. `standing` is Version 1, warm. Ends early on a machine that is far too busy: the race
    /// covers every pass anyway.
    #[expect(clippy::too_many_arguments, reason = "one caller, and each is something else")]
    pub(super) fn forwards(
        &self,
        mut calibration: Calibration,
        mut standing: Bench,
        forecasts: &mut Forecasts,
        checks: &mut Checks,
        patience: &Patience,
        until: Instant,
        watcher: &mut dyn Watcher,
    ) -> Result<Vec<&'static str>, ExperimentError> {
        let time = until.saturating_duration_since(Instant::now());
        let mut clock = Clock::start(Patience { time, ..*patience }, OFFERED.len());
        let (mut kept, mut current) = (vec![], PassList::none());
        let mut left: Vec<&Offered> = OFFERED.iter().collect();
        while let Some((next, prediction)) = self.best_predicted(&calibration, &current, &mut left)? {
            watcher.doing(&format!("trying {}", next.name));
            let list = current.with(next.name);
            forecasts.made(&current, &list, prediction);
            let mut bench = self.warm(&list)?;
            let measured = clock.compare(&mut standing, &mut bench)?;
            let calls = bench.call_seconds(RECORDED_IN_SEARCH)?;
            calibration.learn(&bench.program, &calls);
            let smaller = bench.memory.total() < standing.memory.total();
            let helps = measured.ratio > if smaller { NO_SLOWER } else { 1.0 };
            if helps && checks.of(&list)?.exact {
                kept.push(next.name);
                (current, standing) = (list, bench);
            }
            if Instant::now() >= until + time {
                break;
            }
        }
        Ok(kept)
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

    /// All passes in alternation with all but one, for each: how much faster the step is without it. Empty if the time
    /// is already up.
    pub(super) fn backwards(
        &self,
        patience: &Patience,
        room: Option<usize>,
        until: Instant,
        watcher: &mut dyn Watcher,
    ) -> Result<Vec<(&'static str, Speedup)>, ExperimentError> {
        if Instant::now() >= until {
            return Ok(vec![]);
        }
        watcher.doing("leaving out one pass at a time");
        let mut finals = Finals::new(self, *patience, None, room).unrecorded();
        let all = finals.enter(&PassList::all())?;
        let mut without = vec![];
        for pass in &OFFERED {
            without.push((pass.name, finals.enter(&leaving_out(&PassList::all(), pass.name))?));
        }
        finals.race_all(until, &mut Quiet)?;
        Ok(without.into_iter().map(|(name, list)| (name, finals.speedup(list, all))).collect())
    }
}

/// Recorded steps of each probe, and of each bench of the search.
const PROBED: usize = 12;
const RECORDED_IN_SEARCH: usize = 2;

struct Quiet;

impl Watcher for Quiet {
    fn doing(&mut self, _: &str) {}
}

/// The list without a pass, and without those that need it to have an effect.
fn leaving_out(list: &PassList, name: &str) -> PassList {
    let needing = OFFERED.iter().filter(|pass| pass.needs.contains(&name));
    needing.fold(list.without(name), |list, pass| list.without(pass.name))
}

/// All passes: those found forwards in their order, then the others, the most missed first. A pass comes after those it
/// needs.
pub(super) fn order(forward: &[&'static str], backward: &[(&'static str, Speedup)]) -> Vec<&'static str> {
    let mut others: Vec<&(&'static str, Speedup)> =
        backward.iter().filter(|(name, _)| !forward.contains(name)).collect();
    others.sort_by(|left, right| left.1.ratio.total_cmp(&right.1.ratio));
    let mut left: Vec<&'static str> = forward.iter().copied().chain(others.iter().map(|(name, _)| *name)).collect();
    let unknown: Vec<&str> = OFFERED.iter().map(|pass| pass.name).filter(|name| !left.contains(name)).collect();
    left.extend(unknown);
    let mut order: Vec<&'static str> = vec![];
    while !left.is_empty() {
        let is_ready = |name: &&'static str| {
            OFFERED
                .iter()
                .find(|pass| pass.name == *name)
                .is_none_or(|pass| pass.needs.iter().all(|needed| order.contains(needed) || !left.contains(needed)))
        };
        let next = left.iter().position(is_ready).unwrap_or(0);
        order.push(left.remove(next));
    }
    order
}

/// All passes without those that were harmful when measured: without the worst one, the worst two and so on.
pub(super) fn left_out(backward: &[(&'static str, Speedup)]) -> Vec<PassList> {
    let mut harmful: Vec<_> =
        backward.iter().filter(|(_, without)| without.low > 1.0 || without.ratio >= WORTH_LEAVING).collect();
    harmful.sort_by(|left, right| right.1.ratio.total_cmp(&left.1.ratio));
    let mut list = PassList::all();
    harmful
        .into_iter()
        .take(LEFT_OUT)
        .map(|(name, _)| {
            list = leaving_out(&list, name);
            list.clone()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without(ratio: f64) -> Speedup {
        Speedup { ratio, low: ratio - 0.02, high: ratio + 0.02, rounds: 8 }
    }

    fn backward(harmful: &[(&'static str, f64)]) -> Vec<(&'static str, Speedup)> {
        let of = |name: &str| harmful.iter().find(|(other, _)| *other == name).map_or(0.98, |(_, ratio)| *ratio);
        OFFERED.iter().map(|pass| (pass.name, without(of(pass.name)))).collect()
    }

    #[test]
    fn passes_that_do_harm_are_left_out_one_after_the_other() {
        let lists = left_out(&backward(&[("fuse-norm", 1.04), ("flash-attention", 1.2)]));
        assert_eq!(lists.len(), 2);
        assert_eq!(lists[0], PassList::all().without("flash-attention").without("fuse-rope"));
        assert_eq!(lists[1], lists[0].without("fuse-norm"));
        assert_eq!(left_out(&backward(&[])), []);
    }

    #[test]
    fn a_chain_goes_through_its_list_to_all_passes() {
        let order = order(&["fuse-qkv", "fuse-rope"], &backward(&[("fuse-loss", 1.1)]));
        assert_eq!(order.len(), OFFERED.len());
        assert_eq!(order.last(), Some(&"fuse-loss"));
        let at = |name: &str| order.iter().position(|other| *other == name).unwrap();
        assert!(at("flash-attention") < at("fuse-rope"));
        let list = PassList::version_2();
        let lists = super::super::chain(&list, &order);
        assert_eq!((lists.len(), &lists[3], lists.last().unwrap()), (OFFERED.len(), &list, &PassList::all()));
        assert!(lists.windows(2).all(|pair| pair[1].names().len() == pair[0].names().len() + 1));
        // If there was no time for leaving passes out, every pass still has its place.
        assert_eq!(super::order(&["fuse-norm"], &[]).len(), OFFERED.len());
    }
}
