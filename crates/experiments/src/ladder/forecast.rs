//! Predicted time at each rung of the ladder: the prediction made when the pass was tried, or else one from the initial
//! calibration.

use crate::prediction::{Calibration, Predicted};
use headroom_engine::Program;
use headroom_graph::passes::PassList;
use std::collections::BTreeMap;

/// Predicted time of a step, without and with a pass.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Prediction {
    pub now: Predicted,
    pub after: Predicted,
}

impl Prediction {
    pub fn speedup(&self) -> f64 {
        self.now.seconds / self.after.seconds
    }
}

pub(super) struct Forecasts {
    /// Before any pass has run.
    at_first: Calibration,
    /// Keyed by the labels of both lists; made right before the second ran for the first time.
    made: BTreeMap<(String, String), Prediction>,
}

impl Forecasts {
    pub fn new(at_first: Calibration) -> Forecasts {
        Forecasts { at_first, made: BTreeMap::new() }
    }

    pub fn made(&mut self, before: &PassList, after: &PassList, prediction: Prediction) {
        self.made.insert((before.label(), after.label()), prediction);
    }

    pub fn of(&self, (before, now): (&PassList, &Program), (after, then): (&PassList, &Program)) -> Prediction {
        let known = self.made.get(&(before.label(), after.label())).cloned();
        known.unwrap_or_else(|| Prediction { now: self.at_first.predict(now), after: self.at_first.predict(then) })
    }
}
