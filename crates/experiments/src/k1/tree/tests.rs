//! A whole small experiment on a tree, and the answers for synthetic runs.

use super::*;
use headroom_engine::Target;
use headroom_graph::Precision;
use headroom_graph::passes::PassList;
use headroom_record::SCHEMA_VERSION;
use headroom_record::k1_tree::{K1TreeDesign, K1TreeRecord, K1TreeTask};
use headroom_record::provenance::{Provenance, check_provenance};
use headroom_training::data::BatchShape;
use headroom_training::models::{ModelConfig, Size, tree};

pub fn design() -> TreeDesign {
    let row = ModelConfig {
        vocab_size: tasks::VOCABULARY,
        hidden_dim: 16,
        n_heads: 2,
        n_kv_heads: 1,
        head_dim: 8,
        intermediate_dim: 32,
        ..Size::named("nano").unwrap().model_of(&tree::FAMILY)
    };
    let model = tree::branched(row, &[2, 2]);
    let step = |model: ModelConfig| StepConfig {
        model,
        shape: BatchShape { batch_size: 2, seq_len: 16 },
        optimizer: OptimizerConfig { learning_rate: 3e-3, ..OptimizerConfig::default() },
        passes: PassList::all(),
        recomputed_layers: 0,
        precision: Precision::Fp32,
        target: Target::Cpu,
    };
    TreeDesign {
        llama: step(llama_of(&model)),
        tree: step(model),
        device: DeviceSpec::Cpu,
        opening: Opening::threads(1),
        steps: 6,
        dense_steps: 2,
        eval_batches: 1,
    }
}

#[test]
fn a_llama_has_the_depth_of_the_tree_and_its_parameters() {
    let row = Size::named("nano").unwrap().model_of(&tree::FAMILY);
    for (width, branching) in [(16, &[2, 2][..]), (32, &[4, 3, 2]), (64, &[3, 3])] {
        let sized = ModelConfig {
            vocab_size: 256,
            hidden_dim: width,
            head_dim: width / row.n_heads,
            intermediate_dim: 2 * width,
            ..row.clone()
        };
        let tree = tree::branched(sized, branching);
        let llama = llama_of(&tree);
        llama.validate(2, 16).unwrap();
        let (have, want) = (llama.parameters().total() as f64, tree.parameters().total() as f64);
        assert!((have / want - 1.0).abs() < 0.01, "{have} of {want}");
        assert_eq!((llama.n_layers, llama.family.name), (branching.len() + 1, "llama"));
    }
}

#[test]
fn budgets_give_each_arm_what_is_held_equal() {
    let (design, arms) = (design(), Arm::all(2));
    let budgets = budgets(&design, &arms).unwrap();
    let of = |arm: &str, equal: Equal| budgets.iter().find(|one| one.arm == arm && one.equal == equal).unwrap();
    assert!(arms.iter().all(|arm| of(&arm.name, Equal::Steps).steps_per_phase == 6));
    let all = design.tree.model.parameters().total();
    assert_eq!(of("dense", Equal::Updates).steps_per_phase, 2);
    for arm in arms.iter().filter(|arm| arm.name != NO_NODE) {
        let (updates, flops) = (of(&arm.name, Equal::Updates), of(&arm.name, Equal::Flops));
        let near = |have: u64, want: u64, step: u64| have.abs_diff(want) <= step / 2 + 1;
        assert!(near(updates.steps_per_phase * updates.updated_parameters, 2 * all, updates.updated_parameters));
        let dense = 6 * of("dense", Equal::Steps).flops;
        assert!(near(flops.steps_per_phase * flops.flops, dense, flops.flops), "{}", arm.name);
    }
    assert!(of("topk:2", Equal::Updates).steps_per_phase > 2);
}

#[test]
fn a_run_updates_what_its_budget_says_and_repeats_to_the_bit() {
    let design = design();
    let folder = tempfile::tempdir().unwrap();
    let texts = Texts::write(folder.path()).unwrap();
    let arms = Arm::all(2);
    let budgets = budgets(&design, &arms).unwrap();
    for task in [Task::markov(&design, 3).unwrap(), Task::texts(&design, &texts, 3).unwrap()] {
        let first: Vec<K1TreeRun> = arms.iter().map(|arm| run(&design, arm, &task, 3, 4).unwrap()).collect();
        for (arm, run) in arms.iter().zip(&first) {
            let own = budgets.iter().find(|budget| budget.arm == arm.name).unwrap().updated_parameters;
            assert_eq!(run.updated_parameters, 12 * own, "{} on {}", arm.name, task.name);
            assert_eq!((run.losses.len(), run.losses[0].len()), (3, 2));
            assert!((run.forgetting - (run.losses[1][0] - run.losses[0][0])).abs() < 1e-12);
            assert!((run.back - (run.losses[2][0] - run.losses[0][0])).abs() < 1e-12);
        }
        let again = run(&design, &arms[1], &task, 3, 4).unwrap();
        assert_eq!(again.losses, first[1].losses);
        assert_ne!(first[0].losses, first[1].losses);
    }
}

