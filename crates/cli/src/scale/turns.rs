//! The step times of a sweep: once every point has run in its own process, models of this process take turns.

use super::optimizations::FoundSavings;
use super::{Arguments, division, shape_of};
use crate::output;
use crate::study::rates::room;
use crate::train::settings::Settings;
use crate::train::start::opening;
use headroom_experiments::bench::Setting;
use headroom_experiments::scale::PlannedPoint;
use headroom_experiments::step_times::{Candidate, Ended, StepTimes, time_in_turns};
use headroom_record::race::RaceRecord;
use headroom_record::statistics::{Interval, StepStatistics, ratio_of};
use headroom_training::program::StepConfig;
use std::sync::atomic::AtomicBool;

/// Times all points and savings that ran, and writes the figures into them; `None` if asked to stop.
pub fn take_turns(
    arguments: &Arguments,
    settings: &Settings,
    step: &StepConfig,
    points: &mut [PlannedPoint],
    savings: &mut FoundSavings,
    stop: &AtomicBool,
) -> anyhow::Result<Option<Vec<RaceRecord>>> {
    let Some(division) = division(arguments).filter(|_| !arguments.plan_only) else { return Ok(Some(vec![])) };
    let mut order: Vec<usize> = (0..points.len()).filter(|at| points[*at].point.step_seconds.is_some()).collect();
    // The point that savings are compared with is their neighbour, so that a group has both if they fit.
    order.sort_by_key(|at| Some(shape_of(&points[*at].point)) == savings.shape);
    let tried: Vec<usize> = (0..savings.rows.len()).filter(|at| savings.rows[*at].step_ratio.is_some()).collect();
    let of_points = order.iter().map(|at| {
        let shape = shape_of(&points[*at].point);
        let name = format!("batch {} × seq {}", shape.batch_size, shape.seq_len);
        Candidate { name, step: StepConfig { shape, ..step.clone() }, per_turn: division.per_turn }
    });
    let of_savings = tried.iter().map(|at| Candidate {
        name: savings.rows[*at].name.clone(),
        step: savings.steps[*at].clone(),
        per_turn: division.per_turn,
    });
    let candidates: Vec<Candidate> = of_points.chain(of_savings).collect();
    let setting = Setting { seed: settings.seed, device: settings.device, opening: opening(settings.threads) };
    let times = match time_in_turns(&candidates, &setting, room(settings), stop, &mut |line| output::note(line)) {
        Ok(times) => times,
        Err(Ended::Stopped) => return Ok(None),
        Err(Ended::Failed(error)) => {
            output::note(&format!("note: every point keeps the time of its own process, since turns failed: {error}"));
            return Ok(Some(vec![]));
        }
    };
    for (place, at) in order.iter().enumerate() {
        let Some(seconds) = times.seconds(place) else { continue };
        let point = &mut points[*at].point;
        (point.step_seconds, point.step_seconds_low) = (Some(seconds.value), Some(seconds.low));
        point.step_seconds_high = Some(seconds.high);
        point.samples_per_sec = Some(point.batch_size as f64 / seconds.value);
        point.tokens_per_sec = Some((point.batch_size * point.seq_len) as f64 / seconds.value);
    }
    if let Some(base) = order.len().checked_sub(1) {
        for (place, at) in tried.iter().enumerate() {
            let Some(ratio) = ratio(&times, order.len() + place, base) else { continue };
            let row = &mut savings.rows[*at];
            (row.step_ratio, row.step_ratio_low) = (Some(ratio.value), Some(ratio.low));
            row.step_ratio_high = Some(ratio.high);
        }
    }
    Ok(Some(times.races()))
}

/// Paired over the rounds if one group has both, else from the interval of each.
fn ratio(times: &StepTimes, of: usize, over: usize) -> Option<Interval> {
    let statistics = |of: usize| {
        let seconds = times.seconds(of)?;
        Some(StepStatistics {
            median: Some(seconds.value),
            ci95_low: Some(seconds.low),
            ci95_high: Some(seconds.high),
            ..StepStatistics::default()
        })
    };
    times.ratio(of, over).or_else(|| ratio_of(&statistics(of)?, &statistics(over)?))
}
