//! Whatever bytes a checkpoint's files hold, it opens or is refused, and a step on what was opened ends without a
//! panic.

use fastrand::Rng;
use headroom_engine::Target;
use headroom_engine::cpu::isa::Isa;
use headroom_engine::cpu::{Cpu, Reductions};
use headroom_graph::Precision;
use headroom_graph::passes::PassList;
use headroom_training::checkpoint::{Checkpoint, Companions, HfConfig, Saver};
use headroom_training::data::{Batch, BatchShape};
use headroom_training::models::{ModelConfig, Size};
use headroom_training::optimizer::{OptimizerConfig, Update};
use headroom_training::persist::{self, Notes};
use headroom_training::program::{Keep, StepConfig, training_program};
use headroom_training::trainer::{EndsStep, Trainer};
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::{Duration, Instant};

const SHAPE: BatchShape = BatchShape { batch_size: 1, seq_len: 8 };

/// A configuration may describe a model of any size; a step is tried only up to this one.
const MOST_ELEMENTS: usize = 1 << 20;

/// The longest that one damaged checkpoint may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long to run; `cargo xtask fuzz` sets more.
fn time() -> Duration {
    Duration::from_secs(from_environment("HEADROOM_FUZZ_SECONDS").unwrap_or(3))
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn model() -> ModelConfig {
    ModelConfig {
        vocab_size: 11,
        hidden_dim: 8,
        n_layers: 1,
        n_heads: 2,
        n_kv_heads: 1,
        head_dim: 4,
        intermediate_dim: 12,
        ..Size::named("nano").unwrap().model()
    }
}

fn trainer(model: &ModelConfig) -> Option<Trainer> {
    model.validate(SHAPE.batch_size, SHAPE.seq_len).ok()?;
    let step = StepConfig {
        model: model.clone(),
        shape: SHAPE,
        optimizer: OptimizerConfig::updating(Update::Dense),
        passes: PassList::none(),
        recomputed_layers: 0,
        precision: Precision::Fp32,
        target: Target::Cpu,
    };
    let program = training_program(&step, Keep::OnlyTheLoss).expect("a valid model");
    let cpu = Cpu::new(1, Isa::detect(), Reductions::Fixed, std::slice::from_ref(&program.program)).expect("memory");
    Some(Trainer::new(Box::new(cpu), model, program, None, step.optimizer))
}

fn take_step(trainer: &mut Trainer, vocabulary: usize) {
    let tokens = SHAPE.batch_size * SHAPE.seq_len;
    let ids = |factor: usize| (0..tokens).map(|i| (i * factor % vocabulary) as i32).collect();
    // NaN weights give a NaN loss, which is a valid outcome too.
    let _ = trainer.loss_of(&Batch { input_ids: ids(3), targets: ids(5) }, EndsStep::Yes { last: 20 });
}

/// A whole checkpoint after one step, file by file.
fn saved() -> Vec<(String, Vec<u8>)> {
    let folder = tempfile::tempdir().unwrap();
    let mut trainer = trainer(&model()).unwrap();
    trainer.draw_weights(5);
    take_step(&mut trainer, model().vocab_size);
    let (config, optimizer) = (HfConfig::of(&model(), SHAPE.seq_len), OptimizerConfig::updating(Update::Dense));
    let extra = serde_json::Map::new();
    let notes = Notes {
        config: &config,
        optimizer: &optimizer,
        seed: 5,
        data: "made here",
        extra: &extra,
        companions: &Companions::default(),
    };
    persist::save(&mut trainer, &mut Saver::open(folder.path(), NonZeroUsize::MIN).unwrap(), &notes).unwrap();
    let files =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let mut files: Vec<(String, Vec<u8>)> = files
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_string(), std::fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

fn mutate(bytes: &mut Vec<u8>, draws: &mut Rng) {
    const PIECES: &[&str] = &[
        "-1",
        "0",
        "1e400",
        "null",
        "[]",
        "{}",
        "}",
        "\"",
        ",",
        "18446744073709551616",
        "\"F64\"",
        "\"BF16\"",
        "4294967296",
    ];
    for _ in 0..=draws.usize(..4) {
        let at = draws.usize(..=bytes.len());
        // The meaning is in the header of a tensor file and in all of a JSON file, so damage those more often.
        let at = if draws.bool() { at.min(draws.usize(..400)) } else { at };
        match draws.usize(..6) {
            0 if at < bytes.len() => bytes[at] = draws.u8(..),
            1 => drop(bytes.splice(at..at, PIECES[draws.usize(..PIECES.len())].bytes())),
            2 => drop(bytes.drain(at..(at + draws.usize(..64)).min(bytes.len()))),
            3 if draws.usize(..8) == 0 => bytes.truncate(at),
            4 => {
                let end = (at + 200).min(bytes.len());
                for byte in bytes[at..end].iter_mut().filter(|byte| byte.is_ascii_digit()) {
                    *byte = b'0' + draws.u8(..10);
                }
            }
            _ => {
                let piece: Vec<u8> = bytes[at..(at + draws.usize(..64)).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
}

/// Whether a step could be taken.
fn open_and_step(folder: &Path) -> bool {
    let Ok(checkpoint) = Checkpoint::open(folder) else { return false };
    let _ = checkpoint.state();
    let config = checkpoint.config();
    let elements = config.tensors().iter().try_fold(0usize, |sum, tensor| {
        let elements = tensor.shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size))?;
        sum.checked_add(elements)
    });
    if elements.is_none_or(|elements| elements > MOST_ELEMENTS) {
        return false;
    }
    let Some(mut trainer) = trainer(&config.model) else { return false };
    let loaded =
        persist::load_all(&mut trainer, &checkpoint).or_else(|_| persist::load_weights(&mut trainer, &checkpoint));
    if loaded.is_err() {
        return false;
    }
    take_step(&mut trainer, config.model.vocab_size);
    true
}

#[test]
fn mutated_checkpoints_are_opened_or_refused_without_a_panic() {
    let whole = saved();
    assert!(whole.len() >= 3, "{:?}", whole.iter().map(|(name, _)| name).collect::<Vec<_>>());
    let mut draws = Rng::with_seed(31 + from_environment("HEADROOM_FUZZ_SEED").unwrap_or(0));
    let (begin, mut runs, mut stepped) = (Instant::now(), 0u64, 0u64);
    while begin.elapsed() < time() {
        let folder = tempfile::tempdir().unwrap();
        // Half of them as a model from elsewhere: configuration and weights, without the digests that would expose a
        // change.
        let foreign = draws.bool();
        let kept: Vec<&(String, Vec<u8>)> =
            whole.iter().filter(|(name, _)| !foreign || name == "config.json" || name == "model.safetensors").collect();
        let chosen = draws.usize(..kept.len());
        for (index, (name, bytes)) in kept.into_iter().enumerate() {
            let mut bytes = bytes.clone();
            if index == chosen {
                mutate(&mut bytes, &mut draws);
            }
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        let started = Instant::now();
        stepped += u64::from(open_and_step(folder.path()));
        assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
        runs += 1;
    }
    println!("executions: {runs}, steps on {stepped} of them");
    assert!(stepped > 0, "none of {runs} could be used");
}
