//! The learning-rate schedule: the share of the full rate as a function of the step.

use std::f64::consts::PI;
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Schedule {
    pub shape: Shape,
    /// Steps over which the rate rises from zero.
    pub warmup_steps: u64,
    /// Share of the full rate that a decaying schedule ends near.
    pub floor: f64,
    /// Number of last steps over which `wsd` decays; a fifth of the run by default.
    pub decay_steps: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    #[default]
    Constant,
    /// A straight line from the full rate to the floor.
    Linear,
    /// Half a cosine from the full rate to the floor.
    Cosine,
    /// Warm-up, stable, decay: full until the last steps, then a straight line to the floor.
    Wsd,
}

impl Shape {
    pub const ALL: [Shape; 4] = [Shape::Constant, Shape::Linear, Shape::Cosine, Shape::Wsd];
}

/// The name used in flags.
impl fmt::Display for Shape {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(match self {
            Shape::Constant => "constant",
            Shape::Linear => "linear",
            Shape::Cosine => "cosine",
            Shape::Wsd => "wsd",
        })
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Shape, String> {
        let found = Shape::ALL.into_iter().find(|shape| shape.to_string() == text);
        found.ok_or_else(|| format!("no schedule is called {text}: choose constant, linear, cosine or wsd"))
    }
}

impl Schedule {
    /// Share of the full rate at a step, counted from 1, in a run that ends at `last`. The first step after the warm-up
    /// has the full rate; the floor would be reached one step after the last.
    pub fn share_at(&self, step: u64, last: u64) -> f64 {
        if step <= self.warmup_steps {
            return step as f64 / self.warmup_steps as f64;
        }
        let falls = match self.shape {
            Shape::Constant => return 1.0,
            Shape::Linear | Shape::Cosine => last.saturating_sub(self.warmup_steps).max(1),
            Shape::Wsd => self.decay_steps.unwrap_or(last / 5).clamp(1, last.saturating_sub(self.warmup_steps).max(1)),
        };
        let done = (step - 1).saturating_sub(last.saturating_sub(falls)) as f64 / falls as f64;
        let above = match self.shape {
            Shape::Cosine => 0.5 * (1.0 + (PI * done.min(1.0)).cos()),
            _ => 1.0 - done.min(1.0),
        };
        self.floor + (1.0 - self.floor) * above
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(shape: Shape, floor: f64, step: u64) -> f64 {
        Schedule { shape, warmup_steps: 4, floor, decay_steps: None }.share_at(step, 104)
    }

    #[test]
    fn the_rate_rises_to_its_full_height_and_stays() {
        assert_eq!([1, 2, 4, 5, 104].map(|step| at(Shape::Constant, 0.0, step)), [0.25, 0.5, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn the_cosine_starts_full_after_warm_up_and_falls_to_its_floor() {
        assert_eq!(at(Shape::Cosine, 0.0, 5), 1.0);
        assert!((at(Shape::Cosine, 0.0, 55) - 0.5).abs() < 1e-12);
        assert!(at(Shape::Cosine, 0.0, 104) > 0.0 && at(Shape::Cosine, 0.0, 104) < 1e-3);
        assert!((at(Shape::Cosine, 0.1, 55) - 0.55).abs() < 1e-12);
        assert_eq!(at(Shape::Cosine, 0.1, 400), 0.1, "stays at its floor behind the end");
    }

    #[test]
    fn the_line_falls_by_the_same_share_at_every_step() {
        assert_eq!(at(Shape::Linear, 0.0, 5), 1.0);
        assert!((at(Shape::Linear, 0.0, 6) - 0.99).abs() < 1e-12);
        assert!((at(Shape::Linear, 0.2, 104) - 0.208).abs() < 1e-12);
    }

    #[test]
    fn wsd_is_full_until_its_last_fifth() {
        // A fifth of 104 steps is 20: the first of them is step 85, still at the full rate.
        assert_eq!([5, 84, 85].map(|step| at(Shape::Wsd, 0.0, step)), [1.0; 3]);
        assert!((at(Shape::Wsd, 0.0, 86) - 0.95).abs() < 1e-12);
        assert!((at(Shape::Wsd, 0.0, 104) - 0.05).abs() < 1e-12);
        let longer = Schedule { shape: Shape::Wsd, decay_steps: Some(1_000), ..Schedule::default() };
        assert!((longer.share_at(51, 100) - 0.5).abs() < 1e-12, "a decay longer than the run is the whole run");
    }

    #[test]
    fn names_are_read_as_they_are_printed() {
        for shape in Shape::ALL {
            assert_eq!(shape.to_string().parse(), Ok(shape));
        }
        assert!("cosin".parse::<Shape>().is_err());
    }
}
