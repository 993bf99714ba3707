//! Matrix products in eight bits: close to the single-precision reference, bit-identical on any number of threads and
//! after a resume.

use crate::case::{Case, relative, weights};
use headroom_engine::Target;
use headroom_engine::cpu::isa::Isa;
use headroom_engine::cpu::{Cpu, Reductions};
use headroom_graph::passes::{PassList, fp8};
use headroom_graph::{Op, Precision};
use headroom_training::checkpoint::Content;
use headroom_training::data::BatchShape;
use headroom_training::models::Size;
use headroom_training::program::{Keep, StepConfig, training_program};
use headroom_training::trainer::Trainer;

fn trainer(case: &Case, threads: usize, passes: PassList) -> Trainer {
    case.trainer_at(Precision::Fp8, Isa::detect(), threads, passes, Keep::Gradients)
}

#[test]
fn gradients_and_loss_curve_stay_near_those_in_single_precision() {
    let case = Case::load("nano");
    for passes in [PassList::none(), PassList::version_2(), PassList::all()] {
        let what = passes.label();
        let mut trainer = trainer(&case, 2, passes);
        let (mut curve, mut gradients) = (0.0f64, 0.0f64);
        for (step, want) in case.losses.iter().enumerate() {
            let loss = case.step(&mut trainer);
            curve = curve.max((loss - want).abs() / want);
            if step > 0 {
                continue;
            }
            for parameter in case.weights.keys() {
                let gradient = trainer.read_output(&format!("grad.{parameter}")).unwrap();
                let error = relative(&case.expected[&format!("grad.{parameter}")], &gradient);
                gradients = gradients.max(error);
                let rounded = parameter.contains("proj");
                assert!(!rounded || error > 5e-3, "{what}: {parameter} is as exact as in half precision: {error:e}");
            }
        }
        assert!(curve <= fp8::LOSS_TOLERANCE, "{what}: losses are off by {curve:e}");
        assert!(gradients <= fp8::GRADIENT_TOLERANCE, "{what}: a gradient is off by {gradients:e}");
        let rounding = trainer.rounding().unwrap();
        assert_eq!((rounding.out_of_range, trainer.scales().len()), (0.0, rounding.tensors));
        assert!(trainer.scales().values().all(|slot| slot[0] > 0.0 && slot[0].log2().fract() == 0.0));
        println!("{what}: losses {curve:e}, gradients {gradients:e}, {rounding:?}");
    }
}

/// The sizes are not multiples of 16, which the hardware needs, so nothing is rounded to eight bits.
#[test]
fn layers_of_odd_sizes_stay_in_half_precision() {
    let case = Case::load("nano_tied");
    let mut trainer = trainer(&case, 1, PassList::all());
    case.step(&mut trainer);
    assert_eq!((trainer.rounding(), trainer.scales().len()), (None, 0));
}

#[test]
fn layers_multiply_in_eight_bits_and_nothing_else_does() {
    let case = Case::load("nano");
    let trainer = trainer(&case, 1, PassList::all());
    let layers = case.config.n_layers;
    let count = |is: fn(&Op) -> bool| trainer.graph().nodes().iter().filter(|node| is(&node.op)).count();
    // Four products per layer (q, k and v; o; gate and up; down), once forward and twice backward.
    assert_eq!(count(|op| matches!(op, Op::Fp8Product(_))), 12 * layers);
    // Inputs and gradients are rounded once, weights for each of two uses; SwiGLU is fused into the rounding, forward
    // and backward.
    assert_eq!(count(|op| matches!(op, Op::Quantize(_))), 16 * layers);
    assert_eq!(count(|op| matches!(op, Op::SwiGlu(_) | Op::SwiGluGrad(_) | Op::Linears(_))), 0);
    // Norms are fused too: a layer keeps only their row scales. The remaining norm is the head's.
    assert_eq!(count(|op| matches!(op, Op::RmsScales(_))), 2 * layers);
    assert_eq!(count(|op| matches!(op, Op::RmsNorm(_) | Op::AddRmsNorm(_))), 1);
    assert_eq!(count(|op| matches!(op, Op::LinearCrossEntropyTrain(_))), 1);
}

#[test]
fn any_number_of_threads_gives_the_same_bytes_in_eight_bits() {
    let case = Case::load("nano");
    for passes in [PassList::none(), PassList::all()] {
        let trained = |threads: usize| {
            let mut trainer = trainer(&case, threads, passes.clone());
            (0..3).for_each(|_| {
                case.step(&mut trainer);
            });
            let names: Vec<String> = case.weights.keys().cloned().collect();
            names.iter().flat_map(|name| weights(&mut trainer, name)).map(f32::to_bits).collect::<Vec<_>>()
        };
        assert!(trained(1) == trained(3), "{}", passes.label());
    }
}

#[test]
fn a_step_in_eight_bits_needs_no_more_memory_than_one_in_half_precision() {
    for (name, eight, half) in [
        ("medium", Precision::Fp8, Precision::Bf16),
        ("large", Precision::Fp8, Precision::Bf16),
        ("very_large", Precision::Fp8Pure, Precision::Bf16Pure),
    ] {
        let size = Size::named(name).unwrap();
        let bytes = |precision: Precision| {
            let step = StepConfig {
                model: size.model(),
                shape: BatchShape { batch_size: size.batch_size, seq_len: size.seq_len },
                optimizer: Case::load("nano").optimizer(),
                passes: PassList::all(),
                recomputed_layers: 0,
                precision,
                target: Target::Cuda,
            };
            training_program(&step, Keep::OnlyTheLoss).unwrap().program.plan.arena_bytes
        };
        let (eight, half) = (bytes(eight), bytes(half));
        assert!(eight <= half, "{name}: {} MB in eight bits, {} in half precision", eight >> 20, half >> 20);
    }
}

/// Recomputed layers round their inputs again with the same scales: nothing else changes.
#[test]
fn layers_that_are_computed_again_have_the_same_bytes() {
    let case = Case::load("nano");
    let trained = |recomputed_layers: usize| {
        let step = StepConfig {
            model: case.config.clone(),
            shape: case.shape,
            optimizer: case.optimizer(),
            passes: PassList::all(),
            recomputed_layers,
            precision: Precision::Fp8,
            target: Target::Cpu,
        };
        let program = training_program(&step, Keep::OnlyTheLoss).unwrap();
        let programs = std::slice::from_ref(&program.program);
        let cpu = Cpu::new(2, Isa::detect(), Reductions::Fixed, programs).unwrap();
        let mut trainer = Trainer::new(Box::new(cpu), &case.config, program, None, case.optimizer());
        case.weights.iter().for_each(|(name, data)| trainer.write(name, Content::Weight, 0, data));
        (0..3).for_each(|_| {
            case.step(&mut trainer);
        });
        let names: Vec<String> = case.weights.keys().cloned().collect();
        names.iter().flat_map(|name| weights(&mut trainer, name)).map(f32::to_bits).collect::<Vec<_>>()
    };
    assert!(trained(0) == trained(1));
}
