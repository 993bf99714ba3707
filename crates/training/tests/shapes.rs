//! Whole training steps at shapes that are easy to get wrong: the CPU against the reference kernels in double
//! precision, and the plan's guarantees on the same graphs.

use headroom_engine::Target;
use headroom_engine::cpu::isa::Isa;
use headroom_engine::cpu::{Cpu, Reductions};
use headroom_engine::reference::{Tensor, evaluate};
use headroom_graph::passes::PassList;
use headroom_graph::{Graph, Precision, Source, ValueId};
use headroom_training::checkpoint::Content;
use headroom_training::data::{Batch, BatchShape};
use headroom_training::models::{ModelConfig, Size};
use headroom_training::optimizer::OptimizerConfig;
use headroom_training::program::{Keep, StepConfig, TrainingProgram, training_program};
use headroom_training::trainer::{EndsStep, Trainer};
use std::collections::BTreeMap;

/// heads, kv heads, head size, sequence, batch, tied, theta
const CASES: [(usize, usize, usize, usize, usize, bool, f64); 6] = [
    (4, 2, 16, 13, 2, false, 10_000.0),
    (3, 1, 16, 7, 3, true, 10_000.0),
    (2, 2, 64, 5, 1, false, 500_000.0),
    (2, 1, 128, 9, 1, true, 10_000.0),
    (5, 5, 18, 1, 4, false, 100.0),
    (6, 3, 32, 33, 1, false, 10_000.0),
];

fn case(index: usize) -> (ModelConfig, BatchShape) {
    let (n_heads, n_kv_heads, head_dim, seq_len, batch_size, tied, rope_theta) = CASES[index];
    let config = ModelConfig {
        vocab_size: 41,
        hidden_dim: 24,
        n_layers: 2,
        n_heads,
        n_kv_heads,
        head_dim,
        intermediate_dim: 35,
        rope_theta,
        tied,
        ..Size::named("nano").unwrap().model()
    };
    config.validate(batch_size, seq_len).unwrap();
    (config, BatchShape { batch_size, seq_len })
}

fn optimizer(clip: f64) -> OptimizerConfig {
    // Small, because Adam's first update is the gradient's sign, which rounding may flip where the gradient is nearly
    // zero.
    OptimizerConfig { learning_rate: 1e-4, weight_decay: 0.1, clip, ..OptimizerConfig::default() }
}

fn step(config: &ModelConfig, shape: BatchShape, clip: f64, passes: PassList) -> StepConfig {
    StepConfig {
        model: config.clone(),
        shape,
        optimizer: optimizer(clip),
        passes,
        recomputed_layers: 0,
        precision: Precision::Fp32,
        target: Target::Cpu,
    }
}

fn batch(shape: BatchShape, vocab: usize) -> Batch {
    let tokens = shape.batch_size * shape.seq_len;
    let ids = |factor: usize| (0..tokens).map(|i| ((i * factor + 3) % vocab) as i32).collect();
    Batch { input_ids: ids(7), targets: ids(11) }
}

#[test]
fn a_training_step_agrees_with_the_reference_at_every_shape() {
    for index in 0..CASES.len() {
        let (config, shape) = case(index);
        let (optimizer, batch) = (optimizer(0.5), batch(shape, config.vocab_size));
        let step = step(&config, shape, 0.5, PassList::none());
        let build = || training_program(&step, Keep::LogitsAndGradients).unwrap();
        let program = build();
        let cpu = Cpu::new(2, Isa::detect(), Reductions::Fixed, std::slice::from_ref(&program.program)).unwrap();
        let mut trainer = Trainer::new(Box::new(cpu), &config, program, None, optimizer);
        trainer.draw_weights(7);
        let given = given(&build(), &mut trainer, &config, shape, &batch, &optimizer);
        let wanted = evaluate(&build().program.graph, &given);
        trainer.loss_of(&batch, EndsStep::Yes { last: 10 }).unwrap();

        let graph = trainer.graph().clone();
        for (name, value) in graph.outputs() {
            close(&format!("case {index}: {name}"), &wanted[value.0].data, &trainer.read_output(name).unwrap(), 2e-5);
        }
        for id in graph.parameters() {
            let name = graph.get(id).name.clone();
            close(&format!("case {index}: {name}"), &wanted[id.0].data, &weights(&mut trainer, &name), 1e-4);
        }
    }
}

