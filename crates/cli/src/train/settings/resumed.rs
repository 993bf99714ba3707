//! Settings that a checkpoint stores about its run, so that resuming needs no flags.

use anyhow::Context;
use headroom_graph::ops::adamw::Decays;
use headroom_training::checkpoint::TrainingState;
use headroom_training::patience::{Best, Patience};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// Every field is named after its flag; missing ones were not recorded or not set.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Resumed {
    pub size: Option<String>,
    pub batch_size: Option<usize>,
    pub seq_len: Option<usize>,
    pub num_steps: Option<u64>,
    pub optimizer: Option<String>,
    pub momentum: Option<f64>,
    pub learning_rate: Option<f64>,
    pub weight_decay: Option<f64>,
    pub decay: Option<String>,
    pub clip: Option<f64>,
    pub gradient_accumulation_steps: Option<usize>,
    pub lr_schedule: Option<String>,
    pub lr_warmup_steps: Option<u64>,
    pub lr_floor: Option<f64>,
    pub lr_decay_steps: Option<u64>,
    pub betas: Option<[f64; 2]>,
    pub eps: Option<f64>,
    pub update: Option<String>,
    pub passes: Option<String>,
    pub precision: Option<String>,
    pub data: Option<String>,
    pub tokenizer: Option<PathBuf>,
    pub text_column: Option<String>,
    pub held_out: Option<f64>,
    /// The held-out share when the data began, if it was another: it decides the order of samples.
    pub held_out_at_start: Option<f64>,
    pub eval_every: Option<u64>,
    pub eval_batch_size: Option<usize>,
    pub eval_batches: Option<usize>,
    pub eval_data: Option<String>,
    pub early_stop: Option<u64>,
    pub keep_best: Option<bool>,
    /// The best evaluation so far, if evaluations count.
    pub best_eval_loss: Option<f64>,
    pub best_eval_step: Option<u64>,
    pub evals_since_best: Option<u64>,
}

impl Resumed {
    pub fn of(state: &TrainingState) -> anyhow::Result<Resumed> {
        serde_json::from_value(Value::Object(state.extra.clone()))
            .context("the checkpoint's training_state.json has `extra` settings that cannot be read")
    }

    /// The state of the evaluations so far.
    pub fn patience(&self, most: u64) -> Patience {
        let best = self.best_eval_step.zip(self.best_eval_loss);
        let best = best.map(|(step, loss)| Best { step, loss: loss as f32 });
        Patience { most, best, since: self.evals_since_best.unwrap_or(0) }
    }

    pub fn decay(&self) -> anyhow::Result<Option<Decays>> {
        self.decay.as_deref().map(str::parse).transpose().map_err(anyhow::Error::msg)
    }

    pub fn to_map(&self) -> anyhow::Result<Map<String, Value>> {
        match serde_json::to_value(self)? {
            Value::Object(map) => Ok(map),
            other => anyhow::bail!("notes for a checkpoint came out as {other}"),
        }
    }
}
