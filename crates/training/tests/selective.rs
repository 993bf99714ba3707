//! Steps that update only what they choose: against dense steps, against a plain implementation on the host, and across
//! a checkpoint.

use headroom_engine::Target;
use headroom_engine::cpu::isa::Isa;
use headroom_engine::cpu::{Cpu, Reductions};
use headroom_graph::passes::PassList;
use headroom_graph::{Graph, Precision};
use headroom_training::attribution::{Start, moved};
use headroom_training::checkpoint::{Checkpoint, Companions, Content, HfConfig, Saver};
use headroom_training::data::{Batch, BatchShape};
use headroom_training::models::{ModelConfig, Size};
use headroom_training::optimizer::{FIRST_MOMENT, OptimizerConfig, SECOND_MOMENT, Update};
use headroom_training::persist::{self, Notes};
use headroom_training::program::{Keep, StepConfig, training_program};
use headroom_training::schedule::{Schedule, Shape};
use headroom_training::trainer::{EndsStep, Trainer};
use serde_json::Map;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;

const SHAPE: BatchShape = BatchShape { batch_size: 2, seq_len: 9 };
const SEED: u64 = 5;

#[derive(Clone, Copy)]
struct Case {
    update: &'static str,
    passes: &'static str,
    clip: f64,
    tied: bool,
    threads: usize,
    accumulation: usize,
}

/// The base case, which other cases vary.
const CASE: Case = Case { update: "topk:3", passes: "v2", clip: 0.0, tied: false, threads: 2, accumulation: 1 };

impl Case {
    fn model(&self) -> ModelConfig {
        ModelConfig {
            vocab_size: 41,
            hidden_dim: 24,
            n_layers: 2,
            n_heads: 4,
            n_kv_heads: 2,
            head_dim: 6,
            intermediate_dim: 35,
            tied: self.tied,
            ..Size::named("nano").unwrap().model()
        }
    }

    fn optimizer(&self) -> OptimizerConfig {
        let update = match self.update.parse().unwrap() {
            Update::Chosen { rule, .. } => Update::Chosen { rule, seed: SEED },
            Update::Dense => Update::Dense,
        };
        OptimizerConfig {
            learning_rate: 3e-3,
            schedule: Schedule { shape: Shape::Cosine, warmup_steps: 2, ..Schedule::default() },
            weight_decay: 0.1,
            clip: self.clip,
            accumulation: self.accumulation,
            ..OptimizerConfig::updating(update)
        }
    }

    fn step(&self) -> StepConfig {
        StepConfig {
            model: self.model(),
            shape: SHAPE,
            optimizer: self.optimizer(),
            passes: PassList::parse(self.passes).unwrap(),
            recomputed_layers: 0,
            precision: Precision::Fp32,
            target: Target::Cpu,
        }
    }

    fn trainer(&self) -> Trainer {
        let program = training_program(&self.step(), Keep::Gradients).unwrap();
        let programs = std::slice::from_ref(&program.program);
        let cpu = Cpu::new(self.threads, Isa::detect(), Reductions::Fixed, programs).unwrap();
        let mut trainer = Trainer::new(Box::new(cpu), &self.model(), program, None, self.optimizer());
        trainer.draw_weights(SEED);
        trainer
    }

    fn trained(&self, steps: u64) -> Trainer {
        let mut trainer = self.trainer();
        (0..steps).for_each(|_| self.take_step(&mut trainer));
        trainer
    }

    fn take_step(&self, trainer: &mut Trainer) {
        let position = trainer.step * 7;
        for micro in 1..self.accumulation {
            trainer.loss_of(&batch(position + micro as u64 - 1), EndsStep::No).unwrap();
        }
        trainer.loss_of(&batch(position + self.accumulation as u64 - 1), EndsStep::Yes { last: 20 }).unwrap();
    }
}

fn batch(position: u64) -> Batch {
    let tokens = (SHAPE.batch_size * SHAPE.seq_len) as u64;
    let ids = |factor: u64| (0..tokens).map(|i| ((i * factor + 3 + position * 5) % 41) as i32).collect();
    Batch { input_ids: ids(7), targets: ids(11) }
}

/// Weight and both moments of every parameter, as bits.
type State = BTreeMap<String, [Vec<u32>; 3]>;

