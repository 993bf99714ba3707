//! K-1's own tree: every update rule, and a LLaMA with as many parameters, from the same seeds, on two sources in turn.

mod answers;
mod control;
mod side_by_side;
pub mod speed;
mod tasks;

pub use answers::{answers, comparisons, means, statements};
pub use control::llama_of;
pub use side_by_side::{Job, run_all};
pub use tasks::{Task, Texts, VOCABULARY};

use super::trial::{take_step, trainer_of};
use crate::bench::ExperimentError;
use headroom_engine::{DeviceSpec, Opening};
use headroom_graph::{GraphError, Phase, Rule};
use headroom_record::k1_tree::{Equal, K1TreeBudget, K1TreeRun, LLAMA, NO_NODE};
use headroom_training::data::Batch;
use headroom_training::models::parameters;
use headroom_training::optimizer::{OptimizerConfig, Update};
use headroom_training::program::{Keep, StepConfig, training_program};
use headroom_training::run::evaluate;
use headroom_training::tree::Tree;
use std::time::{Duration, Instant};

/// The settings that all runs share.
#[derive(Clone, Debug)]
pub struct TreeDesign {
    /// The tree and its control; their update rules are ignored.
    pub tree: StepConfig,
    pub llama: StepConfig,
    pub device: DeviceSpec,
    pub opening: Opening,
    /// Steps per phase when steps are held equal; equal FLOPs means those of as many dense steps.
    pub steps: u64,
    /// When updates are held equal, every arm gets as many parameter updates per phase as this many dense steps make.
    pub dense_steps: u64,
    pub eval_batches: usize,
}

/// Phases: the first source, the second, and the first again.
const PHASES: [usize; 3] = [0, 1, 0];

/// One arm of the comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    pub name: String,
    pub update: Update,
    is_llama: bool,
}

impl Arm {
    /// The rules on the tree, and the two controls.
    pub fn all(k: usize) -> Vec<Arm> {
        let chosen = |rule: Rule| Update::Chosen { rule, seed: 0 };
        let rules = [Update::Dense, chosen(Rule::TopK(k)), chosen(Rule::Path), chosen(Rule::Random(k))];
        let arm = |name: &str, update: Update, is_llama: bool| Arm { name: name.into(), update, is_llama };
        let on_tree = rules.map(|update| arm(&update.to_string(), update, false));
        let controls = [arm(NO_NODE, chosen(Rule::Random(0)), false), arm(LLAMA, Update::Dense, true)];
        [&on_tree[..], &controls].concat()
    }

    fn step<'a>(&self, design: &'a TreeDesign) -> &'a StepConfig {
        if self.is_llama { &design.llama } else { &design.tree }
    }

    /// Parameters updated per step. All nodes have the same size, so it does not depend on which are chosen.
    fn updated(&self, step: &StepConfig) -> Result<u64, GraphError> {
        let model = &step.model;
        let named = parameters(model)?.into_iter().map(|one| (one.part.path, one.ty.elements()));
        let parents = (model.family.parents)(model);
        let leaves = (0..parents.len()).filter(|block| !parents.contains(&Some(*block))).count() as u64;
        let tree = Tree::of(named, parents);
        let all = tree.nodes[0].parameters;
        let own = tree.units().into_iter().find(|unit| unit.name == "layers.0").map_or(0, |unit| unit.parameters);
        let outside = all - own * tree.choices() as u64;
        Ok(match self.update.rule() {
            None | Some(Rule::All) => all,
            Some(Rule::TopK(count) | Rule::Random(count)) => outside + own * count as u64,
            Some(Rule::Path) => outside + own * leaves,
        })
    }
}

/// FLOPs of AdamW per parameter, as its op counts them.
const UPDATE_FLOPS: u64 = 16;

/// Steps per phase for each arm and each quantity that is held equal.
pub fn budgets(design: &TreeDesign, arms: &[Arm]) -> Result<Vec<K1TreeBudget>, GraphError> {
    let mut cost = vec![];
    for arm in arms {
        let step = arm.step(design);
        let graph = training_program(step, Keep::OnlyTheLoss)?.program.graph;
        let products = graph.product_flops(Phase::Forward) + graph.product_flops(Phase::Backward);
        let updated = arm.updated(step)?;
        cost.push((arm, updated, products + UPDATE_FLOPS * updated));
    }
    let dense = cost.iter().find(|(arm, ..)| !arm.is_llama && arm.update == Update::Dense);
    let (all, dense_flops) = dense.map_or((0, 0), |(_, updated, flops)| (*updated, *flops));
    let mut budgets = vec![];
    for equal in Equal::ALL {
        for (arm, updated, flops) in &cost {
            // The effect of updating no node shows at equal steps; equal updates would take thousands of steps.
            if arm.name == NO_NODE && equal != Equal::Steps {
                continue;
            }
            let steps = match equal {
                Equal::Steps => design.steps,
                Equal::Updates => rounded(design.dense_steps * all, *updated),
                Equal::Flops => rounded(design.steps * dense_flops, *flops),
            };
            budgets.push(K1TreeBudget {
                arm: arm.name.clone(),
                equal,
                steps_per_phase: steps,
                updated_parameters: *updated,
                flops: *flops,
            });
        }
    }
    Ok(budgets)
}

/// The nearest whole number of steps, at least one.
fn rounded(budget: u64, of_one: u64) -> u64 {
    ((budget + of_one / 2) / of_one.max(1)).max(1)
}

/// Runs an arm with a seed, on a task whose sources belong to the same seed.
pub fn run(design: &TreeDesign, arm: &Arm, task: &Task, seed: u64, steps: u64) -> Result<K1TreeRun, ExperimentError> {
    let update = match arm.update {
        Update::Dense => Update::Dense,
        Update::Chosen { rule, .. } => Update::Chosen { rule, seed },
    };
    let step = arm.step(design);
    let step = StepConfig { optimizer: OptimizerConfig { update, ..step.optimizer }, ..step.clone() };
    let mut trainer = trainer_of(&step, design.device, &design.opening, seed)?;
    let all = step.model.parameters().total();
    let (mut busy, mut losses) = (Duration::ZERO, vec![]);
    let mut batch = Batch::new(step.shape);
    // A source that is revisited continues where it was left.
    let mut positions = [0u64; 2];
    for source in PHASES {
        for _ in 0..steps {
            task.training[source].fill(positions[source], &mut batch)?;
            positions[source] += 1;
            let start = Instant::now();
            take_step(&mut trainer, &batch, update)?;
            busy += start.elapsed();
            if trainer.choices_are_full() {
                trainer.read_choices();
            }
        }
        losses.push(task.held_out.iter().map(|set| f64::from(evaluate(&mut trainer, set))).collect::<Vec<f64>>());
    }
    trainer.read_choices();
    let updated = trainer.choices.as_ref().map_or(trainer.step * all, |choices| choices.updated_parameters());
    let (count, seconds) = (trainer.step, busy.as_secs_f64());
    let first = losses[0][0];
    Ok(K1TreeRun {
        arm: arm.name.clone(),
        task: task.name.into(),
        seed,
        steps_per_phase: steps,
        seconds,
        steps_per_sec: count as f64 / seconds.max(1e-9),
        updated_parameters: updated,
        updated_share: updated as f64 / (count.max(1) * all) as f64,
        loss: f64::midpoint(first, losses[1][1]),
        forgetting: losses[1][0] - first,
        back: losses[2][0] - first,
        final_loss: f64::midpoint(losses[2][0], losses[2][1]),
        losses,
    })
}

#[cfg(test)]
mod tests;
