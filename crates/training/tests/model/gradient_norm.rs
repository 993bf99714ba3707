//! The gradient norm without clipping: correct, and without any effect on the weights.

use crate::case::Case;
use headroom_engine::Target;
use headroom_engine::cpu::isa::Isa;
use headroom_graph::Precision;
use headroom_graph::passes::PassList;
use headroom_training::checkpoint::Content;
use headroom_training::data::BatchShape;
use headroom_training::models::Size;
use headroom_training::optimizer::OptimizerConfig;
use headroom_training::program::{Keep, StepConfig, training_program};
use headroom_training::trainer::Trainer;

fn unclipped() -> Case {
    Case { clip: 0.0, ..Case::load("nano") }
}

fn weights(trainer: &mut Trainer) -> Vec<u32> {
    let mut bits = vec![];
    for (name, _) in trainer.parameters() {
        let read: Result<(), ()> = trainer.read(&name, Content::Weight, |piece| {
            bits.extend(piece.iter().map(|x| x.to_bits()));
            Ok(())
        });
        read.unwrap();
    }
    bits
}

#[test]
fn the_norm_is_that_of_all_gradients_together() {
    let case = unclipped();
    let squares = |data: &Vec<f32>| data.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
    let gradients = case.expected.iter().filter(|(name, _)| name.starts_with("grad."));
    let want = gradients.map(|(_, data)| squares(data)).sum::<f64>().sqrt();
    for list in [PassList::none(), PassList::version_2(), PassList::all()] {
        let mut trainer = case.trainer_with(Isa::detect(), 2, list, Keep::GradientNorm);
        case.step(&mut trainer);
        let have = f64::from(trainer.read_output("gradient_norm").unwrap()[0]);
        assert!((have / want - 1.0).abs() < 1e-4, "{have}, not {want}");
    }
}

#[test]
fn looking_at_the_norm_changes_no_byte() {
    let case = unclipped();
    for list in [PassList::none(), PassList::version_2()] {
        let [without, with] = [Keep::OnlyTheLoss, Keep::GradientNorm].map(|keep| {
            let mut trainer = case.trainer_with(Isa::detect(), 2, list.clone(), keep);
            for _ in 0..3 {
                case.step(&mut trainer);
            }
            weights(&mut trainer)
        });
        assert!(without == with, "weights differ under {}", list.label());
    }
}

#[test]
fn version_1_has_the_same_kernels_whether_its_norm_is_looked_at_or_not() {
    let size = Size::named("tiny").unwrap();
    for (list, kernels) in [(PassList::none(), 244), (PassList::all(), 87)] {
        let step = StepConfig {
            model: size.model(),
            shape: BatchShape { batch_size: size.batch_size, seq_len: size.seq_len },
            optimizer: OptimizerConfig::default(),
            passes: list,
            recomputed_layers: 0,
            precision: Precision::Fp32,
            target: Target::Cpu,
        };
        let [train, profile] = [Keep::OnlyTheLoss, Keep::GradientNorm].map(|keep| {
            let program = training_program(&step, keep).unwrap().program;
            let by_phase: usize = headroom_training::program::kernels(&program).iter().map(|(_, count)| count).sum();
            assert_eq!(by_phase, program.kernels());
            (program.kernels(), program.instrumentation_kernels())
        });
        assert_eq!((train, profile), ((kernels, 0), (kernels, 1)), "{}", step.passes.label());
    }
}