fn state(trainer: &mut Trainer) -> State {
    let names: Vec<String> = trainer.parameters().into_iter().map(|(name, _)| name).collect();
    let mut read = |name: &str, content: Content| {
        let mut bits = vec![];
        let Ok(()) = trainer.read(name, content, |piece| {
            bits.extend(piece.iter().map(|x| x.to_bits()));
            Ok::<(), std::convert::Infallible>(())
        });
        bits
    };
    let contents = [Content::Weight, Content::State(FIRST_MOMENT), Content::State(SECOND_MOMENT)];
    names.into_iter().map(|name| (name.clone(), contents.map(|content| read(&name, content)))).collect()
}

#[test]
fn choosing_everything_gives_the_bytes_of_a_dense_step() {
    for passes in ["none", "v2", "all", "fuse-optimizer"] {
        for (clip, tied, accumulation) in [(0.0, false, 1), (0.5, true, 1), (0.5, false, 3)] {
            let dense = Case { update: "dense", passes, clip, tied, accumulation, ..CASE };
            let all = Case { update: "topk:all", threads: 3, ..dense };
            let (mut dense, mut all) = (dense.trained(5), all.trained(5));
            assert!(state(&mut dense) == state(&mut all), "{passes}, clip {clip}, tied {tied}, {accumulation} batches");
        }
    }
}

/// The shares of a step, straight from the definition of the rules, from gradients read by the host.
fn plain_choice(update: &str, norms: &BTreeMap<String, f64>) -> BTreeMap<String, f32> {
    let short = |name: &str| name.trim_start_matches("model.").trim_end_matches(".weight").to_string();
    let leaves: Vec<(String, f64)> = norms.iter().map(|(name, norm)| (short(name), norm * norm)).collect();
    if let Some(count) = update.strip_prefix("topk:") {
        let mut order: Vec<&(String, f64)> = leaves.iter().collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        return order[..count.parse().unwrap()].iter().map(|(name, _)| (name.clone(), 1.0)).collect();
    }
    // Descends by name: a child is the path up to the next dot, with a layer's number as part of its name.
    let layer =
        |name: &str| name.starts_with("layers.").then(|| name.splitn(3, '.').take(2).collect::<Vec<_>>().join("."));
    let parent = |name: &str| match name.rsplit_once('.') {
        Some((parent, _)) => parent.to_string(),
        None => "model".into(),
    };
    let mut node = "model".to_string();
    while !leaves.iter().any(|(name, _)| *name == node) {
        let mut sums: BTreeMap<String, f64> = BTreeMap::new();
        for (name, square) in &leaves {
            let up = [Some(name.clone()), Some(parent(name)), layer(name), Some("model".into())];
            let up: Vec<String> = up.into_iter().flatten().collect();
            if let Some(at) = up.iter().position(|other| *other == node) {
                *sums.entry(up[at - 1].clone()).or_default() += square;
            }
        }
        node = sums.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap().0;
    }
    let share = |name: &str| {
        if name == node {
            1.0
        } else if parent(name) == parent(&node) {
            0.15
        } else if layer(name).is_some() && layer(name) == layer(&node) {
            0.05
        } else {
            0.0
        }
    };
    leaves.iter().map(|(name, _)| (name.clone(), share(name))).filter(|(_, share)| *share > 0.0).collect()
}

#[test]
fn the_chosen_nodes_are_those_of_a_plain_choice_on_the_host() {
    for passes in ["none", "v2", "all"] {
        for update in ["topk:1", "topk:3", "topk:20", "path"] {
            for tied in [false, true] {
                let case = Case { update, passes, tied, ..CASE };
                let mut trainer = case.trainer();
                for _ in 0..6 {
                    trainer.loss_of(&batch(trainer.step * 7), EndsStep::Yes { last: 20 }).unwrap();
                    let names: Vec<String> = trainer.parameters().into_iter().map(|(name, _)| name).collect();
                    let norms = names.into_iter().map(|name| {
                        let gradient = trainer.read_output(&format!("grad.{name}")).unwrap();
                        let norm = gradient.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
                        (name, norm)
                    });
                    let norms: BTreeMap<String, f64> = norms.collect();
                    let wanted = plain_choice(update, &norms);
                    trainer.read_choices();
                    let (tree, step) = (trainer.tree(), trainer.choices.as_ref().unwrap().kept().last().unwrap());
                    let chosen = tree.leaf_names().into_iter().zip(&step.shares).filter(|(_, share)| **share > 0.0);
                    let chosen: BTreeMap<String, f32> = chosen.map(|(name, share)| (name, *share)).collect();
                    assert_eq!(chosen, wanted, "{update}, {passes}, step {}", step.step);
                    for ((name, _), kept) in trainer.parameters().iter().zip(&step.norms) {
                        let own = norms[name];
                        assert!((own - f64::from(*kept)).abs() < 1e-5 * own, "{name}: {own}, {kept}");
                    }
                }
            }
        }
    }
}

