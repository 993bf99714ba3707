//! `k1-tree.json`: K-1's own tree under every rule of updating and against a LLaMA of equal parameters, run by run. It is written whole
//! after every run, and is all that resuming goes by.

use crate::k1::{Estimate, set_origins};
use crate::provenance::{Origin, Provenance};
use serde::{Deserialize, Serialize};

pub const K1_TREE_FILE: &str = "k1-tree.json";

/// The control's name among the arms.
pub const LLAMA: &str = "llama";

/// The arm that updates no node: embedding, last norm and head alone.
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
    /// Means over seeds, for each task, budget and arm; empty until all runs are there, as are the three lists below.
    pub arms: Vec<K1TreeMean>,
    pub comparisons: Vec<K1TreeComparison>,
    /// A plain sentence for each question.
    pub answers: Vec<String>,
    /// How to read the comparisons.
    pub statements: Vec<String>,
    /// Measured over all resumptions together.
    pub total_seconds: f64,
    pub provenance: Provenance,
}

/// Everything that a run depends on: a resumed experiment must have the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct K1TreeDesign {
    pub branching: Vec<u64>,
    pub nodes: u64,
    pub parameters: u64,
    /// The tree's width, heads, key-value heads, width of the feed-forward part.
    pub widths: Vec<u64>,
    pub vocabulary: u64,
    /// The control: layers and the same four, and its parameters.
    pub llama_layers: u64,
    pub llama_widths: Vec<u64>,
    pub llama_parameters: u64,
    pub batch_size: u64,
    pub seq_len: u64,
    pub learning_rate: f64,
    pub weight_decay: f64,
    pub clip: f64,
    pub seeds: Vec<u64>,
    /// Batches of each source that a loss is the mean of.
    pub eval_batches: u64,
    pub tasks: Vec<K1TreeTask>,
    /// One for each arm and budget.
    pub budgets: Vec<K1TreeBudget>,
    /// Loss of a model that finds every token equally likely.
    pub loss_of_no_knowledge: f64,
}

/// Two sources: trained on the first, on the second, and on the first again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct K1TreeTask {
    pub name: String,
    pub sources: Vec<String>,
    /// No model's loss goes below it, where that is known.
    pub loss_floor: Option<f64>,
}

/// Steps of a phase that an arm gets where something is held equal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct K1TreeBudget {
    pub arm: String,
    pub equal: Equal,
    pub steps_per_phase: u64,
    /// Counted for one step.
    pub updated_parameters: u64,
    /// Products of the forward and backward pass, and 16 for each parameter that is updated.
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

/// One arm from one seed on one task. Budgets that give an arm the same steps share the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct K1TreeRun {
    /// A rule as `--update` names it, `no node` or `llama`.
    pub arm: String,
    pub task: String,
    pub seed: u64,
    pub steps_per_phase: u64,
    /// Time of the steps alone, without evaluation.
    pub seconds: f64,
    pub steps_per_sec: f64,
    /// Parameters updated, one that was updated at two steps counted twice, and that over steps times parameters.
    pub updated_parameters: u64,
    pub updated_share: f64,
    /// `[phase][source]`: losses on both sources after each phase.
    pub losses: Vec<Vec<f64>>,
    /// Mean over the first two phases of the loss on the phase's own source right after it.
    pub loss: f64,
    /// How much the loss on the first source has risen while the second was trained on.
    pub forgetting: f64,
    /// Loss on the first source after coming back to it, less that after its first phase.
    pub back: f64,
    /// Mean over both sources of the loss at the end.
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

/// A difference between two arms, seed by seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct K1TreeComparison {
    pub task: String,
    pub equal: Equal,
    /// `loss`, `forgetting` or `back`.
    pub figure: String,
    pub arm: String,
    pub against: String,
    /// The figure of `arm` less that of `against`.
    pub difference: Estimate,
    /// The chance of a difference as large where there is none, as it is and held against all comparisons (Holm's method).
    pub p_value: Option<f64>,
    pub adjusted_p_value: Option<f64>,
    /// Is it larger than the noise, at 5% over all comparisons together?
    pub beyond_noise: bool,
}

impl K1TreeDesign {
    pub fn steps(&self, arm: &str, equal: Equal) -> Option<u64> {
        let own = self.budgets.iter().find(|budget| budget.arm == arm && budget.equal == equal);
        own.map(|budget| budget.steps_per_phase)
    }
}

impl K1TreeRecord {
    /// The run that an arm's budget stands for.
    pub fn run(&self, task: &str, arm: &str, equal: Equal, seed: u64) -> Option<&K1TreeRun> {
        let steps = self.design.steps(arm, equal)?;
        self.runs
            .iter()
            .find(|run| run.task == task && run.arm == arm && run.steps_per_phase == steps && run.seed == seed)
    }

    /// The same with the origin of every figure.
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
