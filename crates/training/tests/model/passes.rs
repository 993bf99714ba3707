//! Every pass preserves the model: the same loss, gradients and training as the naive graph, alone and combined.

use crate::case::{CASES, Case, relative, weights};
use headroom_engine::Target;
use headroom_engine::cpu::isa::Isa;
use headroom_graph::Precision;
use headroom_graph::passes::{GRAPH_REPLAY, OFFERED, PassList, offered};
use headroom_training::data::BatchShape;
use headroom_training::models::Size;
use headroom_training::program::{Keep, StepConfig, passes_that_apply, training_program};
use headroom_training::trainer::Trainer;

fn lists() -> Vec<PassList> {
    let alone = OFFERED
        .iter()
        .map(|pass| pass.needs.iter().fold(PassList::none().with(pass.name), |list, needed| list.with(needed)));
    let all_but_one = OFFERED.iter().map(|pass| PassList::all().without(pass.name));
    alone.chain(all_but_one).chain([PassList::version_2(), PassList::all()]).collect()
}

fn kernels(case: &Case, passes: PassList) -> usize {
    let (model, shape, optimizer) = (case.config.clone(), case.shape, case.optimizer());
    let step = StepConfig {
        model,
        shape,
        optimizer,
        passes,
        recomputed_layers: 0,
        precision: Precision::Fp32,
        target: Target::Cpu,
    };
    training_program(&step, Keep::OnlyTheLoss).unwrap().program.plan.calls.len()
}

#[test]
fn every_list_of_passes_trains_as_the_reference_does() {
    for name in CASES {
        let case = Case::load(name);
        for passes in lists() {
            let label = passes.label();
            let mut trainer = case.trainer_with(Isa::detect(), 2, passes, Keep::Gradients);
            check(&case, &mut trainer, &format!("{name} under {label}"));
        }
    }
}

#[test]
fn a_replayed_step_gives_the_same_bytes() {
    let case = Case::load("nano");
    let trained = |passes: PassList| {
        let mut trainer = case.trainer_with(Isa::detect(), 2, passes, Keep::OnlyTheLoss);
        (0..3).for_each(|_| {
            case.step(&mut trainer);
        });
        let names: Vec<String> = case.weights.keys().cloned().collect();
        names.iter().flat_map(|name| weights(&mut trainer, name)).map(f32::to_bits).collect::<Vec<_>>()
    };
    assert!(trained(PassList::all()) == trained(PassList::all().without(GRAPH_REPLAY)));
}

#[test]
fn every_pass_makes_fewer_kernels() {
    let case = Case::load("nano_tied");
    for pass in OFFERED.into_iter().filter(|pass| !pass.changes_execution()) {
        let base = pass.needs.iter().fold(PassList::none(), |list, needed| list.with(needed));
        let (before, after) = (kernels(&case, base.clone()), kernels(&case, base.with(pass.name)));
        assert!(after < before, "{}: {after} kernels, {before} without it", pass.name);
    }
}

#[test]
fn a_pass_applies_where_it_finds_something_to_do() {
    let nano = Case::load("nano").config;
    assert_eq!(passes_that_apply(&nano).unwrap(), PassList::all().names());
    let gpt2 = Case::load("gpt2").config;
    let wanted = ["flash-attention", "fuse-loss", "fuse-optimizer", GRAPH_REPLAY];
    assert_eq!(passes_that_apply(&gpt2).unwrap(), wanted);
}

#[test]
fn a_pass_says_how_exact_it_is_and_what_it_needs() {
    for pass in OFFERED {
        assert!(pass.tolerance > 0.0 && pass.tolerance <= 1e-4, "{}", pass.name);
        assert!(pass.needs.iter().all(|name| offered(name).is_some()), "{}", pass.name);
    }
}

#[test]
fn recomputed_layers_train_the_same() {
    let case = Case::load("nano");
    for passes in [PassList::none(), PassList::all()] {
        let step = |recomputed_layers: usize| StepConfig {
            model: case.config.clone(),
            shape: case.shape,
            optimizer: case.optimizer(),
            passes: passes.clone(),
            recomputed_layers,
            precision: Precision::Fp32,
            target: Target::Cpu,
        };
        let program = training_program(&step(2), Keep::Gradients).unwrap();
        let device = headroom_engine::cpu::Cpu::new(
            2,
            Isa::detect(),
            headroom_engine::cpu::Reductions::Fixed,
            std::slice::from_ref(&program.program),
        );
        let mut trainer = Trainer::new(Box::new(device.unwrap()), &case.config, program, None, case.optimizer());
        for (name, data) in &case.weights {
            trainer.write(name, headroom_training::checkpoint::Content::Weight, 0, data);
        }
        check(&case, &mut trainer, &format!("recomputing under {}", passes.label()));
    }
}

#[test]
fn recomputed_layers_cost_calls_and_save_memory() {
    let size = Size::named("tiny").unwrap();
    for passes in [PassList::none(), PassList::all()] {
        let plans = [0, 2, 4].map(|recomputed_layers| {
            let step = StepConfig {
                model: size.model(),
                shape: BatchShape { batch_size: size.batch_size, seq_len: size.seq_len },
                optimizer: Case::load("nano").optimizer(),
                passes: passes.clone(),
                recomputed_layers,
                precision: Precision::Fp32,
                target: Target::Cpu,
            };
            training_program(&step, Keep::OnlyTheLoss).unwrap().program.plan
        });
        assert!(plans.is_sorted_by(|left, right| left.arena_bytes > right.arena_bytes), "{}", passes.label());
        assert!(plans.is_sorted_by(|left, right| left.calls.len() < right.calls.len()), "{}", passes.label());
    }
}

fn check(case: &Case, trainer: &mut Trainer, what: &str) {
    for (step, want) in case.losses.iter().enumerate() {
        let loss = case.step(trainer);
        let tolerance = if step == 0 { 1e-5 } else { 1e-4 };
        assert!((loss - want).abs() <= tolerance * want, "{what}: loss {step} is {loss}, wants {want}");
        if step == 0 {
            for parameter in case.weights.keys() {
                let gradient = trainer.read_output(&format!("grad.{parameter}")).unwrap();
                let error = relative(&case.expected[&format!("grad.{parameter}")], &gradient);
                assert!(error <= 1e-4, "{what}: gradient of {parameter} is off by {error:e}");
            }
        }
        if step == 4 {
            for parameter in case.weights.keys() {
                let error = relative(&case.expected[&format!("after5.{parameter}")], &weights(trainer, parameter));
                assert!(error <= 1e-5, "{what}: {parameter} after step 5 is off by {error:e}");
            }
        }
    }
}
