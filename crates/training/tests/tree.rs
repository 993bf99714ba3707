//! K-1's tree: steps that choose among its nodes against dense ones and against a plain implementation on the host,
//! recomputed nodes, and its configuration written to a file and read back.

use headroom_engine::Target;
use headroom_engine::cpu::isa::Isa;
use headroom_engine::cpu::{Cpu, Reductions};
use headroom_graph::Precision;
use headroom_graph::passes::PassList;
use headroom_training::attribution::{Start, moved};
use headroom_training::checkpoint::{Content, HfConfig};
use headroom_training::data::{Batch, BatchShape};
use headroom_training::models::{ModelConfig, Size, tree};
use headroom_training::optimizer::{FIRST_MOMENT, OptimizerConfig, SECOND_MOMENT, Update};
use headroom_training::program::{Keep, StepConfig, training_program};
use headroom_training::trainer::{EndsStep, Trainer};
use std::collections::BTreeMap;
use std::path::Path;

const SHAPE: BatchShape = BatchShape { batch_size: 2, seq_len: 9 };
const SEED: u64 = 5;

/// A root, two children, three leaves of each: blocks 0, 1 and 5, and the rest.
const PARENTS: [Option<usize>; 9] = [None, Some(0), Some(1), Some(1), Some(1), Some(0), Some(5), Some(5), Some(5)];

fn model(tied: bool) -> ModelConfig {
    let row = ModelConfig {
        vocab_size: 41,
        hidden_dim: 16,
        n_heads: 4,
        n_kv_heads: 2,
        head_dim: 4,
        intermediate_dim: 20,
        tied,
        ..Size::named("nano").unwrap().model_of(&tree::FAMILY)
    };
    tree::branched(row, &[2, 3])
}

#[derive(Clone, Copy)]
struct Case {
    update: &'static str,
    passes: &'static str,
    tied: bool,
    threads: usize,
    recomputed: usize,
}

const CASE: Case = Case { update: "topk:3", passes: "v2", tied: false, threads: 2, recomputed: 0 };

impl Case {
    fn trainer(&self) -> Trainer {
        let update = match self.update.parse().unwrap() {
            Update::Chosen { rule, .. } => Update::Chosen { rule, seed: SEED },
            Update::Dense => Update::Dense,
        };
        let optimizer = OptimizerConfig { learning_rate: 3e-3, clip: 0.5, ..OptimizerConfig::updating(update) };
        let step = StepConfig {
            model: model(self.tied),
            shape: SHAPE,
            optimizer,
            passes: PassList::parse(self.passes).unwrap(),
            recomputed_layers: self.recomputed,
            precision: Precision::Fp32,
            target: Target::Cpu,
        };
        let program = training_program(&step, Keep::Gradients).unwrap();
        let programs = std::slice::from_ref(&program.program);
        let cpu = Cpu::new(self.threads, Isa::detect(), Reductions::Fixed, programs).unwrap();
        let mut trainer = Trainer::new(Box::new(cpu), &step.model, program, None, optimizer);
        trainer.draw_weights(SEED);
        trainer
    }

    fn trained(&self, steps: u64) -> Trainer {
        let mut trainer = self.trainer();
        (0..steps).for_each(|_| take_step(&mut trainer));
        trainer
    }
}

fn take_step(trainer: &mut Trainer) {
    let tokens = (SHAPE.batch_size * SHAPE.seq_len) as u64;
    let position = trainer.step * 7;
    let ids = |factor: u64| (0..tokens).map(|i| ((i * factor + 3 + position * 5) % 41) as i32).collect();
    let batch = Batch { input_ids: ids(7), targets: ids(11) };
    trainer.loss_of(&batch, EndsStep::Yes { last: 20 }).unwrap();
}

