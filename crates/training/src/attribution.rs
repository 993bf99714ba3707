//! How far each node moved since the start of the run, and the gradient norm of a single parameter.

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::persist::specs;
use crate::rng::Stream;
use crate::trainer::{PIECE, TRAINING, Trainer, fill_initial, log_row};
use headroom_graph::DType;
use std::collections::BTreeMap;

/// Where a run's weights came from.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a> {
    /// Drawn at random from this seed.
    Drawn(u64),
    Loaded(&'a Checkpoint),
}

/// The norm of the difference between each parameter and its initial value, in parameter order. Initial values are
/// drawn or read again piece by piece, so the run keeps nothing for this.
pub fn moved(trainer: &mut Trainer, start: Start) -> Result<Vec<f64>, CheckpointError> {
    let parameters = trainer.parameters();
    let places: BTreeMap<String, usize> =
        parameters.iter().enumerate().map(|(place, (name, _))| (name.clone(), place)).collect();
    let mut squares = vec![0.0f64; parameters.len()];
    let mut now = vec![0.0f32; PIECE];
    let mut add = |trainer: &mut Trainer, name: &str, first: usize, before: &[f32]| {
        let Some(&place) = places.get(name) else { return };
        let half = parameters[place].1.dtype == DType::Bf16;
        for (offset, before) in (first..).step_by(PIECE).zip(before.chunks(PIECE)) {
            let now = &mut now[..before.len()];
            trainer.read_weights_at(name, offset, now);
            let difference = |(now, before): (&f32, &f32)| {
                // The initial value was rounded when it was written to a half-precision tensor.
                let before = if half { half::bf16::from_f32(*before).to_f32() } else { *before };
                f64::from(*now) - f64::from(before)
            };
            squares[place] += now.iter().zip(before).map(difference).map(|x| x * x).sum::<f64>();
        }
    };
    match start {
        Start::Drawn(seed) => {
            let mut piece = vec![0.0f32; PIECE];
            for ((name, ty), role) in parameters.iter().zip(trainer.roles()) {
                let stream = Stream::new(seed, name);
                for first in (0..ty.elements()).step_by(PIECE) {
                    let piece = &mut piece[..PIECE.min(ty.elements() - first)];
                    fill_initial(&stream, role, first, piece);
                    add(trainer, name, first, piece);
                }
            }
        }
        Start::Loaded(checkpoint) => {
            let specs = specs(trainer);
            checkpoint.read_weights(&specs, &mut |_, name, first, piece| {
                add(trainer, name, first, piece);
                Ok(())
            })?;
        }
    }
    Ok(squares.into_iter().map(f64::sqrt).collect())
}

/// The squared norm of one parameter's gradient at the last step, when steps choose what they update. Reads from the
/// device, so it waits for it.
pub fn square_of(trainer: &mut Trainer, parameter: usize) -> Option<f32> {
    let (choice, parameters) = (trainer.program().choice?, trainer.program().trained.len());
    let at = log_row(trainer.step) * 2 * parameters + parameters + parameter;
    let mut square = [0.0];
    trainer.device.read_f32(TRAINING, choice.log, at, &mut square);
    Some(square[0])
}
