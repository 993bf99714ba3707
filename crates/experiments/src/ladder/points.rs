//! The workshop's reference points: Version 1, Version 2 and the kept list, timed at the requested shape and at twice
//! its batch and length. For tiny these are 8 × 128 and 16 × 256.

use super::finals::Finals;
use super::{Climber, Watcher};
use crate::bench::ExperimentError;
use crate::turns::{LEAST_ROUNDS, Patience, Speedup};
use crate::validation::validation_shapes;
use headroom_graph::passes::PassList;
use headroom_record::statistics::Interval;
use headroom_training::data::BatchShape;
use headroom_training::program::StepConfig;
use std::time::Instant;

/// One list at one shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub shape: BatchShape,
    /// `v1`, `v2` or `kept`.
    pub name: &'static str,
    pub list: PassList,
    /// Seconds per step as rounds count them: the better of two steps.
    pub seconds: Interval,
    /// Relative to Version 1 at the same shape.
    pub speedup: Speedup,
}

/// The larger shape gets one in this many parts of the race's time, in addition to it.
const SHARE: u32 = 8;

/// At the requested shape, where the race has already timed all three.
pub(super) fn at_asked_shape(finals: &Finals, kept: usize, shape: BatchShape) -> Vec<Point> {
    let list = finals.list(kept);
    timed(finals, &list, shape)
}

/// At twice the batch and length, in a short race of their own.
pub(super) fn at_larger_shape(
    climber: &Climber,
    kept: &PassList,
    patience: &Patience,
    room: Option<usize>,
    watcher: &mut dyn Watcher,
) -> Result<Vec<Point>, ExperimentError> {
    let [_, shape] = validation_shapes(climber.step);
    let step = StepConfig { shape, ..climber.step.clone() };
    let climber = Climber { step: &step, ..*climber };
    let quick = Patience { rounds: LEAST_ROUNDS, most_rounds: 4 * LEAST_ROUNDS, ..*patience };
    let mut finals = Finals::new(&climber, quick, None, room);
    for list in [&PassList::none(), &PassList::version_2(), kept] {
        finals.enter(list)?;
    }
    finals.screen(&quick, Instant::now() + patience.time / SHARE, watcher)?;
    Ok(timed(&finals, kept, shape))
}

fn timed(finals: &Finals, kept: &PassList, shape: BatchShape) -> Vec<Point> {
    let named = [("v1", PassList::none()), ("v2", PassList::version_2()), ("kept", kept.clone())];
    let point = |(name, list): (&'static str, PassList)| {
        let at = finals.find(&list)?;
        Some(Point { shape, name, seconds: finals.seconds(at)?, speedup: finals.over_baseline(at), list })
    };
    named.into_iter().filter_map(point).collect()
}
