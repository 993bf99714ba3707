//! `k1-tree.json`: K-1's own tree under every update rule and against a LLaMA with as many parameters, run by run. The
//! whole file is rewritten after every run, and resuming uses nothing else.

use crate::k1::{Estimate, set_origins};
use crate::provenance::{Origin, Provenance};
use serde::{Deserialize, Serialize};

pub const K1_TREE_FILE: &str = "k1-tree.json";

/// The control's name among the arms.
pub const LLAMA: &str = "llama";

/// The arm that updates no node, only the embedding, the last norm and the head.
pub const NO_NODE: &str = "no node";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct K1TreeRecord {
    pub schema_version: u32,
    pub timestamp: String,
    /// The list of passes.
    pub version: String,
    pub device: String,
    pub machine: String,
    pub threads: u64,
    pub design: K1TreeDesign,
    pub runs: Vec<K1TreeRun>,
    /// Means over seeds for each task, budget and arm. Like the next three lists, empty until all runs are done.
    pub arms: Vec<K1TreeMean>,
    pub comparisons: Vec<K1TreeComparison>,
    /// One plain sentence per question.
    pub answers: Vec<String>,
    /// How to read the comparisons.
    pub statements: Vec<String>,
    /// Measured, summed over all resumptions.
    pub total_seconds: f64,
    pub provenance: Provenance,
}

/// Everything that a run depends on: a resumed experiment must have the same design.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct K1TreeDesign {
    pub branching: Vec<u64>,
    pub nodes: u64,
    pub parameters: u64,
    /// The tree's width, heads, key-value heads and feed-forward width.
    pub widths: Vec<u64>,
    pub vocabulary: u64,
    /// The control: its layers, the same four widths, and its parameters.
    pub llama_layers: u64,
    pub llama_widths: Vec<u64>,
    pub llama_parameters: u64,
    pub batch_size: u64,
    pub seq_len: u64,
    pub learning_rate: f64,
    pub weight_decay: f64,
    pub clip: f64,
    pub seeds: Vec<u64>,
    /// Batches of each source that a loss is averaged over.
    pub eval_batches: u64,
    pub tasks: Vec<K1TreeTask>,
    /// One entry per arm and budget.
    pub budgets: Vec<K1TreeBudget>,
    /// Loss of a model for which every token is equally likely.
    pub loss_of_no_knowledge: f64,
}

/// Two sources: the model is trained on the first, on the second, and on the first again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct K1TreeTask {
    pub name: String,
    pub sources: Vec<String>,
    /// Lower bound of any model's loss, if known.
    pub loss_floor: Option<f64>,
}

/// Steps per phase that an arm gets when a quantity is held equal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct K1TreeBudget {
    pub arm: String,
    pub equal: Equal,
    pub steps_per_phase: u64,
    /// Parameters updated per step.
    pub updated_parameters: u64,
    /// Matrix products of the forward and backward pass, plus 16 FLOPs per updated parameter.
    pub flops: u64,
}

/// The quantity that is held equal between arms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Equal {
    Steps,
    Updates,
    Flops,
}

impl Equal {
    pub const ALL: [Equal; 3] = [Equal::Steps, Equal::Updates, Equal::Flops];

    pub fn words(self) -> &'static str {
        match self {
            Equal::Steps => "equal steps",
            Equal::Updates => "equal updated parameters",
            Equal::Flops => "equal FLOPs",
        }
    }
}

/// One arm with one seed on one task. Budgets that give an arm the same number of steps share the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct K1TreeRun {
    /// A rule as `--update` names it, `no node` or `llama`.
    pub arm: String,
    pub task: String,
    pub seed: u64,
    pub steps_per_phase: u64,
    /// Time of the steps, without evaluation.
    pub seconds: f64,
    pub steps_per_sec: f64,
    /// Number of parameter updates (a parameter updated at two steps counts twice), and that over steps times
    /// parameters.
    pub updated_parameters: u64,
    pub updated_share: f64,
    /// `[phase][source]`: losses on both sources after each phase.
    pub losses: Vec<Vec<f64>>,
    /// Mean over the first two phases of the loss on a phase's own source right after that phase.
    pub loss: f64,
    /// Rise of the loss on the first source during training on the second.
    pub forgetting: f64,
    /// Loss on the first source after returning to it, minus its loss after the first phase.
    pub back: f64,
    /// Mean loss over both sources at the end.
    pub final_loss: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct K1TreeMean {
    pub arm: String,
    pub task: String,
    pub equal: Equal,
    pub steps_per_phase: u64,
    pub steps_per_sec: Estimate,
    pub updated_share: Estimate,
    pub loss: Estimate,
    pub forgetting: Estimate,
    pub back: Estimate,
    pub final_loss: Estimate,
}

/// A difference between two arms, paired by seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct K1TreeComparison {
    pub task: String,
    pub equal: Equal,
    /// `loss`, `forgetting` or `back`.
    pub figure: String,
    pub arm: String,
    pub against: String,
    /// Figure of `arm` minus that of `against`.
    pub difference: Estimate,
    /// Probability of a difference this large if there were none: by itself, and adjusted for all comparisons (Holm's
    /// method).
    pub p_value: Option<f64>,
    pub adjusted_p_value: Option<f64>,
    /// Whether it exceeds the noise, at the 5% level over all comparisons together.
    pub beyond_noise: bool,
}

impl K1TreeDesign {
    pub fn steps(&self, arm: &str, equal: Equal) -> Option<u64> {
        let own = self.budgets.iter().find(|budget| budget.arm == arm && budget.equal == equal);
        own.map(|budget| budget.steps_per_phase)
    }
}

impl K1TreeRecord {
    /// The run that belongs to an arm's budget.
    pub fn run(&self, task: &str, arm: &str, equal: Equal, seed: u64) -> Option<&K1TreeRun> {
        let steps = self.design.steps(arm, equal)?;
        self.runs
            .iter()
            .find(|run| run.task == task && run.arm == arm && run.steps_per_phase == steps && run.seed == seed)
    }

    /// Adds the provenance of every figure.
    pub fn with_provenance(mut self) -> K1TreeRecord {
        let mut provenance = Provenance::of(&[
            ("threads", Origin::Assumed),
            ("design", Origin::Assumed),
            ("design.nodes", Origin::Computed),
            ("design.parameters", Origin::Computed),
            ("design.llama_layers", Origin::Computed),
            ("design.llama_widths", Origin::Computed),
            ("design.llama_parameters", Origin::Computed),
            ("design.loss_of_no_knowledge", Origin::Computed),
            ("design.tasks", Origin::Computed),
            ("design.budgets", Origin::Computed),
            ("total_seconds", Origin::Measured),
        ]);
        let results = [("runs", self.runs.len()), ("arms", self.arms.len()), ("comparisons", self.comparisons.len())];
        set_origins(&mut provenance, &results);
        self.provenance = provenance;
        self
    }
}
