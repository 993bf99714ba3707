//! Compares blocks of steps: only steps whose inputs have equal shapes, and without those in which the script did
//! something beside training.

use super::messages::Block;
use crate::note::mean_without_stall;
use std::collections::BTreeMap;

/// Seconds per step of two blocks, over the shapes that both have; `None` if they have none in common.
pub fn paired(one: &Block, other: &Block) -> Option<(f64, f64)> {
    let (one, other) = (by_shape(one), by_shape(other));
    let mut total = (0.0, 0.0, 0.0);
    for (shape, own) in &one {
        let Some(others) = other.get(shape) else { continue };
        let weight = own.len().min(others.len()) as f64;
        let (own, others) = (mean_without_stall(own)?, mean_without_stall(others)?);
        total = (total.0 + weight * own, total.1 + weight * others, total.2 + weight);
    }
    let (own, others, weight) = total;
    (weight > 0.0 && own > 0.0 && others > 0.0).then(|| (own / weight, others / weight))
}

/// Seconds per step of one block.
pub fn seconds(block: &Block) -> Option<f64> {
    paired(block, block).map(|(seconds, _)| seconds)
}

/// Times of the usual steps. What the script does in more than half of its steps is usual.
fn by_shape(block: &Block) -> BTreeMap<&str, Vec<f64>> {
    let apart = block.steps.iter().filter(|step| step.apart.is_some()).count();
    let is_usual = 2 * apart > block.steps.len();
    let mut found: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for step in block.steps.iter().filter(|step| is_usual || step.apart.is_none()) {
        found.entry(&step.shape).or_default().push(step.seconds);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::messages::Step;
    use super::*;

    fn block(steps: &[(f64, &str, Option<&str>)]) -> Block {
        let step = |(seconds, shape, apart): &(f64, &str, Option<&str>)| Step {
            seconds: *seconds,
            shape: (*shape).into(),
            apart: apart.map(String::from),
        };
        Block { number: 1, steps: steps.iter().map(step).collect(), measured_on: "host".into(), void: None }
    }

    #[test]
    fn only_equal_shapes_are_compared() {
        let short = block(&[(1.0, "short", None), (1.0, "short", None), (9.0, "long", None)]);
        let faster = block(&[(0.5, "short", None), (4.5, "long", None), (4.5, "long", None), (2.0, "odd", None)]);
        let (before, after) = paired(&short, &faster).unwrap();
        assert!((before / after - 2.0).abs() < 1e-9, "{before} {after}");
        assert_eq!(paired(&short, &block(&[(1.0, "other", None)])), None);
    }

    #[test]
    fn steps_that_evaluate_log_or_save_are_left_out_unless_most_do() {
        let plain = [(1.0, "a", None), (1.0, "a", None), (1.0, "a", None)];
        let saved = [(1.0, "a", None), (1.0, "a", None), (7.0, "a", Some("saving"))];
        assert_eq!(seconds(&block(&saved)), seconds(&block(&plain)));
        let logs = [(1.0, "a", Some("logging")), (3.0, "a", Some("logging")), (3.0, "a", None)];
        assert!((seconds(&block(&logs)).unwrap() - 7.0 / 3.0).abs() < 1e-9, "a progress bar");
    }
}