/// Losses by arm; the variation between seeds is the same for all arms.
fn made_up(losses: [(&str, f64, f64); 6]) -> K1TreeRecord {
    let seeds = vec![1, 2, 3, 4, 5];
    let budget = |arm: &str, equal: Equal| K1TreeBudget {
        arm: arm.into(),
        equal,
        steps_per_phase: if equal == Equal::Updates { 5 } else { 10 },
        updated_parameters: 1,
        flops: 1,
    };
    let arms = losses.map(|(arm, ..)| arm);
    let mut runs = vec![];
    for task in Task::NAMES {
        for steps in [5, 10] {
            for (arm, loss, forgetting) in losses {
                for &seed in &seeds {
                    let wobble = 1e-3 * ((seed * 7 + arm.len() as u64) % 5) as f64;
                    runs.push(K1TreeRun {
                        arm: arm.into(),
                        task: task.into(),
                        seed,
                        steps_per_phase: steps,
                        seconds: 1.0,
                        steps_per_sec: 30.0,
                        updated_parameters: 30,
                        updated_share: 1.0,
                        losses: vec![],
                        loss: loss + seed as f64 + wobble,
                        forgetting: forgetting + wobble,
                        back: wobble,
                        final_loss: loss,
                    });
                }
            }
        }
    }
    let task = |name: &str| K1TreeTask { name: name.into(), sources: vec![], loss_floor: None };
    let mut record = K1TreeRecord {
        schema_version: SCHEMA_VERSION,
        timestamp: "2026-11-17T00:00:00Z".into(),
        version: "all".into(),
        device: "cpu".into(),
        machine: "m".into(),
        threads: 2,
        design: K1TreeDesign {
            branching: vec![4, 3, 2],
            nodes: 41,
            parameters: 1,
            widths: vec![32, 4, 2, 64],
            vocabulary: 256,
            llama_layers: 4,
            llama_widths: vec![96, 4, 2, 206],
            llama_parameters: 1,
            batch_size: 4,
            seq_len: 32,
            learning_rate: 1e-3,
            weight_decay: 0.01,
            clip: 1.0,
            seeds,
            eval_batches: 1,
            tasks: Task::NAMES.map(task).to_vec(),
            budgets: Equal::ALL
                .iter()
                .flat_map(|&equal| arms.map(|arm| budget(arm, equal)))
                .filter(|budget| budget.arm != NO_NODE || budget.equal == Equal::Steps)
                .collect(),
            loss_of_no_knowledge: 5.5,
        },
        runs,
        arms: vec![],
        comparisons: vec![],
        answers: vec![],
        statements: vec![],
        total_seconds: 1.0,
        provenance: Provenance::default(),
    };
    record.arms = means(&record);
    record.comparisons = comparisons(&record);
    record.answers = answers(&record);
    record.statements = statements(&record);
    record.with_provenance()
}

#[test]
fn answers_follow_the_differences_and_noise_is_called_noise() {
    let record = made_up([
        ("dense", 2.0, 1.0),
        ("topk:4", 2.5, 0.4),
        ("path", 2.6, 0.3),
        ("random:4", 2.5, 0.4),
        ("llama", 1.5, 1.2),
        ("no node", 2.8, 0.4),
    ]);
    check_provenance(&serde_json::to_value(&record).unwrap()).unwrap();
    let [hierarchy, chance, still] = &record.answers[..] else { panic!("{:?}", record.answers) };
    assert!(hierarchy.starts_with("Does the hierarchy help? No: ") && hierarchy.contains("+0.5"), "{hierarchy}");
    assert!(chance.contains("? These runs cannot tell: ") && chance.contains("within noise"), "{chance}");
    assert!(still.contains("? Yes: ") && still.contains("for path -0.7"), "{still}");
    // Two tasks; six pairs at equal steps and at equal updates; at equal FLOPs the runs are those at equal steps. Plus
    // two pairs with the arm that updates no node, only at equal steps.
    assert_eq!((record.comparisons.len(), record.arms.len()), (2 * (2 * 6 + 2) * 3, 2 * (3 * 5 + 1)));
    let [.., nodes, flops] = &record.statements[..] else { panic!("{:?}", record.statements) };
    assert!(flops.contains("more than 10 steps where dense updates have 10"), "{flops}");
    assert!(nodes.contains("-0.8") && !nodes.contains("hardly show"), "{nodes}");
}

#[test]
fn answers_turn_round_with_the_figures() {
    let record = made_up([
        ("dense", 1.0, 0.1),
        ("topk:4", 2.0, 0.4),
        ("path", 2.6, 0.5),
        ("random:4", 2.5, 0.4),
        ("llama", 1.5, 1.2),
        ("no node", 2.8, 0.4),
    ]);
    let starts = ["Yes: ", "Yes: ", "No: "];
    for (answer, start) in record.answers.iter().zip(starts) {
        assert!(answer.split_once("? ").unwrap().1.starts_with(start), "{answer}");
    }
}
