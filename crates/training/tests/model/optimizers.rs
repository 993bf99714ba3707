//! Optimizers, their settings and schedules against PyTorch's (`xtask/cases/optimizers.py`).

use crate::case::{Case, json};
use headroom_engine::cpu::isa::Isa;
use headroom_graph::Precision;
use headroom_graph::ops::adamw::Decays;
use headroom_graph::passes::PassList;
use headroom_training::optimizer::{Method, OptimizerConfig};
use headroom_training::program::Keep;
use headroom_training::schedule::{Schedule, Shape};
use serde_json::Value;

const STEPS: u64 = 20;

/// One stored run: its optimizer, and PyTorch's losses and rates.
struct Stored {
    name: String,
    optimizer: OptimizerConfig,
    losses: Vec<f64>,
    rates: Vec<f64>,
}

/// Every schedule, a run in which only matrices decay, and the other optimizers.
fn runs() -> Vec<Stored> {
    let stored = json("nano", "optimizers.json");
    let number = |key: &str| stored["optimizer"][key].as_f64().unwrap();
    let list = |value: &Value| value.as_array().unwrap().iter().map(|one| one.as_f64().unwrap()).collect::<Vec<f64>>();
    let betas = list(&stored["optimizer"]["betas"]);
    assert_eq!(stored["steps"].as_u64(), Some(STEPS));
    let one = |name: &str, shape: Shape, decays: Decays, run: &Value| {
        let schedule = Schedule {
            shape,
            warmup_steps: stored["warmup_steps"].as_u64().unwrap(),
            floor: run["floor"].as_f64().unwrap(),
            decay_steps: stored["decay_steps"].as_u64(),
        };
        let optimizer = OptimizerConfig {
            learning_rate: number("lr"),
            schedule,
            betas: [betas[0], betas[1]],
            eps: number("eps"),
            weight_decay: number("weight_decay"),
            decays,
            ..OptimizerConfig::default()
        };
        Stored { name: name.into(), optimizer, losses: list(&run["losses"]), rates: list(&run["rates"]) }
    };
    let schedules = stored["schedules"].as_object().unwrap();
    assert_eq!(schedules.len(), Shape::ALL.len() - 1, "every schedule that falls");
    let mut runs: Vec<Stored> =
        schedules.iter().map(|(name, run)| one(name, name.parse().unwrap(), Decays::All, run)).collect();
    runs.push(one("matrices decay", Shape::Cosine, Decays::Matrices, &stored["matrices_decay"]));
    let others = [
        ("sgd", Method::Sgd { momentum: 0.0 }, 0.1, 0.0),
        ("sgd_momentum", Method::Sgd { momentum: 0.9 }, 0.1, 0.5),
        ("muon", Method::Muon { momentum: 0.95 }, number("lr"), 0.5),
    ];
    for (name, method, learning_rate, clip) in others {
        let mut run = one(name, Shape::Constant, Decays::All, &stored[name]);
        run.optimizer.schedule = Schedule::default();
        run.optimizer = OptimizerConfig { method, learning_rate, clip, ..run.optimizer };
        runs.push(run);
    }
    runs
}

#[test]
fn schedules_give_the_rates_of_pytorch() {
    for Stored { name, optimizer, rates, .. } in runs() {
        for (step, want) in (1..).zip(rates) {
            let rate = optimizer.learning_rate_at(step, STEPS);
            assert!((rate - want).abs() <= 1e-12, "{name}: step {step} has {rate}, PyTorch {want}");
        }
    }
}

#[test]
fn every_optimizer_and_setting_trains_as_in_pytorch() {
    let case = Case::load("nano");
    for Stored { name, optimizer, losses, .. } in runs() {
        for (list, passes) in [("none", PassList::none()), ("all", PassList::all())] {
            let mut trainer = case.trainer_by(optimizer, Precision::Fp32, Isa::detect(), 2, passes, Keep::OnlyTheLoss);
            for (step, want) in losses.iter().enumerate() {
                let loss = case.step(&mut trainer);
                let tolerance = if step == 0 { 1e-5 } else { 1e-4 };
                assert!(
                    (loss - want).abs() <= tolerance * want,
                    "{name} under {list}: loss {step} is {loss}, wants {want}"
                );
            }
        }
    }
}

#[test]
fn an_optimizer_keeps_its_own_tensors_and_no_others() {
    use headroom_training::optimizer::{FIRST_MOMENT, MOMENTUM, SECOND_MOMENT};
    let case = Case::load("nano");
    let kept = |method: Method| {
        let optimizer = OptimizerConfig { method, ..OptimizerConfig::default() };
        let trainer = case.trainer_by(optimizer, Precision::Fp32, Isa::detect(), 1, PassList::all(), Keep::OnlyTheLoss);
        let names = trainer.parameters().into_iter().map(|(name, _)| name);
        names.zip(trainer.states()).collect::<Vec<_>>()
    };
    let adamw = [FIRST_MOMENT, SECOND_MOMENT];
    assert!(kept(Method::AdamW).iter().all(|(_, states)| states[..] == adamw));
    assert!(kept(Method::Sgd { momentum: 0.0 }).iter().all(|(_, states)| states.is_empty()));
    assert!(kept(Method::Sgd { momentum: 0.9 }).iter().all(|(_, states)| states[..] == [MOMENTUM]));
    for (name, states) in kept(Method::Muon { momentum: 0.95 }) {
        let by_adamw = ["embed", "norm", "lm_head"].iter().any(|part| name.contains(part));
        assert_eq!(states[..] == adamw, by_adamw, "{name}");
        assert_eq!(states[..] == [MOMENTUM], !by_adamw, "{name}");
    }
}
