//! AdamW, clipping and gradient accumulation as nodes of the graph, and the learning rate over the steps.

use headroom_graph::ops::accumulate::{Accumulate, Zero};
use headroom_graph::ops::adamw::AdamW;
use headroom_graph::ops::clip::{ClipScale, SquaredNorm};
use headroom_graph::{Category, Graph, GraphError, Phase, TensorType, ValueId};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimizerConfig {
    pub learning_rate: f64,
    pub schedule: Schedule,
    pub warmup_steps: u64,
    pub weight_decay: f64,
    /// Largest global norm of the gradients; 0 is off.
    pub clip: f64,
    pub accumulation: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    Constant,
    /// Half a cosine from the full rate down to zero at the last step.
    Cosine,
}

pub const BETA1: f64 = 0.9;
pub const BETA2: f64 = 0.999;
pub const EPS: f64 = 1e-8;

impl OptimizerConfig {
    /// The learning rate of a step, counted from 1, in a run that ends at `last`.
    pub fn learning_rate_at(&self, step: u64, last: u64) -> f64 {
        if step <= self.warmup_steps {
            return self.learning_rate * step as f64 / self.warmup_steps as f64;
        }
        match self.schedule {
            Schedule::Constant => self.learning_rate,
            Schedule::Cosine => {
                let whole = last.saturating_sub(self.warmup_steps).max(1) as f64;
                let done = (step - self.warmup_steps - 1) as f64;
                self.learning_rate * 0.5 * (1.0 + (std::f64::consts::PI * (done / whole).min(1.0)).cos())
            }
        }
    }

    /// What the `rates` input of [`AdamW`] takes at a step, counted from 1.
    pub fn rates_at(&self, step: u64, last: u64) -> [f32; 3] {
        let power = |beta: f64| beta.powi(i32::try_from(step).unwrap_or(i32::MAX));
        [self.learning_rate_at(step, last) as f32, (1.0 - power(BETA1)) as f32, (1.0 - power(BETA2)).sqrt() as f32]
    }
}

/// One parameter and its moments.
#[derive(Clone, Copy, Debug)]
pub struct Trained {
    pub parameter: ValueId,
    pub first: ValueId,
    pub second: ValueId,
}

impl Trained {
    /// A parameter's moments, by their names.
    pub fn find(graph: &Graph, parameter: ValueId) -> Option<Trained> {
        let name = &graph.get(parameter).name;
        let first = graph.named(&format!("{FIRST_MOMENT}.{name}"))?;
        let second = graph.named(&format!("{SECOND_MOMENT}.{name}"))?;
        Some(Trained { parameter, first, second })
    }
}

const FIRST_MOMENT: &str = "first_moment";
const SECOND_MOMENT: &str = "second_moment";

/// When the norm of all gradients is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    WhereClipped,
    /// To be looked at, where nothing is clipped by it either.
    Always,
}

/// Adds one update a parameter, clipping and accumulation where they are asked for; returns the norm of all gradients where
/// it is computed. The input `rates` `[3]` is written before every update.
pub fn optimize(
    graph: &mut Graph,
    config: &OptimizerConfig,
    parameters: &[ValueId],
    gradients: &[ValueId],
    norm: Norm,
) -> Result<Option<ValueId>, GraphError> {
    let moment = |graph: &mut Graph, which: &str, parameter: ValueId| {
        let (name, ty) = (format!("{which}.{}", graph.get(parameter).name), graph.ty(parameter).clone());
        graph.state(&name, ty, Category::OptimizerState)
    };
    let trained: Vec<Trained> = parameters
        .iter()
        .map(|&parameter| Trained {
            parameter,
            first: moment(graph, FIRST_MOMENT, parameter),
            second: moment(graph, SECOND_MOMENT, parameter),
        })
        .collect();
    let rates = graph.input("rates", TensorType::f32(&[3]));
    let gradients =
        if config.accumulation > 1 { accumulate(graph, parameters, gradients)? } else { gradients.to_vec() };

    graph.enter("optimizer", Phase::Optimizer);
    let mut clip = None;
    if config.clip > 0.0 || norm == Norm::Always {
        let max_norm = if config.clip > 0.0 { config.clip } else { f64::INFINITY };
        let squares: Vec<ValueId> =
            gradients.iter().map(|&gradient| graph.add_one(SquaredNorm {}, &[gradient])).collect::<Result<_, _>>()?;
        let made = graph.add(ClipScale { max_norm }, &squares)?;
        clip = Some((made[0], made[1]));
    }
    let update = AdamW { beta1: BETA1, beta2: BETA2, eps: EPS, weight_decay: config.weight_decay, halves: 0 };
    for (one, &gradient) in trained.iter().zip(&gradients) {
        let inputs = [one.parameter, one.first, one.second, gradient, rates];
        match clip.filter(|_| config.clip > 0.0) {
            Some((scale, _)) => graph.add(update, &[&inputs[..], &[scale]].concat())?,
            None => graph.add(update, &inputs)?,
        };
    }
    if config.accumulation > 1 {
        for &sum in &gradients {
            graph.add(Zero {}, &[sum])?;
        }
    }
    Ok(clip.map(|(_, norm)| norm))
}

/// Kept sums, one a parameter, that every backward pass adds to; the optimizer sets them back to zero.
fn accumulate(graph: &mut Graph, parameters: &[ValueId], gradients: &[ValueId]) -> Result<Vec<ValueId>, GraphError> {
    graph.enter("accumulate", Phase::Backward);
    parameters
        .iter()
        .zip(gradients)
        .map(|(&parameter, &gradient)| {
            let (name, ty) = (format!("gradient_sum.{}", graph.get(parameter).name), graph.ty(parameter).clone());
            let sum = graph.state(&name, ty, Category::Gradients);
            graph.add(Accumulate {}, &[sum, gradient])?;
            Ok(sum)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(schedule: Schedule) -> OptimizerConfig {
        OptimizerConfig {
            learning_rate: 1.0,
            schedule,
            warmup_steps: 4,
            weight_decay: 0.01,
            clip: 0.0,
            accumulation: 1,
        }
    }

    #[test]
    fn the_rate_rises_to_its_full_height_and_stays() {
        let rates = [1, 2, 4, 5, 100].map(|step| config(Schedule::Constant).learning_rate_at(step, 100));
        assert_eq!(rates, [0.25, 0.5, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn the_cosine_starts_full_after_warm_up_and_falls_towards_zero() {
        let rate = |step| config(Schedule::Cosine).learning_rate_at(step, 104);
        assert_eq!(rate(5), 1.0);
        assert!((rate(55) - 0.5).abs() < 1e-12);
        assert!(rate(104) > 0.0 && rate(104) < 1e-3);
    }
}
