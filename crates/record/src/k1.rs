//! `k1.json`: selective updates against their controls, run by run, and which differences exceed the noise.

use crate::provenance::{Origin, Provenance};
use serde::{Deserialize, Serialize};

pub const K1_FILE: &str = "k1.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct K1Record {
    pub schema_version: u32,
    pub timestamp: String,
    pub size: String,
    /// The list of passes.
    pub version: String,
    pub parameters: u64,
    /// Leaves of the model's tree.
    pub nodes: u64,
    pub device: String,
    pub machine: String,
    pub threads: u64,
    pub design: K1Design,
    pub runs: Vec<K1Run>,
    /// One entry per rule and budget.
    pub arms: Vec<K1Arm>,
    pub comparisons: Vec<K1Comparison>,
    /// Conclusions from the figures, as sentences.
    pub statements: Vec<String>,
    pub total_seconds: f64,
    pub provenance: Provenance,
}

/// Settings and reference losses that all runs share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct K1Design {
    /// Markov sources, trained on one after the other.
    pub sources: u64,
    pub steps_per_phase: u64,
    /// Parameter updates per phase when budgets are equal, and the number of dense steps that makes.
    pub updated_parameters_per_phase: u64,
    pub dense_steps_per_phase: f64,
    pub batch_size: u64,
    pub seq_len: u64,
    pub learning_rate: f64,
    pub weight_decay: f64,
    pub clip: f64,
    pub seeds: Vec<u64>,
    /// Batches of each source that a loss is averaged over.
    pub eval_batches: u64,
    /// Mean entropy of the sources: the lower bound of any model's loss.
    pub loss_floor: f64,
    /// Loss of a model for which every token is equally likely.
    pub loss_of_no_knowledge: f64,
}

/// Quantity that is held equal between rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Budget {
    EqualSteps,
    EqualUpdates,
}

impl Budget {
    pub const ALL: [Budget; 2] = [Budget::EqualSteps, Budget::EqualUpdates];

    pub fn words(self) -> &'static str {
        match self {
            Budget::EqualSteps => "equal steps",
            Budget::EqualUpdates => "equal updated parameters",
        }
    }
}

/// One rule from one seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct K1Run {
    /// As `--update` names it.
    pub update: String,
    pub budget: Budget,
    pub seed: u64,
    pub steps: u64,
    pub seconds: f64,
    pub steps_per_sec: f64,
    pub tokens_per_sec: f64,
    /// Number of parameter updates (a parameter updated at two steps counts twice), and that over steps times
    /// parameters.
    pub updated_parameters: u64,
    pub updated_share: f64,
    /// `[phase][source]`: losses on every source after each phase.
    pub losses: Vec<Vec<f64>>,
    /// Mean over the phases of the loss on a phase's own source right after that phase.
    pub loss: f64,
    /// Mean over the earlier sources of the rise in loss from the end of their own phase to the end of the run.
    pub forgetting: f64,
    /// Mean loss over all sources at the end.
    pub final_loss: f64,
    /// Whether every phase reached its budget.
    pub complete: bool,
}

/// A mean over seeds with its 95% confidence interval (`None` with fewer than two seeds).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub mean: f64,
    pub ci95_low: Option<f64>,
    pub ci95_high: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct K1Arm {
    pub update: String,
    pub budget: Budget,
    pub steps: Estimate,
    pub steps_per_sec: Estimate,
    pub tokens_per_sec: Estimate,
    pub updated_share: Estimate,
    pub loss: Estimate,
    pub forgetting: Estimate,
    pub final_loss: Estimate,
}

/// A difference between two rules, paired by seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct K1Comparison {
    pub budget: Budget,
    /// `loss`, `forgetting` or `final_loss`.
    pub figure: String,
    pub update: String,
    pub against: String,
    /// Figure of `update` minus that of `against`.
    pub difference: Estimate,
    /// Probability of a difference this large if there were none: by itself, and adjusted for all comparisons (Holm's
    /// method).
    pub p_value: Option<f64>,
    pub adjusted_p_value: Option<f64>,
    /// Whether it exceeds the noise, at the 5% level over all comparisons together.
    pub beyond_noise: bool,
}

