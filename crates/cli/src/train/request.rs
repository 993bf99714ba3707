//! Typed requests of other commands to `train`: resolved here directly, or written as flags in one place for a separate
//! process.

use super::Arguments;
use super::arguments::PrecisionChoice;
use super::settings::{Settings, Sources};
use clap::Parser;
use headroom_graph::Precision;

/// A request. A field that is `None` has `train`'s own default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainRequest {
    pub size: String,
    pub passes: String,
    pub device: String,
    pub precision: Option<Precision>,
    pub threads: Option<u16>,
    pub memory_limit: Option<String>,
    pub batch_size: Option<usize>,
    pub seq_len: Option<usize>,
    pub data: Option<String>,
    pub num_steps: Option<u64>,
    pub gradient_accumulation_steps: Option<u32>,
    pub warmup_steps: Option<u64>,
    pub learning_rate: Option<f64>,
    pub weight_decay: Option<f64>,
    pub clip: Option<f64>,
}

/// The flags of `train` as a separate parser: without arguments it gives their defaults.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Flags {
    #[command(flatten)]
    train: Arguments,
}

impl TrainRequest {
    /// The settings that a process with these flags would resolve.
    pub fn settings(&self) -> anyhow::Result<(Settings, Sources)> {
        Settings::resolve(&self.arguments()?)
    }

    fn arguments(&self) -> anyhow::Result<Arguments> {
        let mut train = Flags::try_parse_from([""; 0])?.train;
        train.model.size = Some(self.size.clone());
        train.model.batch_size = self.batch_size;
        train.model.seq_len = self.seq_len;
        train.machine.passes = Some(self.passes.clone());
        train.machine.device = self.device.clone();
        train.machine.precision = self.precision.map(PrecisionChoice::Named);
        train.machine.threads = self.threads;
        train.machine.memory_limit = self.memory_limit.clone();
        train.data.data = self.data.clone();
        train.training.num_steps = self.num_steps;
        train.training.gradient_accumulation_steps = self.gradient_accumulation_steps;
        train.training.learning_rate = self.learning_rate;
        train.training.weight_decay = self.weight_decay;
        train.training.clip = self.clip;
        train.output.warmup_steps = self.warmup_steps.unwrap_or(train.output.warmup_steps);
        Ok(train)
    }

    /// The request as arguments of `train` or `profile`.
    pub fn flags(&self) -> Vec<String> {
        let mut words = vec![];
        let mut flag = |name: &str, value: Option<String>| {
            words.extend(value.map(|value| format!("--{name}={value}")));
        };
        flag("size", Some(self.size.clone()));
        flag("passes", Some(self.passes.clone()));
        flag("device", Some(self.device.clone()));
        flag("precision", self.precision.map(|precision| precision.name().to_string()));
        flag("threads", self.threads.map(|threads| threads.to_string()));
        flag("memory-limit", self.memory_limit.clone());
        flag("batch-size", self.batch_size.map(|size| size.to_string()));
        flag("seq-len", self.seq_len.map(|length| length.to_string()));
        flag("data", self.data.clone());
        flag("num-steps", self.num_steps.map(|steps| steps.to_string()));
        flag("gradient-accumulation-steps", self.gradient_accumulation_steps.map(|steps| steps.to_string()));
        flag("warmup-steps", self.warmup_steps.map(|steps| steps.to_string()));
        flag("learning-rate", self.learning_rate.map(|rate| rate.to_string()));
        flag("weight-decay", self.weight_decay.map(|decay| decay.to_string()));
        flag("clip", self.clip.map(|clip| clip.to_string()));
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request with every field set, none to its default.
    fn request() -> TrainRequest {
        TrainRequest {
            size: "nano".into(),
            passes: "v2,+fuse-loss".into(),
            device: "null".into(),
            precision: Some(Precision::Bf16),
            threads: Some(3),
            memory_limit: Some("4GiB".into()),
            batch_size: Some(2),
            seq_len: Some(16),
            data: Some("markov".into()),
            num_steps: Some(7),
            gradient_accumulation_steps: Some(2),
            warmup_steps: Some(1),
            learning_rate: Some(0.1 + 0.2),
            weight_decay: Some(1e-7),
            clip: Some(0.5),
        }
    }

    #[test]
    fn a_process_reads_from_the_flags_what_was_planned_here() {
        let (typed, read) = (request().arguments().unwrap(), Flags::try_parse_from(request().flags()).unwrap().train);
        let facts = |train: &Arguments| {
            let (model, training, machine) = (&train.model, &train.training, &train.machine);
            (
                (model.size.clone(), model.batch_size, model.seq_len, train.data.data.clone()),
                (machine.passes.clone(), machine.device.clone(), machine.precision, machine.threads),
                (machine.memory_limit.clone(), training.num_steps, training.gradient_accumulation_steps),
                train.output.warmup_steps,
                (training.learning_rate, training.weight_decay, training.clip),
            )
        };
        assert_eq!(facts(&typed), facts(&read));
        assert_eq!(request().flags().len(), 15, "a field without its flag");
        let settings = request().settings().unwrap().0;
        assert_eq!((settings.threads, settings.shape.seq_len, settings.optimizer.clip), (3, 16, 0.5));
    }
}