#[test]
fn what_is_not_chosen_keeps_its_bytes_and_its_step_count() {
    for passes in ["none", "v2", "all"] {
        for update in ["topk:2", "path", "random:4"] {
            let case = Case { update, passes, clip: 0.7, ..CASE };
            let mut trainer = case.trainer();
            let mut counts = vec![0; trainer.parameters().len()];
            for _ in 0..8 {
                let before = state(&mut trainer);
                case.take_step(&mut trainer);
                let after = state(&mut trainer);
                trainer.read_choices();
                let shares = trainer.choices.as_ref().unwrap().kept().last().unwrap().shares.clone();
                for (leaf, (name, _)) in trainer.parameters().iter().enumerate() {
                    if shares[leaf] > 0.0 {
                        counts[leaf] += 1;
                        let changed = before[name].iter().zip(&after[name]).all(|(before, after)| before != after);
                        assert!(changed, "{name} was chosen by {update} under {passes}");
                    } else {
                        assert!(before[name] == after[name], "{name} moved under {passes}, {update}");
                    }
                }
                let own: Vec<u64> = trainer.node_steps().unwrap().into_iter().map(|(_, count)| count).collect();
                assert_eq!(own, counts, "{update} under {passes}");
            }
        }
    }
}

#[test]
fn lots_are_drawn_by_the_seed_and_the_step() {
    let chosen = |passes: &'static str, threads: usize| {
        let mut trainer = Case { update: "random:4", passes, threads, ..CASE }.trained(10);
        trainer.read_choices();
        let choices = trainer.choices.unwrap();
        choices.kept().iter().map(|step| step.shares.clone()).collect::<Vec<_>>()
    };
    let lots = chosen("v2", 2);
    assert!(lots.iter().all(|shares| shares.iter().filter(|share| **share > 0.0).count() == 4));
    assert!(lots.windows(2).any(|pair| pair[0] != pair[1]));
    assert_eq!(lots, chosen("none", 1));
}

#[test]
fn any_number_of_threads_gives_the_same_bytes() {
    for update in ["topk:3", "path", "random:3"] {
        for passes in ["none", "all"] {
            let trained = |threads: usize| state(&mut Case { update, passes, clip: 0.5, threads, ..CASE }.trained(4));
            let alone = trained(1);
            assert!([2, 5].into_iter().all(|threads| trained(threads) == alone), "{update} under {passes}");
        }
    }
}

fn save(case: &Case, trainer: &mut Trainer, folder: &Path) {
    let (config, optimizer) = (HfConfig::of(&case.model(), SHAPE.seq_len), case.optimizer());
    let notes = Notes {
        config: &config,
        optimizer: &optimizer,
        seed: SEED,
        data: "batches of this test",
        extra: &Map::new(),
        companions: &Companions::default(),
    };
    let mut saver = Saver::open(folder, NonZeroUsize::MIN).unwrap();
    persist::save(trainer, &mut saver, &notes).unwrap();
}

