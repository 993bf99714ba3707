//! The update rule of a step, checked against the model's tree.

use super::resumed::Resumed;
use crate::output;
use crate::train::arguments::Arguments;
use anyhow::{bail, ensure};
use headroom_graph::{GraphError, Rule};
use headroom_training::checkpoint::TrainingState;
use headroom_training::models::{ModelConfig, parameters};
use headroom_training::optimizer::Update;
use headroom_training::tree::Tree;

/// The update rule of the flags, else of the resumed run, else dense.
pub fn update_of(
    arguments: &Arguments,
    before: &Resumed,
    state: Option<&TrainingState>,
    model: &ModelConfig,
    seed: u64,
) -> anyhow::Result<Update> {
    let asked = arguments.training.update.as_ref().or(before.update.as_ref());
    let update = match asked.map_or(Ok(Update::Dense), |asked| asked.parse()) {
        Ok(update) => update,
        Err(why) => bail!("--update: {why}\n  help: dense, topk:K, topk:all, path or random:K"),
    };
    let nodes = tree_of(model)?.choices();
    if let Some(count) = update.rule().and_then(Rule::count) {
        ensure!(
            count <= nodes,
            "--update {update} chooses {count} nodes, and the model has {nodes}\n  help: --show-tree lists them; topk:all is all"
        );
    }
    Ok(match update {
        // A single step count cannot continue after steps that chose; choosing everything computes the same.
        Update::Dense if state.is_some_and(TrainingState::has_uneven_steps) => {
            output::note(
                "note: the checkpoint's parameters have different numbers of updates; from now on all are updated, each by its own \
                 count (--update topk:all)",
            );
            Update::Chosen { rule: Rule::All, seed }
        }
        Update::Dense => Update::Dense,
        Update::Chosen { rule, .. } => Update::Chosen { rule, seed },
    })
}

/// The model's tree, built without a device.
pub fn tree_of(model: &ModelConfig) -> Result<Tree, GraphError> {
    let parameters = parameters(model)?.into_iter().map(|one| (one.part.path, one.ty.elements()));
    Ok(Tree::of(parameters, (model.family.parents)(model)))
}
