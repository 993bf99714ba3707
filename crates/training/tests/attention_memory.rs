//! How attention memory grows with the sequence: linearly with tiles, quadratically without.

use headroom_engine::Target;
use headroom_engine::cpu::Cpu;
use headroom_graph::passes::PassList;
use headroom_graph::{Graph, Op, Precision, Source, ValueId};
use headroom_training::data::BatchShape;
use headroom_training::models::Size;
use headroom_training::optimizer::OptimizerConfig;
use headroom_training::program::{Keep, StepConfig, TrainingProgram, training_program};

const SEQUENCES: [usize; 4] = [256, 512, 1024, 2048];

#[test]
fn attention_needs_memory_as_the_sequence_grows_with_tiles_and_as_its_square_without() {
    let flash = exponent(&PassList::version_2());
    assert!((0.9..=1.1).contains(&flash), "with flash-attention memory grows with the sequence to the {flash:.2}");
    let naive = exponent(&PassList::version_2().without("flash-attention"));
    assert!((1.8..=2.1).contains(&naive), "without it memory grows with the sequence to the {naive:.2}");
}

#[test]
fn small_at_2048_needs_at_most_half_of_version_1s_memory() {
    let bytes = |passes: PassList| {
        let program = step(2048, passes).program;
        program.plan.arena_bytes + Cpu::scratch_bytes_for(2, std::slice::from_ref(&program))
    };
    let (all, first) = (bytes(PassList::all()), bytes(PassList::none()));
    assert!(2 * all <= first, "all passes need {all} bytes, Version 1 {first}");
}

/// The slope in log-log space, by least squares.
fn exponent(passes: &PassList) -> f64 {
    let points = SEQUENCES.map(|seq| ((seq as f64).ln(), (attention_peak(&step(seq, passes.clone())) as f64).ln()));
    let mean = |pick: fn(&(f64, f64)) -> f64| points.iter().map(pick).sum::<f64>() / points.len() as f64;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let covariance: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    covariance / points.iter().map(|point| (point.0 - x).powi(2)).sum::<f64>()
}

fn step(seq_len: usize, passes: PassList) -> TrainingProgram {
    let optimizer = OptimizerConfig::default();
    let (model, shape) = (Size::named("small").unwrap().model(), BatchShape { batch_size: 1, seq_len });
    let (precision, target) = (Precision::Fp32, Target::Cpu);
    let step = StepConfig { model, shape, optimizer, passes, recomputed_layers: 0, precision, target };
    training_program(&step, Keep::OnlyTheLoss).unwrap()
}

/// Peak bytes of the values that attention writes or reads.
fn attention_peak(training: &TrainingProgram) -> usize {
    let (graph, plan) = (&training.program.graph, &training.program.plan);
    let of_attention: Vec<ValueId> = graph
        .value_ids()
        .filter(|id| matches!(graph.get(*id).source, Source::Node(_)) && touched_by_attention(graph, *id))
        .collect();
    let alive = |call: usize| -> usize {
        let there = |id: &&ValueId| plan.buffer(**id).is_some_and(|buffer| buffer.alive.contains(&call));
        of_attention.iter().filter(there).map(|id| graph.ty(*id).bytes()).sum()
    };
    (0..plan.calls.len()).map(alive).max().unwrap_or(0)
}

fn touched_by_attention(graph: &Graph, id: ValueId) -> bool {
    let is_attention = |op: &Op| {
        matches!(
            op,
            Op::AttentionScores(_)
                | Op::AttentionMix(_)
                | Op::AttentionMixBack(_)
                | Op::CausalSoftmax(_)
                | Op::CausalSoftmaxGrad(_)
                | Op::FlashAttention(_)
                | Op::FlashAttentionGrad(_)
        )
    };
    graph.nodes().iter().any(|node| is_attention(&node.op) && (node.inputs.contains(&id) || node.outputs.contains(&id)))
}