#[test]
fn a_resumed_run_goes_on_to_the_byte() {
    for update in ["topk:3", "path", "random:3"] {
        for (before, after) in [("v2", "v2"), ("none", "none"), ("none", "all")] {
            let folder = tempfile::tempdir().unwrap();
            let (first, second) = (Case { update, passes: before, ..CASE }, Case { update, passes: after, ..CASE });
            let mut trainer = first.trained(4);
            save(&first, &mut trainer, folder.path());
            let checkpoint = Checkpoint::open(folder.path()).unwrap();
            let mut resumed = second.trainer();
            persist::load_all(&mut resumed, &checkpoint).unwrap();
            assert_eq!(resumed.node_steps(), trainer.node_steps());
            (0..4).for_each(|_| second.take_step(&mut resumed));
            if before == after {
                assert!(state(&mut resumed) == state(&mut first.trained(8)), "{update} under {before}");
            }
            resumed.read_choices();
            let steps: Vec<u64> = resumed.choices.as_ref().unwrap().kept().iter().map(|step| step.step).collect();
            assert_eq!(steps, [5, 6, 7, 8]);
            // Distances moved since the checkpoint, computed from its file and from the tensors.
            let distances = moved(&mut resumed, Start::Loaded(&checkpoint)).unwrap();
            let (start, end) = (state(&mut trainer), state(&mut resumed));
            for ((name, _), distance) in resumed.parameters().iter().zip(distances) {
                let pairs = start[name][0].iter().zip(&end[name][0]);
                let plain = pairs.map(|(a, b)| f64::from(f32::from_bits(*a)) - f64::from(f32::from_bits(*b)));
                assert!((plain.map(|x| x * x).sum::<f64>().sqrt() - distance).abs() < 1e-9, "{name}");
            }
        }
    }
}

#[test]
fn a_dense_checkpoint_goes_on_with_a_choice_and_an_uneven_one_only_with_one() {
    let folder = tempfile::tempdir().unwrap();
    let dense = Case { update: "dense", ..CASE };
    save(&dense, &mut dense.trained(3), folder.path());
    let all = Case { update: "topk:all", ..CASE };
    let mut resumed = all.trainer();
    persist::load_all(&mut resumed, &Checkpoint::open(folder.path()).unwrap()).unwrap();
    assert!(resumed.node_steps().unwrap().iter().all(|(_, count)| *count == 3));
    (0..2).for_each(|_| all.take_step(&mut resumed));
    assert!(state(&mut resumed) == state(&mut dense.trained(5)));

    save(&CASE, &mut CASE.trained(3), folder.path());
    let uneven = Checkpoint::open(folder.path()).unwrap();
    let error = persist::load_all(&mut dense.trainer(), &uneven).unwrap_err();
    assert!(error.to_string().contains("different numbers of times"), "{error}");
    persist::load_all(&mut all.trainer(), &uneven).unwrap();
}

#[test]
fn nodes_that_never_were_chosen_have_not_moved() {
    let mut trainer = Case { update: "topk:1", ..CASE }.trained(3);
    trainer.read_choices();
    let distances = moved(&mut trainer, Start::Drawn(SEED)).unwrap();
    let record = trainer.choices.as_ref().unwrap().attribution_record("topk:1".into(), SEED, &distances);
    for (node, updates) in record.updates.iter().enumerate() {
        assert_eq!(record.moved[node] > Some(0.0), *updates > 0, "{}", record.nodes[node]);
    }
    assert_eq!(record.updates.iter().sum::<u64>(), 3);
}

#[test]
fn choices_of_a_long_run_are_read_before_they_are_overwritten_and_thinned_out() {
    let case = Case { update: "topk:2", ..CASE };
    let mut trainer = case.trainer();
    let mut read = 0;
    for _ in 0..2100 {
        case.take_step(&mut trainer);
        if trainer.choices_are_full() {
            trainer.read_choices();
            read += 1;
        }
    }
    trainer.read_choices();
    let choices = trainer.choices.unwrap();
    assert_eq!((choices.steps(), read), (2100, 8));
    let steps: Vec<u64> = choices.kept().iter().map(|step| step.step).collect();
    assert!(steps.len() <= 2048 && steps.windows(2).all(|pair| pair[1] - pair[0] == 2), "{}", steps.len());
}

#[test]
fn a_graph_with_a_choice_prints_and_parses_back_to_itself() {
    for passes in ["none", "all"] {
        let graph = training_program(&Case { passes, clip: 1.0, ..CASE }.step(), Keep::OnlyTheLoss).unwrap();
        let graph = graph.program.graph;
        assert_eq!(graph.to_string().parse::<Graph>().unwrap(), graph);
    }
}
