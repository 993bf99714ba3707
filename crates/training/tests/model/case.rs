//! A reference case: what a Hugging Face model computes for a config, weights and a batch.

use headroom_engine::Target;
use headroom_engine::cpu::isa::Isa;
use headroom_engine::cpu::{Cpu, Reductions};
use headroom_graph::Precision;
use headroom_graph::passes::PassList;
use headroom_training::checkpoint::{Content, HfConfig};
use headroom_training::data::{Batch, BatchShape};
use headroom_training::models::ModelConfig;
use headroom_training::optimizer::OptimizerConfig;
use headroom_training::program::{Keep, StepConfig, training_program};
use headroom_training::trainer::{EndsStep, Trainer};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Every stored case. Hugging Face's families come from `xtask/cases/families.py`, the tree from `xtask/cases/tree.py`.
pub const CASES: [&str; 6] = ["nano", "nano_tied", "llama3", "qwen3", "gpt2", "tree"];

pub struct Case {
    pub config: ModelConfig,
    pub shape: BatchShape,
    pub batch: Batch,
    pub weights: BTreeMap<String, Vec<f32>>,
    pub expected: BTreeMap<String, Vec<f32>>,
    pub losses: Vec<f64>,
    pub clip: f64,
    pub eps: f64,
}

impl Case {
    pub fn load(name: &str) -> Case {
        let folder = folder(name);
        let json = |file: &str| json(name, file);
        let losses = json("losses.json");
        let config = HfConfig::read(&folder.join("config.json")).unwrap().model;
        let bytes = std::fs::read(folder.join("expected.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let ids = |name: &str| -> Vec<i32> {
            let data = tensors.tensor(name).unwrap();
            data.data().chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as i32).collect()
        };
        let batch = Batch { input_ids: ids("input_ids"), targets: ids("targets") };
        let sizes = tensors.tensor("input_ids").unwrap().shape().to_vec();
        Case {
            config,
            shape: BatchShape { batch_size: sizes[0], seq_len: sizes[1] },
            batch,
            weights: floats(
                &SafeTensors::deserialize(&std::fs::read(folder.join("model.safetensors")).unwrap()).unwrap(),
            ),
            expected: floats(&tensors),
            losses: losses["losses"].as_array().unwrap().iter().map(|loss| loss.as_f64().unwrap()).collect(),
            clip: losses["optimizer"]["clip"].as_f64().unwrap(),
            eps: losses["optimizer"]["eps"].as_f64().unwrap(),
        }
    }

    pub fn optimizer(&self) -> OptimizerConfig {
        OptimizerConfig { clip: self.clip, eps: self.eps, ..OptimizerConfig::default() }
    }

    pub fn trainer(&self, isa: Isa, threads: usize) -> Trainer {
        self.trainer_with(isa, threads, PassList::none(), Keep::LogitsAndGradients)
    }

    pub fn trainer_with(&self, isa: Isa, threads: usize, passes: PassList, keep: Keep) -> Trainer {
        self.trainer_at(Precision::Fp32, isa, threads, passes, keep)
    }

    pub fn trainer_at(&self, precision: Precision, isa: Isa, threads: usize, passes: PassList, keep: Keep) -> Trainer {
        self.trainer_by(self.optimizer(), precision, isa, threads, passes, keep)
    }

    pub fn trainer_by(
        &self,
        optimizer: OptimizerConfig,
        precision: Precision,
        isa: Isa,
        threads: usize,
        passes: PassList,
        keep: Keep,
    ) -> Trainer {
        let (model, shape) = (self.config.clone(), self.shape);
        let step = StepConfig { model, shape, optimizer, passes, recomputed_layers: 0, precision, target: Target::Cpu };
        let training = training_program(&step, keep).unwrap();
        let cpu = Cpu::new(threads, isa, Reductions::Fixed, std::slice::from_ref(&training.program)).unwrap();
        let mut trainer = Trainer::new(Box::new(cpu), &self.config, training, None, optimizer);
        for (name, data) in &self.weights {
            trainer.write(name, Content::Weight, 0, data);
        }
        trainer
    }

    /// One step on the case's batch; returns the loss before the update.
    pub fn step(&self, trainer: &mut Trainer) -> f64 {
        f64::from(trainer.loss_of(&self.batch, EndsStep::Yes { last: 20 }).unwrap())
    }
}

pub fn folder(case: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(case)
}

pub fn json(case: &str, file: &str) -> Value {
    serde_json::from_slice(&std::fs::read(folder(case).join(file)).unwrap()).unwrap()
}

fn floats(tensors: &SafeTensors) -> BTreeMap<String, Vec<f32>> {
    tensors
        .tensors()
        .into_iter()
        .filter(|(_, tensor)| tensor.dtype() == Dtype::F32)
        .map(|(name, tensor)| {
            let data = tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
            (name, data)
        })
        .collect()
}

/// A parameter's weights.
pub fn weights(trainer: &mut Trainer, name: &str) -> Vec<f32> {
    let mut all = vec![];
    let gathered: Result<(), ()> = trainer.read(name, Content::Weight, |piece| {
        all.extend_from_slice(piece);
        Ok(())
    });
    gathered.unwrap();
    all
}

/// `|have - want| / |want|` in the 2-norm.
pub fn relative(want: &[f32], have: &[f32]) -> f64 {
    assert_eq!(want.len(), have.len());
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let difference = norm(&mut want.iter().zip(have).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    difference / norm(&mut want.iter().map(|x| f64::from(*x))).max(1e-30)
}