#[test]
fn values_that_live_at_the_same_time_never_share_memory() {
    for index in 0..CASES.len() {
        let (config, shape) = case(index);
        let plan =
            training_program(&step(&config, shape, 1.0, PassList::none()), Keep::OnlyTheLoss).unwrap().program.plan;
        let buffers: Vec<_> = plan.buffers.iter().flatten().collect();
        for (place, left) in buffers.iter().enumerate() {
            assert!(left.offset + left.bytes <= plan.arena_bytes);
            for right in &buffers[place + 1..] {
                let together = left.alive.start < right.alive.end && right.alive.start < left.alive.end;
                let apart = left.offset + left.bytes <= right.offset || right.offset + right.bytes <= left.offset;
                assert!(apart || !together, "{left:?} and {right:?}");
            }
        }
        let peak = plan.usage().iter().map(|usage| usage.total()).max().unwrap();
        assert_eq!(plan.peak.total(), peak);
        assert!(plan.arena_bytes >= peak);
    }
}

#[test]
fn a_training_graph_prints_and_parses_back_to_itself() {
    let (config, shape) = case(0);
    let graph =
        training_program(&step(&config, shape, 1.0, PassList::none()), Keep::OnlyTheLoss).unwrap().program.graph;
    assert_eq!(graph.to_string().parse::<Graph>().unwrap(), graph);
}

/// Every value that no node produces, as the trainer has it before its first step.
fn given(
    program: &TrainingProgram,
    trainer: &mut Trainer,
    config: &ModelConfig,
    shape: BatchShape,
    batch: &Batch,
    optimizer: &OptimizerConfig,
) -> BTreeMap<ValueId, Tensor> {
    let constants = (config.family.constants)(config, shape.seq_len);
    let constant = |name: &str| constants.iter().find(|(known, _)| *known == name).map(|(_, data)| data);
    let graph = &program.program.graph;
    let mut given = BTreeMap::new();
    for id in graph.value_ids() {
        let value = graph.get(id);
        let data: Vec<f64> = match (value.source, &*value.name) {
            (Source::Node(_), _) => continue,
            (Source::Parameter, name) => weights(trainer, name).into_iter().map(f64::from).collect(),
            (_, "input_ids") => batch.input_ids.iter().copied().map(f64::from).collect(),
            (_, "targets") => batch.targets.iter().copied().map(f64::from).collect(),
            (Source::Constant, name) => constant(name).unwrap().iter().copied().map(f64::from).collect(),
            (_, "loss_gradient") => vec![1.0],
            (_, "rates") => optimizer.rates_at(1, 10).map(f64::from).to_vec(),
            _ => vec![0.0; value.ty.elements()],
        };
        given.insert(id, Tensor { ty: value.ty.clone(), data });
    }
    given
}

fn weights(trainer: &mut Trainer, name: &str) -> Vec<f32> {
    let mut all = vec![];
    let read: Result<(), ()> = trainer.read(name, Content::Weight, |piece| {
        all.extend_from_slice(piece);
        Ok(())
    });
    read.unwrap();
    all
}

fn close(what: &str, want: &[f64], have: &[f32], tolerance: f64) {
    let norm = want.iter().map(|x| x * x).sum::<f64>().sqrt();
    let difference = want.iter().zip(have).map(|(a, b)| (a - f64::from(*b)).powi(2)).sum::<f64>().sqrt();
    assert!(difference <= tolerance * norm.max(1e-6), "{what} is off by {difference:e} of {norm:e}");
}
