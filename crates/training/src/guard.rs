//! Watches the loss of a run for spikes, and names the operators whose weights grew most.

use crate::trainer::{PIECE, Trainer};
use std::fmt;

/// How a run responds to a loss spike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnSpike {
    /// Reports it and continues.
    #[default]
    Tell,
    /// Ends the run: the caller may go back to a checkpoint and try again.
    End,
}

/// A loss far above the lowest level it had reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Spike {
    pub step: u64,
    pub loss: f64,
    /// Lowest running mean of the loss before the spike.
    pub least: f64,
    /// Operators whose weights grew most since the run began, and by what factor.
    pub grew: Vec<(String, f64)>,
}

impl fmt::Display for Spike {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Spike { step, loss, least, grew } = self;
        write!(out, "the loss diverged: {loss:.3} at step {step}, after it had fallen to {least:.3}")?;
        let named: Vec<String> = grew.iter().map(|(name, times)| format!("{name} {times:.2}×")).collect();
        match named.is_empty() {
            true => Ok(()),
            false => write!(out, "; weights grew most in {}", named.join(", ")),
        }
    }
}

/// Operators named in a report.
const NAMED: usize = 3;

/// Weight of the old mean in the running mean.
const KEPT: f64 = 0.8;

#[derive(Clone, Debug, Default)]
pub struct Guard {
    mean: Option<f64>,
    least: f64,
    /// Whether the loss is in a spike that has already been reported.
    off: bool,
    /// Root mean squares of the weights when the run began.
    first: Vec<(String, f64)>,
}

impl Guard {
    pub fn new(trainer: &mut Trainer) -> Guard {
        Guard { first: if trainer.device.computes() { norms(trainer) } else { vec![] }, ..Guard::default() }
    }

    /// Takes the next loss; returns the lowest mean so far if a spike begins here.
    pub fn watch(&mut self, loss: f64) -> Option<f64> {
        let limit = self.least + (0.25 * self.least.abs()).max(1.0);
        if self.mean.is_some() && loss > limit {
            let told_already = std::mem::replace(&mut self.off, true);
            return (!told_already).then_some(self.least);
        }
        self.off = false;
        let mean = self.mean.map_or(loss, |mean| KEPT * mean + (1.0 - KEPT) * loss);
        self.least = if self.mean.is_none() { mean } else { self.least.min(mean) };
        self.mean = Some(mean);
        None
    }

    /// Describes the spike.
    pub fn spike(&self, trainer: &mut Trainer, step: u64, loss: f64, least: f64) -> Spike {
        let now = norms(trainer);
        let mut grew: Vec<(String, f64)> = (self.first.iter().zip(now))
            .filter(|((_, first), _)| *first > 0.0)
            .map(|((_, first), (name, now))| (name, now / first))
            .filter(|(_, times)| *times > 1.01)
            .collect();
        grew.sort_by(|a, b| b.1.total_cmp(&a.1));
        grew.truncate(NAMED);
        Spike { step, loss, least, grew }
    }
}

/// Root mean square of each parameter, over at most one transfer piece of it.
fn norms(trainer: &mut Trainer) -> Vec<(String, f64)> {
    let leaves = trainer.tree().leaf_names();
    let all: Vec<(String, usize)> = trainer.parameters().into_iter().map(|(name, ty)| (name, ty.elements())).collect();
    let norm = |((name, elements), leaf): ((String, usize), String)| {
        let mut piece = vec![0.0; elements.min(PIECE)];
        trainer.read_weights_at(&name, 0, &mut piece);
        let squares: f64 = piece.iter().map(|x| f64::from(*x).powi(2)).sum();
        (leaf, (squares / piece.len().max(1) as f64).sqrt())
    };
    all.into_iter().zip(leaves).map(norm).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spikes(losses: impl IntoIterator<Item = f64>) -> Vec<(usize, f64)> {
        let mut guard = Guard::default();
        let found = |(step, loss)| guard.watch(loss).map(|_| (step, loss));
        losses.into_iter().enumerate().filter_map(found).collect()
    }

    #[test]
    fn a_loss_that_comes_down_with_noise_is_on_its_course() {
        let noisy = (0..200).map(|step| 2.0 + 5.0 * (-f64::from(step) / 40.0).exp() + 0.3 * f64::from(step % 3 - 1));
        assert_eq!(spikes(noisy), []);
    }

    #[test]
    fn a_jump_is_told_once_and_again_after_it_has_come_back() {
        let mut losses: Vec<f64> = (0..30).map(|step| 7.0 - 0.05 * f64::from(step)).collect();
        losses[20] = 21.9;
        losses[21] = 15.0;
        losses[28] = 30.0;
        assert_eq!(spikes(losses), [(20, 21.9), (28, 30.0)]);
    }

    #[test]
    fn what_is_said_names_what_grew() {
        let spike = Spike { step: 30, loss: 21.9, least: 5.4, grew: vec![("layers.3.mlp.down_proj".into(), 1.5)] };
        let said = "the loss diverged: 21.900 at step 30, after it had fallen to 5.400; weights grew most in \
                    layers.3.mlp.down_proj 1.50×";
        assert_eq!(spike.to_string(), said);
    }
}
