//! Between a trainer and its checkpoints: what a run saves, and how it is loaded again.

use crate::checkpoint::ranges::Ranges;
use crate::checkpoint::{
    Checkpoint, CheckpointError, Companions, Content, HfConfig, OptimizerSettings, SavedDtype, Saver, Snapshot,
    TensorSpec, TrainingState,
};
use crate::optimizer::OptimizerConfig;
use crate::trainer::Trainer;
use headroom_engine::ranks::Ranks;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Metadata that a checkpoint stores besides the tensors.
pub struct Notes<'a> {
    pub config: &'a HfConfig,
    pub optimizer: &'a OptimizerConfig,
    pub seed: u64,
    /// The data source's description of itself.
    pub data: &'a str,
    /// Entries that the caller wants back on resuming.
    pub extra: &'a Map<String, Value>,
    /// Files to save beside the model.
    pub companions: &'a Companions,
}

pub fn save(trainer: &mut Trainer, saver: &mut Saver, notes: &Notes) -> Result<(), CheckpointError> {
    trainer.fault.while_saving();
    let tensors = specs(trainer);
    let state = TrainingState {
        step: trainer.step,
        next_sample: Some(trainer.next_sample),
        data_position: None,
        seed: notes.seed,
        data: notes.data.into(),
        optimizer: OptimizerSettings {
            name: notes.optimizer.method.torch_name().into(),
            momentum: notes.optimizer.method.momentum(),
            learning_rate: notes.optimizer.learning_rate,
            betas: notes.optimizer.betas,
            eps: notes.optimizer.eps,
            weight_decay: notes.optimizer.weight_decay,
            clip: notes.optimizer.clip,
        },
        node_steps: trainer.node_steps().into_iter().flatten().collect(),
        scales: trainer.scales(),
        extra: notes.extra.clone(),
    };
    let snapshot = Snapshot { config: notes.config, tensors: &tensors, state: &state, companions: notes.companions };
    let (folder, dtype) = (saver.folder().to_path_buf(), notes.config.dtype);
    if trainer.ranks.is_some() && together(trainer, folder, dtype, Some((&mut *saver, snapshot)))? {
        return Ok(());
    }
    let saved = saver.save(snapshot, &mut |content, name, take| {
        let step = trainer.step;
        trainer.read(name, content, |piece| match piece.iter().find(|x| !x.is_finite()) {
            Some(&value) => Err(CheckpointError::Handover(NotSaved { content, name: name.into(), value, step }.into())),
            None => take(piece),
        })
    });
    match trainer.parted.take() {
        Some(error) => Err(CheckpointError::Handover(error.into())),
        None => saved,
    }
}

/// The part of a rank that does not commit the checkpoint: writes its ranges of all tensors, with weights in `dtype`, or
/// sends its states to the rank that does.
pub fn save_part(trainer: &mut Trainer, folder: &Path, dtype: SavedDtype) -> Result<(), CheckpointError> {
    if !together(trainer, folder.to_path_buf(), dtype, None)? {
        trainer.hand_over().map_err(|error| CheckpointError::Handover(error.into()))?;
    }
    Ok(())
}

/// All ranks write at the same time, each its range of every tensor; one of them commits once all have finished. If one
/// rank fails, all do. Returns false if some rank does not see the folder: then one rank has to write everything.
fn together(
    trainer: &mut Trainer,
    folder: PathBuf,
    dtype: SavedDtype,
    mut commits: Option<(&mut Saver, Snapshot)>,
) -> Result<bool, CheckpointError> {
    let Some(ranks) = trainer.ranks.clone() else { return Ok(false) };
    let tensors = specs(trainer);
    let prepared = commits.as_mut().map_or(Ok(()), |(saver, _)| saver.prepare(&tensors, dtype));
    agreed(&ranks, prepared)?;
    let (opened, failure) = match Ranges::open(&folder, &tensors, dtype) {
        Ok(opened) => (opened, Ok(())),
        Err(error) => (None, Err(error)),
    };
    let all_see =
        ranks.largest(u64::from(opened.is_none())).map_err(|error| CheckpointError::Handover(error.into()))? == 0;
    let opened = opened.filter(|_| all_see);
    let written = failure.and_then(|()| match opened {
        Some(opened) => trainer.write_ranges(&tensors, opened),
        None => Ok(()),
    });
    let written = agreed(&ranks, written);
    if let (Err(_), Some((saver, _))) = (&written, &mut commits) {
        saver.clear();
    }
    written?;
    if !all_see {
        return Ok(false);
    }
    let committed = commits.as_mut().map_or(Ok(()), |(saver, snapshot)| saver.commit_written(*snapshot));
    if let (Err(_), Some((saver, _))) = (&committed, &mut commits) {
        saver.clear();
    }
    agreed(&ranks, committed)?;
    Ok(true)
}

/// This rank's own failure, or that of the first rank that has one.
fn agreed(ranks: &Ranks, outcome: Result<(), CheckpointError>) -> Result<(), CheckpointError> {
    let mine = outcome.as_ref().err().map_or(String::new(), ToString::to_string);
    let said = ranks.gather(mine.as_bytes()).map_err(|error| CheckpointError::Handover(error.into()))?;
    outcome?;
    match said.iter().position(|words| !words.is_empty()) {
        Some(rank) => Err(CheckpointError::OtherRank { rank, why: String::from_utf8_lossy(&said[rank]).into() }),
        None => Ok(()),
    }
}

/// A broken model must not replace a good one.
#[derive(Debug, Error)]
#[error("the {} of {name} hold {value} after step {step}: not saved; the previous checkpoint stays", content.plural())]
pub struct NotSaved {
    pub content: Content,
    pub name: String,
    pub value: f32,
    pub step: u64,
}

/// Loads only the weights: training starts over from them.
pub fn load_weights(trainer: &mut Trainer, checkpoint: &Checkpoint) -> Result<(), CheckpointError> {
    checkpoint.read_weights(&specs(trainer), &mut |content, name, first, piece| {
        trainer.write(name, content, first, piece);
        Ok(())
    })
}

/// Loads the weights, the optimizer's tensors and the step: training continues as if it had not stopped, with the data
/// from the sample that the caller sets (`Checkpoint::next_sample`, unless the data is other than before).
pub fn load_all(trainer: &mut Trainer, checkpoint: &Checkpoint) -> Result<(), CheckpointError> {
    checkpoint.read_all(&specs(trainer), &mut |content, name, first, piece| {
        trainer.write(name, content, first, piece);
        Ok(())
    })?;
    let state = checkpoint.state()?;
    trainer.step = state.step;
    if trainer.program().choice.is_none() && state.has_uneven_steps() {
        return Err(CheckpointError::Handover(UnevenSteps.into()));
    }
    // If the checkpoint has no counts, every step updated everything.
    let own = |(name, _)| state.node_steps.get(&name).copied().unwrap_or(state.step);
    let counts: Vec<u64> = trainer.parameters().into_iter().map(own).collect();
    trainer.resume_choices(&counts, state.step);
    trainer.resume_scales(&state.scales);
    Ok(())
}

/// A step that updates everything keeps a single step count for all parameters.
#[derive(Debug, Error)]
#[error(
    "its parameters were updated different numbers of times: only a selective update (topk:all) can continue from that"
)]
pub struct UnevenSteps;

pub(crate) fn specs(trainer: &Trainer) -> Vec<TensorSpec> {
    let each = trainer.parameters().into_iter().zip(trainer.states());
    each.map(|((name, ty), states)| TensorSpec::new(name, ty.sizes()).with_states(&states)).collect()
}