/// Weight and both moments of every parameter, as bits.
fn state(trainer: &mut Trainer) -> BTreeMap<String, [Vec<u32>; 3]> {
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

/// The node that a parameter is chosen with: its block, or itself.
fn node(parameter: &str) -> String {
    let name = parameter.trim_start_matches("model.").trim_end_matches(".weight");
    if name.starts_with("layers.") { name.split('.').take(2).collect::<Vec<_>>().join(".") } else { name.into() }
}

/// Squared norms of each node's gradient, as the host reads them.
fn squares(trainer: &mut Trainer) -> BTreeMap<String, f64> {
    let names: Vec<String> = trainer.parameters().into_iter().map(|(name, _)| name).collect();
    let mut sums = BTreeMap::new();
    for name in names {
        let gradient = trainer.read_output(&format!("grad.{name}")).unwrap();
        *sums.entry(node(&name)).or_default() += gradient.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>();
    }
    sums
}

/// The shares of a step, straight from the definition of the rules.
fn plain_choice(update: &str, squares: &BTreeMap<String, f64>) -> BTreeMap<String, f32> {
    let of = |block: usize| squares[&format!("layers.{block}")];
    let largest = |blocks: Vec<usize>| blocks.into_iter().max_by(|a, b| of(*a).total_cmp(&of(*b)));
    let blocks = || 0..PARENTS.len();
    let shares: Vec<f32> = match update.strip_prefix("topk:") {
        Some(count) => {
            let mut order: Vec<usize> = blocks().collect();
            order.sort_by(|a, b| of(*b).total_cmp(&of(*a)));
            let chosen = &order[..count.parse().unwrap()];
            blocks().map(|block| if chosen.contains(&block) { 1.0 } else { 0.0 }).collect()
        }
        None => {
            let mut end = 0;
            while let Some(child) = largest(blocks().filter(|block| PARENTS[*block] == Some(end)).collect()) {
                end = child;
            }
            let is_leaf = |block: usize| !PARENTS.contains(&Some(block));
            let share = |block: usize| match block {
                _ if block == end => 1.0,
                _ if PARENTS[block] == PARENTS[end] => 0.15,
                _ if is_leaf(block) => 0.05,
                _ => 0.0,
            };
            blocks().map(share).collect()
        }
    };
    let outside = squares.keys().filter(|name| !name.starts_with("layers.")).map(|name| (name.clone(), 1.0));
    let inside = shares.into_iter().enumerate().map(|(block, share)| (format!("layers.{block}"), share));
    inside.filter(|(_, share)| *share > 0.0).chain(outside).collect()
}

#[test]
fn choosing_every_node_gives_the_bytes_of_a_dense_step() {
    for passes in ["none", "v2", "all", "fuse-optimizer"] {
        for tied in [false, true] {
            let dense = Case { update: "dense", passes, tied, ..CASE };
            let all = Case { update: "topk:all", threads: 3, ..dense };
            let every = Case { update: "topk:9", ..all };
            let (mut dense, mut all, mut every) = (dense.trained(4), all.trained(4), every.trained(4));
            assert!(state(&mut dense) == state(&mut all), "topk:all under {passes}, tied {tied}");
            assert!(state(&mut dense) == state(&mut every), "topk:9 under {passes}, tied {tied}");
        }
    }
}

#[test]
fn the_chosen_nodes_are_those_of_a_plain_choice_on_the_host() {
    for passes in ["none", "v2", "all"] {
        for update in ["topk:1", "topk:4", "path"] {
            let mut trainer = Case { update, passes, ..CASE }.trainer();
            for _ in 0..6 {
                take_step(&mut trainer);
                let wanted = plain_choice(update, &squares(&mut trainer));
                trainer.read_choices();
                let step = trainer.choices.as_ref().unwrap().kept().last().unwrap();
                let names = trainer.tree().units().into_iter().map(|unit| unit.name);
                let chosen: BTreeMap<String, f32> =
                    names.zip(step.shares.iter().copied()).filter(|(_, share)| *share > 0.0).collect();
                assert_eq!(chosen, wanted, "{update} under {passes}, step {}", step.step);
            }
        }
    }
}

#[test]
fn a_path_ends_at_a_leaf_and_shares_the_step_by_nearness() {
    let mut trainer = Case { update: "path", ..CASE }.trained(6);
    trainer.read_choices();
    let units = trainer.tree().units();
    for step in trainer.choices.as_ref().unwrap().kept() {
        let shares: Vec<f32> = (0..9)
            .map(|block| step.shares[units.iter().position(|unit| unit.name == format!("layers.{block}")).unwrap()])
            .collect();
        let count = |share: f32| shares.iter().filter(|own| **own == share).count();
        assert_eq!([count(1.0), count(0.15), count(0.05), count(0.0)], [1, 2, 3, 3], "step {}", step.step);
        assert!([0, 1, 5].iter().all(|inner| shares[*inner] == 0.0), "step {}", step.step);
    }
}

#[test]
fn nodes_that_are_not_chosen_keep_their_bytes_and_their_step_counts() {
    for passes in ["none", "v2", "all"] {
        for update in ["topk:2", "path", "random:3"] {
            let mut trainer = Case { update, passes, ..CASE }.trainer();
            let mut counts = vec![0; trainer.parameters().len()];
            for _ in 0..6 {
                let before = state(&mut trainer);
                take_step(&mut trainer);
                let after = state(&mut trainer);
                trainer.read_choices();
                let shares = trainer.choices.as_ref().unwrap().kept().last().unwrap().shares.clone();
                let units = trainer.tree().units();
                for (parameter, (name, _)) in trainer.parameters().iter().enumerate() {
                    let unit = units.iter().position(|unit| unit.members.contains(&parameter)).unwrap();
                    if shares[unit] > 0.0 {
                        counts[parameter] += 1;
                        assert!(before[name][0] != after[name][0], "{name} was chosen by {update} under {passes}");
                    } else {
                        assert!(before[name] == after[name], "{name} moved by {update} under {passes}");
                    }
                }
                let own: Vec<u64> = trainer.node_steps().unwrap().into_iter().map(|(_, count)| count).collect();
                assert_eq!(own, counts, "{update} under {passes}");
            }
        }
    }
}

#[test]
fn lots_are_drawn_among_nodes_by_the_seed_and_the_step() {
    let drawn = |passes: &'static str, threads: usize| {
        let mut trainer = Case { update: "random:4", passes, threads, ..CASE }.trained(8);
        trainer.read_choices();
        let choices = trainer.choices.unwrap();
        choices.kept().iter().map(|step| step.shares.clone()).collect::<Vec<_>>()
    };
    let lots = drawn("v2", 2);
    // Embedding, norm and head in addition to the four.
    assert!(lots.iter().all(|shares| shares.iter().filter(|share| **share > 0.0).count() == 4 + 3));
    assert!(lots.windows(2).any(|pair| pair[0] != pair[1]));
    assert_eq!(lots, drawn("none", 1));
}

