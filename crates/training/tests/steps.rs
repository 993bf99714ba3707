//! A submitted step: counted if it was taken, without a trace if it was not.

use headroom_engine::cpu::isa::Isa;
use headroom_engine::cpu::{Cpu, Reductions};
use headroom_engine::{Finished, Target};
use headroom_graph::Precision;
use headroom_graph::passes::PassList;
use headroom_training::checkpoint::Content;
use headroom_training::data::{Batch, BatchShape};
use headroom_training::models::Size;
use headroom_training::optimizer::OptimizerConfig;
use headroom_training::program::{Keep, StepConfig, training_program};
use headroom_training::trainer::{EndsStep, NotFinite, Trainer};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const SHAPE: BatchShape = BatchShape { batch_size: 2, seq_len: 8 };
const END: EndsStep = EndsStep::Yes { last: 20 };

fn trainer() -> Trainer {
    let model = Size::named("nano").unwrap().model();
    let step = StepConfig {
        model: model.clone(),
        shape: SHAPE,
        optimizer: OptimizerConfig::default(),
        passes: PassList::all(),
        recomputed_layers: 0,
        precision: Precision::Fp32,
        target: Target::Cpu,
    };
    let program = training_program(&step, Keep::GradientNorm).unwrap();
    let cpu = Cpu::new(1, Isa::detect(), Reductions::Fixed, std::slice::from_ref(&program.program)).unwrap();
    let mut trainer = Trainer::new(Box::new(cpu), &model, program, None, step.optimizer);
    trainer.draw_weights(1);
    trainer
}

fn batch() -> Batch {
    let ids = |factor: usize| (0..SHAPE.batch_size * SHAPE.seq_len).map(|at| (at * factor % 11) as i32).collect();
    Batch { input_ids: ids(3), targets: ids(5) }
}

fn bits(trainer: &mut Trainer) -> Vec<u32> {
    let mut bits = vec![];
    for (name, _) in trainer.parameters() {
        let read: Result<(), ()> = trainer.read(&name, Content::Weight, |piece| {
            bits.extend(piece.iter().map(|weight| weight.to_bits()));
            Ok(())
        });
        read.unwrap();
    }
    bits
}

fn collected(trainer: &mut Trainer) -> Vec<Finished> {
    let mut finished = vec![];
    trainer.collect(&mut finished).unwrap();
    finished
}

#[test]
fn steps_are_told_in_their_order_with_loss_norm_and_phases() {
    let (mut one, mut other) = (trainer(), trainer());
    let losses: Vec<f32> = (0..3).map(|_| one.loss_of(&batch(), END).unwrap()).collect();
    (0..3).for_each(|_| other.submit(&batch(), END).unwrap());
    let finished = collected(&mut other);
    assert_eq!(finished.iter().map(|one| one.results[0]).collect::<Vec<_>>(), losses);
    assert!(losses.is_sorted_by(|left, right| left > right), "{losses:?}");
    assert_eq!((one.step, other.step), (3, 3));
    assert!(bits(&mut one) == bits(&mut other));
    for one in &finished {
        let phases = one.phases.unwrap();
        assert!(one.results[1] > 0.0 && phases.iter().all(|seconds| *seconds > 0.0), "{one:?}");
        assert!(phases.iter().sum::<f64>() <= one.seconds, "{one:?}");
    }
    assert_eq!(collected(&mut other), []);
}

#[test]
fn a_loss_that_is_not_finite_leaves_the_weights_of_the_step_before() {
    let mut trainer = trainer();
    let name = trainer.parameters()[1].0.clone();
    trainer.write(&name, Content::Weight, 0, &[f32::INFINITY]);
    let before = bits(&mut trainer);
    assert!(matches!(trainer.submit(&batch(), END), Err(NotFinite::Weights { .. })));
    assert!(bits(&mut trainer) == before);
    assert_eq!((trainer.step, collected(&mut trainer)), (0, vec![]));
}

#[test]
fn a_step_that_is_given_up_changes_nothing_and_does_not_count() {
    let mut trainer = trainer();
    let before = bits(&mut trainer);
    trainer.give_up = Some(Arc::new(AtomicBool::new(true)));
    trainer.submit(&batch(), END).unwrap();
    assert!(trainer.gave_up() && bits(&mut trainer) == before);
    assert_eq!((trainer.step, collected(&mut trainer)), (0, vec![]));
}

#[test]
fn micro_steps_of_a_step_that_is_left_are_not_told() {
    let mut trainer = trainer();
    trainer.submit(&batch(), EndsStep::No).unwrap();
    trainer.give_up = Some(Arc::new(AtomicBool::new(true)));
    trainer.submit(&batch(), END).unwrap();
    assert_eq!((trainer.step, trainer.gave_up(), collected(&mut trainer)), (0, true, vec![]));
}
