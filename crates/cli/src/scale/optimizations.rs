//! Memory savings: plans, ranks and runs them.

use super::measure::{Measured, Measuring};
use super::{Arguments, shape_of, train_request};
use crate::output;
use crate::train::settings::Settings;
use headroom_engine::DeviceSpec;
use headroom_experiments::scale::{How, PlannedPoint, savings};
use headroom_record::scaling::Optimization;
use headroom_record::statistics::ratio_of;
use headroom_training::data::BatchShape;
use headroom_training::program::StepConfig;

/// Rows of the table, and what they run.
#[derive(Default)]
pub struct FoundSavings {
    pub rows: Vec<Optimization>,
    /// By row.
    pub steps: Vec<StepConfig>,
    /// The point that they are compared with.
    pub shape: Option<BatchShape>,
}

/// Plans at the longest sequence that fits, sorts by savings, then runs. Returns `None` when the command is to stop.
pub fn optimizations(
    arguments: &Arguments,
    settings: &Settings,
    step: &StepConfig,
    sequence_points: &[PlannedPoint],
    available: usize,
    measuring: &Measuring,
) -> anyhow::Result<Option<FoundSavings>> {
    let usable = sequence_points.iter().rev().find(|planned| planned.need_bytes <= available);
    let Some(largest) = usable.or(sequence_points.last()) else { return Ok(Some(FoundSavings::default())) };
    let shape = shape_of(&largest.point);
    let before = largest.point.peak_memory_mb;
    let mut found = FoundSavings { shape: Some(shape), ..FoundSavings::default() };
    for saving in savings(&StepConfig { shape, ..step.clone() }, settings.threads)? {
        let mut row = Optimization {
            name: saving.name.into(),
            flags: saving.how.as_ref().map(|how| match how {
                How::Passes(passes) => format!("--passes {passes}"),
                How::Precision(precision) => format!("--precision {precision}"),
            }),
            predicted_memory_mb: saving.memory_mb,
            saved_mb: before - saving.memory_mb,
            saved_percent: 100.0 * (before - saving.memory_mb) / before,
            measured_before_mb: largest.point.process_peak_memory_mb,
            measured_after_mb: None,
            measured_saved_mb: None,
            step_ratio: None,
            step_ratio_low: None,
            step_ratio_high: None,
            note: saving.note,
        };
        let runs = !arguments.plan_only && settings.device != DeviceSpec::Null && largest.point.step_seconds.is_some();
        if let (Some(how), true) = (&saving.how, runs) {
            output::note(&format!("trying {} at batch {} × seq {}", saving.name, shape.batch_size, shape.seq_len));
            let mut request = train_request(arguments, Some(shape))?;
            match how {
                How::Passes(passes) => request.passes = passes.clone(),
                How::Precision(precision) => request.precision = Some(precision.parse()?),
            }
            match measuring.run(&request, &saving.name.replace(' ', "_"))? {
                Measured::Done(measured) => {
                    row.measured_after_mb = measured.process_peak_memory_mb;
                    row.measured_saved_mb =
                        row.measured_before_mb.zip(row.measured_after_mb).map(|(before, after)| before - after);
                    let after = &measured.statistics;
                    row.step_ratio = after.median.zip(largest.point.step_seconds).map(|(after, before)| after / before);
                    let interval = ratio_of(after, &largest.point.statistics());
                    row.step_ratio_low = interval.map(|found| found.low);
                    row.step_ratio_high = interval.map(|found| found.high);
                }
                Measured::Broken(why) => row.note = Some(why),
                Measured::Stopped => return Ok(None),
            }
        }
        found.rows.push(row);
        found.steps.push(saving.step);
    }
    Ok(Some(found))
}
