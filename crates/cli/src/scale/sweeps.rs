//! The points of the sweeps, and the axes that each belongs to.

use super::{Arguments, shape_of};
use crate::train::settings::Settings;
use anyhow::ensure;
use headroom_experiments::scale::{PlannedPoint, plan_point, set_scaling_factors};
use headroom_graph::cost::Rates;
use headroom_record::scaling::ScalingPoint;
use headroom_training::data::BatchShape;
use headroom_training::program::StepConfig;

/// Both sweeps and the point where they cross.
pub struct Sweeps {
    batches: Vec<usize>,
    sequences: Vec<usize>,
    pub base: BatchShape,
}

impl Sweeps {
    /// They cross at the size's own batch and length if these are swept, else at the first of the list.
    pub fn of(arguments: &Arguments, settings: &Settings) -> anyhow::Result<Sweeps> {
        let sorted = |flag: &str, values: &[usize]| {
            ensure!(!values.contains(&0), "{flag} has a 0 in it\n  help: numbers from 1 up, such as {flag} 4,8,16");
            let mut values = values.to_vec();
            values.sort();
            values.dedup();
            Ok(values)
        };
        let (batches, sequences) = (sorted("--batch", &arguments.batch)?, sorted("--seq", &arguments.seq)?);
        let own = |value: usize, swept: &[usize]| if swept.contains(&value) { value } else { swept[0] };
        let base = BatchShape {
            batch_size: own(settings.shape.batch_size, &batches),
            seq_len: own(settings.shape.seq_len, &sequences),
        };
        for shape in shapes(&batches, &sequences, base) {
            settings.model.validate(shape.batch_size, shape.seq_len)?;
        }
        Ok(Sweeps { batches, sequences, base })
    }

    /// Every point once, in the order of the runs.
    pub fn plan(&self, step: &StepConfig, threads: usize, rates: &Rates) -> anyhow::Result<Vec<PlannedPoint>> {
        let shapes = shapes(&self.batches, &self.sequences, self.base).into_iter();
        let plan = |shape| plan_point(&StepConfig { shape, ..step.clone() }, threads, rates);
        Ok(shapes.map(plan).collect::<Result<_, _>>()?)
    }

    /// The sweep over batches and the sweep over sequences; the crossing point is in both.
    pub fn split(&self, points: &[PlannedPoint]) -> (Vec<PlannedPoint>, Vec<PlannedPoint>) {
        let copy =
            |planned: &PlannedPoint| PlannedPoint { point: planned.point.clone(), need_bytes: planned.need_bytes };
        let pick = |wanted: &dyn Fn(BatchShape) -> bool, axis: fn(&ScalingPoint) -> u64| {
            let mut sweep: Vec<PlannedPoint> =
                points.iter().filter(|planned| wanted(shape_of(&planned.point))).map(copy).collect();
            sweep.sort_by_key(|planned| axis(&planned.point));
            set_scaling_factors(&mut sweep);
            sweep
        };
        (
            pick(&|shape| shape.seq_len == self.base.seq_len, |point| point.batch_size),
            pick(&|shape| shape.batch_size == self.base.batch_size, |point| point.seq_len),
        )
    }
}

fn shapes(batches: &[usize], sequences: &[usize], base: BatchShape) -> Vec<BatchShape> {
    let mut shapes: Vec<BatchShape> = batches.iter().map(|&batch_size| BatchShape { batch_size, ..base }).collect();
    shapes.extend(sequences.iter().map(|&seq_len| BatchShape { seq_len, ..base }).filter(|shape| *shape != base));
    if !shapes.contains(&base) {
        shapes.push(base);
    }
    shapes
}
