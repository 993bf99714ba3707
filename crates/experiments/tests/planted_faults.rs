//! Faults planted behind a list of passes, each of which the gate that is there for it must catch.

use headroom_engine::{DeviceSpec, Opening, Target};
use headroom_experiments::bench::{Bench, Plant, Setting, Variant};
use headroom_experiments::gates::{Answer, Gate, accuracy, difference};
use headroom_experiments::turns::{Clock, Patience, Speedup};
use headroom_experiments::validation::{outputs, validate};
use headroom_graph::pass::{Copy, Pass};
use headroom_graph::passes::{PassList, fp8};
use headroom_graph::{Category, Graph, GraphError, Op, Phase, Precision, TensorType, ValueId};
use headroom_training::checkpoint::Content;
use headroom_training::config::Size;
use headroom_training::data::BatchShape;
use headroom_training::optimizer::OptimizerConfig;
use headroom_training::program::{Keep, StepConfig};
use headroom_training::trainer::Trainer;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn nano() -> StepConfig {
    let size = Size::named("nano").unwrap();
    StepConfig {
        model: size.model(),
        shape: BatchShape { batch_size: 4, seq_len: size.seq_len },
        optimizer: OptimizerConfig { learning_rate: 1e-3, clip: 1.0, ..OptimizerConfig::default() },
        passes: PassList::none(),
        recomputed_layers: 0,
        precision: Precision::Fp32,
        target: Target::Cpu,
    }
}

const SETTING: Setting = Setting { seed: 42, device: DeviceSpec::Cpu, opening: Opening::threads(2) };
const CURVE_STEPS: usize = 10;

fn variant(rewrite: fn(&Graph) -> Result<Graph, GraphError>, before_step: fn(&mut Trainer)) -> Variant {
    let rewrite = Pass { name: "planted", rewrite };
    Variant { passes: PassList::version_2(), plant: Some(Plant { rewrite, before_step }) }
}

/// The gates of a variant that is as fast as `speedup` says.
fn gates(variant: &Variant, speedup: f64) -> Vec<Gate> {
    let speedup = Speedup { ratio: speedup, low: speedup, high: speedup, rounds: 1 };
    validate(&nano(), &SETTING, variant, CURVE_STEPS, &speedup, Some(1.0)).unwrap().gates
}

fn failed(gates: &[Gate]) -> Vec<&'static str> {
    gates.iter().filter(|gate| gate.answer == Answer::Fail).map(|gate| gate.name).collect()
}

fn nothing(_: &mut Trainer) {}

fn unchanged(graph: &Graph) -> Result<Graph, GraphError> {
    Ok(graph.clone())
}

#[test]
fn without_a_fault_every_gate_passes() {
    for list in [PassList::version_2(), PassList::all()] {
        let gates = gates(&Variant::of(&list), 1.1);
        assert_eq!(failed(&gates), Vec::<&str>::new(), "{gates:?}");
        assert_eq!(gates.len(), 6);
    }
    assert_eq!(failed(&gates(&variant(unchanged, nothing), 1.1)), Vec::<&str>::new());
}

#[test]
fn a_gradient_with_a_term_missing_is_not_accurate() {
    // The last sum of the backward pass loses its second term.
    fn rewrite(graph: &Graph) -> Result<Graph, GraphError> {
        let is_sum = |node: &headroom_graph::Node| node.phase == Phase::Backward && matches!(node.op, Op::Add(_));
        let last = graph.nodes().iter().rposition(is_sum).unwrap();
        let mut copy = Copy::new(graph);
        for (index, node) in graph.nodes().iter().enumerate() {
            match index == last {
                true => copy.redirect(node.outputs[0], copy.moved(node.inputs[0])),
                false => copy.node(node)?,
            }
        }
        copy.finish()
    }
    let gates = gates(&variant(rewrite, nothing), 1.1);
    assert!(failed(&gates).contains(&"accuracy"), "{gates:?}");
}

#[test]
fn a_parameter_without_a_gradient_is_missed() {
    // The gradient of the last norm is replaced by zeros, as by a kernel without a backward pass.
    fn rewrite(graph: &Graph) -> Result<Graph, GraphError> {
        let weight = graph.named("model.norm.weight").unwrap();
        let gradient = gradient_of(graph, weight).unwrap();
        let mut copy = Copy::new(graph);
        let zeros = copy.state("planted.zeros", graph.ty(gradient).clone(), Category::Temporaries);
        for node in graph.nodes() {
            copy.node(node)?;
            if node.outputs.contains(&gradient) {
                copy.redirect(gradient, zeros);
            }
        }
        copy.finish()
    }
    let gates = gates(&variant(rewrite, nothing), 1.1);
    assert!(failed(&gates).contains(&"every_parameter_has_a_gradient"), "{gates:?}");
}

/// What updates a parameter reads as its gradient, in one call for all.
fn gradient_of(graph: &Graph, weight: ValueId) -> Option<ValueId> {
    let update = graph.nodes().iter().find(|node| matches!(node.op, Op::AdamWAll(_)))?;
    let at = update.inputs.iter().position(|input| *input == weight)?;
    Some(update.inputs[at + 3])
}