#[test]
fn a_record_is_kept_by_node() {
    let mut trainer = Case { update: "topk:1", ..CASE }.trained(3);
    trainer.read_choices();
    let distances = moved(&mut trainer, Start::Drawn(SEED)).unwrap();
    let record = trainer.choices.as_ref().unwrap().attribution_record("topk:1".into(), SEED, &distances);
    assert_eq!((record.nodes.len(), record.parameters.iter().sum::<u64>()), (9 + 3, model(false).parameters().total()));
    for (node, updates) in record.updates.iter().enumerate() {
        assert_eq!(record.moved[node] > Some(0.0), *updates > 0, "{}", record.nodes[node]);
    }
    let own = |name: &str| record.parameters[record.nodes.iter().position(|node| node == name).unwrap()];
    let all = 3 * (own("embed_tokens") + own("norm") + own("lm_head") + own("layers.0"));
    assert_eq!(record.updated_parameters, all, "one block and what lies outside of them at each of three steps");
}

#[test]
fn recomputed_nodes_train_the_same() {
    for passes in ["none", "all"] {
        let plain = Case { update: "dense", passes, ..CASE };
        let kept = state(&mut plain.trained(3));
        for recomputed in [1, 4, 9] {
            assert!(state(&mut Case { recomputed, ..plain }.trained(3)) == kept, "{recomputed} under {passes}");
        }
    }
}

#[test]
fn its_configuration_reads_back_and_a_wrong_one_is_refused() {
    let config = HfConfig::of(&model(true), 9);
    let text = config.to_json();
    let read = |text: &str| HfConfig::parse(text.as_bytes(), Path::new("config.json"));
    assert_eq!(read(&text).unwrap().model, config.model);
    for (from, to, want) in [
        ("\"num_hidden_layers\": 9", "\"num_hidden_layers\": 8", "number of nodes"),
        ("\"branching\"", "\"branches\"", "list of numbers"),
        ("    2,\n    3\n", "    2,\n    0\n", "list of numbers"),
    ] {
        assert!(text.contains(from), "{text}");
        let error = read(&text.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
}
