//! The step of one of several ranks, before it runs: what is exchanged and when, what each rank keeps, and what is
//! refused.

use headroom_engine::{DeviceSpec, EngineError, Opening, Target};
use headroom_graph::ops::collective::shard_type;
use headroom_graph::passes::PassList;
use headroom_graph::{Category, GraphError, Op, Phase, Precision};
use headroom_training::data::BatchShape;
use headroom_training::models::Size;
use headroom_training::optimizer::{Method, OptimizerConfig};
use headroom_training::program::{Keep, StepConfig, TrainingProgram, evaluation_program, training_program};

fn step(passes: &str, ranks: usize) -> StepConfig {
    StepConfig {
        model: Size::named("nano").unwrap().model(),
        shape: BatchShape { batch_size: 2, seq_len: 8 },
        optimizer: OptimizerConfig::default(),
        passes: PassList::parse(passes).unwrap().among(ranks),
        recomputed_layers: 0,
        precision: Precision::Fp32,
        target: Target::Cpu,
    }
}

fn made(passes: &str, ranks: usize) -> TrainingProgram {
    training_program(&step(passes, ranks), Keep::GradientNorm).unwrap()
}

fn count(program: &TrainingProgram, wanted: impl Fn(&Op) -> bool) -> usize {
    program.program.graph.nodes().iter().filter(|node| wanted(&node.op)).count()
}

#[test]
fn one_rank_has_the_graph_that_it_had() {
    for passes in ["none", "v2", "all", "v2,+zero1"] {
        let plain = passes.split(',').next().unwrap();
        assert_eq!(made(passes, 1).program.graph, made(plain, 1).program.graph, "{passes}");
        assert_eq!(made(passes, 1).ranks, 1);
    }
}

#[test]
fn every_gradient_is_summed_once_and_the_loss_in_the_forward_pass() {
    for (passes, zero1) in [("none", false), ("none,+zero1", true)] {
        let program = made(passes, 3);
        let sums = count(&program, |op| matches!(op, Op::AllReduce(_)));
        let scattered = count(&program, |op| matches!(op, Op::ReduceScatter(_)));
        let parameters = program.trained.len();
        // The loss and, with sharded gradients, the squares for their norm.
        let want = if zero1 { (2, parameters) } else { (1 + parameters, 0) };
        assert_eq!((sums, scattered), want, "{passes}");
        let first = program.program.graph.nodes().iter().find(|node| matches!(node.op, Op::AllReduce(_))).unwrap();
        assert_eq!(first.phase, Phase::Forward);
        assert_eq!(first.outputs[0], program.forward.loss);
    }
}

#[test]
fn a_bucket_is_one_message_and_overlap_waits_for_each() {
    for passes in ["v2", "all", "v2,+zero1", "all,+zero1"] {
        let program = made(passes, 2);
        let started = count(&program, |op| match op {
            Op::AllReduce(op) => op.later,
            Op::ReduceScatter(op) => op.later,
            _ => false,
        });
        assert_eq!(started, 1, "{passes}: nano has less than a bucket");
        assert_eq!(count(&program, |op| matches!(op, Op::Arrive(_))), started, "{passes}");
    }
}

#[test]
fn small_buckets_are_several_messages_under_way() {
    for passes in ["v2,bucket=64KiB", "v2,+zero1,bucket=64KiB"] {
        let program = made(passes, 3);
        let started = count(&program, |op| match op {
            Op::AllReduce(op) => op.later,
            Op::ReduceScatter(op) => op.later,
            _ => false,
        });
        assert!(started > 3, "{passes}: {started} messages");
        assert_eq!(count(&program, |op| matches!(op, Op::Arrive(_))), started, "{passes}");
    }
}

#[test]
fn a_rank_keeps_its_shard_of_the_moments() {
    for ranks in [2, 3, 8] {
        let (whole, sharded) = (made("v2", ranks), made("v2,+zero1", ranks));
        let graph = &whole.program.graph;
        let want: usize = whole.trained.iter().map(|one| 2 * shard_type(graph.ty(one.parameter), ranks).bytes()).sum();
        let kept = |program: &TrainingProgram| -> usize {
            let graph = &program.program.graph;
            let state = headroom_graph::Source::State(Category::OptimizerState);
            graph.values().iter().filter(|value| value.source == state).map(|value| value.ty.bytes()).sum()
        };
        assert_eq!(kept(&sharded), want, "{ranks} ranks");
        assert!(kept(&sharded) * ranks < kept(&whole) + kept(&whole) / 20, "{ranks} ranks");
        assert!(sharded.program.plan.arena_bytes < whole.program.plan.arena_bytes, "{ranks} ranks");
    }
}

#[test]
fn what_would_drift_apart_is_refused() {
    let fp8 = StepConfig { precision: Precision::Fp8, ..step("v2", 2) };
    let Err(GraphError::Invalid { what, .. }) = training_program(&fp8, Keep::OnlyTheLoss) else {
        panic!("scales are each rank's own")
    };
    assert!(what.contains("from values of one rank alone"), "{what}");
    let optimizer = OptimizerConfig { method: Method::Muon { momentum: 0.95 }, ..OptimizerConfig::default() };
    let muon = StepConfig { optimizer, ..step("v2,+zero1", 2) };
    let error = training_program(&muon, Keep::OnlyTheLoss).err().unwrap().to_string();
    assert!(error.contains("muon's are not"), "{error}");
}

#[test]
fn a_step_of_several_ranks_needs_them() {
    let program = made("v2", 2).program;
    let error = DeviceSpec::Cpu.open(&Opening::threads(1), &[program]).err();
    assert!(matches!(error, Some(EngineError::NoRanks)), "{error:?}");
}

/// On a GPU in half precision, products read copies of the weights: whatever updates a weight must update its copy.
#[test]
fn copies_in_half_precision_follow_the_weights_on_every_rank() {
    for precision in [Precision::Bf16, Precision::Bf16Pure] {
        for passes in ["none", "v2", "none,+zero1", "v2,+zero1", "all,+zero1"] {
            let config = StepConfig { precision, target: Target::Cuda, ..step(passes, 3) };
            let program = training_program(&config, Keep::GradientNorm).unwrap().program;
            let graph = &program.graph;
            let updated = |name: &str| {
                let value = graph.named(name).unwrap();
                let writes = |op: &Op, inputs: &[_]| op.updates().iter().any(|&at| inputs[at] == value);
                graph.nodes().iter().filter(|node| writes(&node.op, &node.inputs)).count()
            };
            let names: Vec<String> = graph.values().iter().map(|value| value.name.to_string()).collect();
            let copies: Vec<&String> = names.iter().filter(|name| name.starts_with("half.")).collect();
            assert_eq!(copies.is_empty(), precision == Precision::Bf16Pure, "{passes}");
            for name in copies {
                assert_eq!(updated(name), 1, "{name} under {passes}");
            }
            for parameter in graph.parameters() {
                assert_eq!(updated(&graph.get(parameter).name), 1, "{passes}");
            }
            // A shard has the dtype of the weight that it is part of.
            for name in names.iter().filter_map(|name| name.strip_prefix("shard.")) {
                let dtype = |name: &str| graph.ty(graph.named(name).unwrap()).dtype;
                assert_eq!(dtype(&format!("shard.{name}")), dtype(name), "{name} under {passes}");
            }
            let evaluated = evaluation_program(&config, config.shape, &program);
            assert!(evaluated.is_ok(), "{passes}: {:?}", evaluated.err());
        }
    }
}
