//! Settings of AdamW and schedules against PyTorch's (`xtask/cases/optimizers.py`).

use crate::case::{Case, json};
use headroom_engine::cpu::isa::Isa;
use headroom_graph::Precision;
use headroom_graph::ops::adamw::Decays;
use headroom_graph::passes::PassList;
use headroom_training::optimizer::OptimizerConfig;
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

/// Every schedule, and a run in which matrices alone decay.
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
fn betas_eps_and_decay_train_as_in_pytorch() {
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
