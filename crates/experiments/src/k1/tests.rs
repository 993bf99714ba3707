//! The experiment's arithmetic on synthetic runs, and a whole small experiment.

use super::*;
use headroom_engine::Target;
use headroom_graph::Precision;
use headroom_graph::passes::PassList;
use headroom_training::data::BatchShape;
use headroom_training::models::{ModelConfig, Size};
use headroom_training::optimizer::OptimizerConfig;

fn updates() -> Vec<Update> {
    ["dense", "topk:2", "random:2"].map(|update| update.parse().unwrap()).to_vec()
}

fn run_of(update: &str, budget: Budget, seed: u64, loss: f64) -> K1Run {
    K1Run {
        update: update.into(),
        budget,
        seed,
        steps: 10,
        seconds: 1.0,
        steps_per_sec: 10.0,
        tokens_per_sec: 1000.0,
        updated_parameters: 5,
        updated_share: 0.5,
        losses: vec![],
        loss,
        forgetting: 0.1 * (seed % 3) as f64,
        final_loss: loss,
        complete: true,
    }
}

/// Losses differ a lot between seeds; `topk:2` is better by 0.5 at each seed, `random:2` is not.
fn runs() -> Vec<K1Run> {
    let mut runs = vec![];
    for budget in Budget::ALL {
        for seed in 1..=6u64 {
            let wobble = [0.01, -0.02, 0.015, -0.01, 0.02, -0.015][seed as usize - 1];
            let base = 3.0 + seed as f64;
            runs.push(run_of("dense", budget, seed, base));
            runs.push(run_of("topk:2", budget, seed, base - 0.5 + wobble));
            runs.push(run_of("random:2", budget, seed, base + 3.0 * wobble));
        }
    }
    runs
}

#[test]
fn a_difference_is_found_seed_by_seed_and_noise_is_called_noise() {
    let found = comparisons(&runs(), &updates());
    // Three pairs, three figures, two budgets.
    assert_eq!(found.len(), 18);
    let of = |update: &str, against: &str, figure: &str| {
        found.iter().find(|one| one.update == update && one.against == against && one.figure == figure).unwrap()
    };
    assert!(of("topk:2", "dense", "loss").beyond_noise && of("topk:2", "random:2", "loss").beyond_noise);
    assert!((of("topk:2", "dense", "loss").difference.mean + 0.5).abs() < 1e-9);
    assert!(!of("random:2", "dense", "loss").beyond_noise && !of("topk:2", "dense", "forgetting").beyond_noise);
    let said = statements(&runs(), &found, 6);
    assert!(
        said[0].starts_with("At equal steps, topk:2 against dense: loss on the current source lower by 0.500 (95%")
    );
    assert!(said[0].contains("forgetting within noise"), "{}", said[0]);
    assert!(said.last().unwrap().contains("18 comparisons over 6 seeds"));
}

#[test]
fn one_seed_says_nothing() {
    let runs: Vec<K1Run> = runs().into_iter().filter(|run| run.seed == 1).collect();
    let found = comparisons(&runs, &updates());
    assert!(found.iter().all(|one| !one.beyond_noise && one.p_value.is_none()));
    assert!(statements(&runs, &found, 1).last().unwrap().contains("nothing can be concluded"));
    assert_eq!(arms(&runs, &updates()).len(), 6);
}

fn design() -> Design {
    let model = ModelConfig {
        vocab_size: 32,
        hidden_dim: 16,
        n_layers: 1,
        n_heads: 2,
        n_kv_heads: 1,
        head_dim: 8,
        intermediate_dim: 24,
        ..Size::named("nano").unwrap().model()
    };
    let optimizer = OptimizerConfig { learning_rate: 1e-2, ..OptimizerConfig::default() };
    let updates = 8 * model.parameters().total();
    Design {
        step: StepConfig {
            model,
            shape: BatchShape { batch_size: 4, seq_len: 16 },
            optimizer,
            passes: PassList::version_2(),
            recomputed_layers: 0,
            precision: Precision::Fp32,
            target: Target::Cpu,
        },
        device: DeviceSpec::Cpu,
        opening: Opening::threads(1),
        sources: 2,
        steps: 40,
        updates,
        eval_batches: 2,
    }
}

#[test]
fn a_run_learns_each_source_forgets_the_one_before_and_keeps_to_its_budget() {
    let design = design();
    let sources = Sources::open(&design, 3).unwrap();
    let dense = run(&design, Update::Dense, Budget::EqualSteps, 3, &sources).unwrap();
    assert_eq!((dense.steps, dense.updated_share), (80, 1.0));
    let untrained = (32f64).ln();
    assert!(dense.losses[0][0] < untrained - 0.2 && dense.losses[1][1] < untrained - 0.2, "{:?}", dense.losses);
    assert!(dense.forgetting > 0.1, "the second source has other transitions: {:?}", dense.losses);
    assert!((dense.final_loss - (dense.losses[1][0] + dense.losses[1][1]) / 2.0).abs() < 1e-12);

    let lots: Update = "random:3".parse().unwrap();
    let equal = run(&design, lots, Budget::EqualUpdates, 3, &sources).unwrap();
    let dense = run(&design, Update::Dense, Budget::EqualUpdates, 3, &sources).unwrap();
    assert_eq!(dense.steps, 16);
    assert!(equal.complete && equal.steps > dense.steps);
    // The last step may exceed the budget by as much as it updates.
    let beyond = equal.updated_parameters as f64 / dense.updated_parameters as f64;
    assert!((1.0..1.1).contains(&beyond), "{beyond}");
    // The same seed gives the same run.
    let again = run(&design, lots, Budget::EqualUpdates, 3, &sources).unwrap();
    assert_eq!((again.losses, again.steps), (equal.losses, equal.steps));
}