#[test]
fn an_update_that_is_slightly_wrong_leaves_the_loss_curve() {
    // Loss and gradients of the first batch are exact; only the steps that follow are not.
    fn rewrite(graph: &Graph) -> Result<Graph, GraphError> {
        let mut copy = Copy::new(graph);
        for node in graph.nodes() {
            let mut node = node.clone();
            if let Op::AdamWAll(update) = &mut node.op {
                update.eps = 1e-3;
            }
            copy.node(&node)?;
        }
        copy.finish()
    }
    let gates = gates(&variant(rewrite, nothing), 1.1);
    assert_eq!(failed(&gates), ["loss_curve"], "{gates:?}");
}

#[test]
fn a_result_that_hangs_on_something_else_is_not_deterministic() {
    // What a race between threads would do: a weight that is a little different each time.
    fn before_step(trainer: &mut Trainer) {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        let drift = CALLS.fetch_add(1, Ordering::Relaxed) as f32 * 1e-7;
        trainer.write("model.norm.weight", Content::Weight, 0, &[1.0 + drift]);
    }
    let gates = gates(&variant(unchanged, before_step), 1.1);
    assert!(failed(&gates).contains(&"determinism"), "{gates:?}");
    assert!(!failed(&gates).contains(&"accuracy"), "{gates:?}");
}

#[test]
fn a_buffer_that_nobody_needs_is_too_much_memory() {
    fn rewrite(graph: &Graph) -> Result<Graph, GraphError> {
        let mut copy = Copy::new(graph);
        copy.state("planted.buffer", TensorType::f32(&[8 << 20]), Category::Temporaries);
        graph.nodes().iter().try_for_each(|node| copy.node(node))?;
        copy.finish()
    }
    let gates = gates(&variant(rewrite, nothing), 1.1);
    assert_eq!(failed(&gates), ["memory"], "{gates:?}");
}

#[test]
fn work_done_several_times_is_too_slow() {
    fn rewrite(graph: &Graph) -> Result<Graph, GraphError> {
        let mut copy = Copy::new(graph);
        for node in graph.nodes() {
            copy.node(node)?;
            if node.op.is_product() {
                for _ in 0..5 {
                    copy.add(node.op, &node.inputs)?;
                }
            }
        }
        copy.finish()
    }
    let slow = variant(rewrite, nothing);
    let mut baseline = Bench::new(&nano(), &Variant::baseline(), Keep::OnlyTheLoss, &SETTING).unwrap();
    let mut bench = Bench::new(&nano(), &slow, Keep::OnlyTheLoss, &SETTING).unwrap();
    // Other programs may get in the way of eight rounds, and the gate then rightly says nothing: more of them tell.
    let mut seen = Vec::new();
    for rounds in [8, 24, 72] {
        let patience = Patience { rounds, most_rounds: rounds, time: Duration::from_secs(60) };
        let measured = Clock::start(patience, 1).compare(&mut baseline, &mut bench).unwrap();
        let gates = validate(&nano(), &SETTING, &slow, CURVE_STEPS, &measured, None).unwrap().gates;
        assert!(!failed(&gates).contains(&"accuracy"), "{gates:?}");
        if failed(&gates).contains(&"throughput") {
            return;
        }
        seen.push(measured);
    }
    panic!("six times the products pass the throughput gate: {seen:?}");
}

/// The accuracy of steps in eight bits against single precision, by the tolerance that they state.
fn accuracy_in_eight_bits(rewrite: fn(&Graph) -> Result<Graph, GraphError>) -> Gate {
    let eight = StepConfig { precision: Precision::Fp8, ..nano() };
    let want = outputs(&nano(), &Variant::baseline(), &SETTING).unwrap();
    let have = outputs(&eight, &variant(rewrite, nothing), &SETTING).unwrap();
    accuracy(&[difference(&want, &have)], fp8::GRADIENT_TOLERANCE, "nano")
}

#[test]
fn a_wrong_scale_is_not_accurate() {
    let gate = accuracy_in_eight_bits(unchanged);
    assert!(gate.passed(), "{gate:?}");

    // Every product takes the scale of its right operand for that of its left one.
    fn another_tensors_scale(graph: &Graph) -> Result<Graph, GraphError> {
        let mut copy = Copy::new(graph);
        for node in graph.nodes() {
            let mut node = node.clone();
            if let Op::Fp8Product(_) = node.op {
                node.inputs[2] = node.inputs[3];
            }
            copy.node(&node)?;
        }
        copy.finish()
    }
    let gate = accuracy_in_eight_bits(another_tensors_scale);
    assert!(!gate.passed(), "{gate:?}");

    // Scales that leave most of the range unused, and some that most values are beyond.
    fn with_margin<const MARGIN: i32>(graph: &Graph) -> Result<Graph, GraphError> {
        let mut copy = Copy::new(graph);
        for node in graph.nodes() {
            let mut node = node.clone();
            if let Op::Quantize(rounding) = &mut node.op {
                rounding.margin = MARGIN;
            }
            copy.node(&node)?;
        }
        copy.finish()
    }
    for rewrite in [with_margin::<18>, with_margin::<-4>] {
        let gate = accuracy_in_eight_bits(rewrite);
        assert!(!gate.passed(), "{gate:?}");
    }
}