impl K1Record {
    /// Adds the provenance of every figure.
    pub fn with_provenance(mut self) -> K1Record {
        let mut provenance = Provenance::of(&[
            ("parameters", Origin::Computed),
            ("nodes", Origin::Computed),
            ("threads", Origin::Assumed),
            ("design", Origin::Assumed),
            ("design.loss_floor", Origin::Computed),
            ("design.loss_of_no_knowledge", Origin::Computed),
            ("design.updated_parameters_per_phase", Origin::Computed),
            ("design.dense_steps_per_phase", Origin::Computed),
            ("total_seconds", Origin::Measured),
        ]);
        let results = [("runs", self.runs.len()), ("arms", self.arms.len()), ("comparisons", self.comparisons.len())];
        set_origins(&mut provenance, &results);
        self.provenance = provenance;
        self
    }
}

/// Provenance for those lists of an experiment that are not empty.
pub(crate) fn set_origins(provenance: &mut Provenance, lists: &[(&str, usize)]) {
    for (list, _) in lists.iter().filter(|(_, length)| *length > 0) {
        // Means and differences of measured losses count as measured; conclusions from them are computed.
        provenance.set(list, Origin::Measured);
        if *list == "comparisons" {
            provenance.set("comparisons.p_value", Origin::Computed);
            provenance.set("comparisons.adjusted_p_value", Origin::Computed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SCHEMA_VERSION;
    use crate::provenance::check_provenance;

    #[test]
    fn every_figure_has_its_origin() {
        let estimate = Estimate { mean: 1.0, ci95_low: None, ci95_high: Some(2.0) };
        let run = K1Run {
            update: "path".into(),
            budget: Budget::EqualSteps,
            seed: 1,
            steps: 2,
            seconds: 0.5,
            steps_per_sec: 4.0,
            tokens_per_sec: 400.0,
            updated_parameters: 7,
            updated_share: 0.5,
            losses: vec![vec![1.0, 2.0]],
            loss: 1.0,
            forgetting: 0.5,
            final_loss: 1.5,
            complete: true,
        };
        let arm = K1Arm {
            update: "path".into(),
            budget: Budget::EqualSteps,
            steps: estimate,
            steps_per_sec: estimate,
            tokens_per_sec: estimate,
            updated_share: estimate,
            loss: estimate,
            forgetting: estimate,
            final_loss: estimate,
        };
        let comparison = K1Comparison {
            budget: Budget::EqualUpdates,
            figure: "loss".into(),
            update: "path".into(),
            against: "dense".into(),
            difference: estimate,
            p_value: Some(0.1),
            adjusted_p_value: None,
            beyond_noise: false,
        };
        let record = K1Record {
            schema_version: SCHEMA_VERSION,
            timestamp: "2026-11-15T00:00:00Z".into(),
            size: "nano".into(),
            version: "v2".into(),
            parameters: 1,
            nodes: 21,
            device: "cpu".into(),
            machine: "m".into(),
            threads: 2,
            design: K1Design {
                sources: 2,
                steps_per_phase: 10,
                updated_parameters_per_phase: 100,
                dense_steps_per_phase: 2.5,
                batch_size: 8,
                seq_len: 64,
                learning_rate: 1e-3,
                weight_decay: 0.01,
                clip: 1.0,
                seeds: vec![1],
                eval_batches: 4,
                loss_floor: 1.1,
                loss_of_no_knowledge: 6.9,
            },
            runs: vec![run],
            arms: vec![arm],
            comparisons: vec![comparison],
            statements: vec![],
            total_seconds: 1.0,
            provenance: Provenance::default(),
        }
        .with_provenance();
        check_provenance(&serde_json::to_value(&record).unwrap()).unwrap();
    }
}
