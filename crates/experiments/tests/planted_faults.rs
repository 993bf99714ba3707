//! Faults planted in a list of passes, each of which must be caught by the gate meant for it.

use headroom_engine::{DeviceSpec, Opening, Target};
use headroom_experiments::bench::{Bench, PlantedFault, Setting, Variant};
use headroom_experiments::gates::{Answer, Gate};
use headroom_experiments::ladder::Watcher;
use headroom_experiments::precisions::{Asked, climb, gates_of, proved};
use headroom_experiments::turns::{Clock, Patience, Speedup};
use headroom_experiments::validation::{Curves, outputs_and_curve, validate};
use headroom_graph::cost::Rates;
use headroom_graph::pass::{Copy, Pass};
use headroom_graph::passes::PassList;
use headroom_graph::{Category, Graph, GraphError, Op, Phase, Precision, TensorType, ValueId};
use headroom_training::checkpoint::Content;
use headroom_training::data::BatchShape;
use headroom_training::models::Size;
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

/// No losses are known.
fn curves() -> Curves<'static> {
    Curves { steps: CURVE_STEPS, ..Curves::default() }
}

fn variant(rewrite: fn(&Graph) -> Result<Graph, GraphError>, before_step: fn(&mut Trainer)) -> Variant {
    let rewrite = Pass { name: "planted", rewrite };
    Variant { passes: PassList::version_2(), plant: Some(PlantedFault { rewrite, before_step }) }
}

/// The gates of a variant with this speed-up.
fn gates(variant: &Variant, speedup: f64) -> Vec<Gate> {
    let speedup = Speedup { ratio: speedup, low: speedup, high: speedup, rounds: 1 };
    validate(&nano(), &SETTING, variant, curves(), &speedup, Some(1.0)).unwrap().gates
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

/// The gradient of a parameter, as read by the single call that updates all of them.
fn gradient_of(graph: &Graph, weight: ValueId) -> Option<ValueId> {
    let update = graph.nodes().iter().find(|node| matches!(node.op, Op::AdamWAll(_)))?;
    let at = update.inputs.iter().position(|input| *input == weight)?;
    Some(update.inputs[at + 3])
}

#[test]
fn an_update_that_is_slightly_wrong_leaves_the_loss_curve() {
    // Loss and gradients of the first batch are exact; only the following steps are not.
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
    // Mimics a data race: a weight that is slightly different each time.
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
    // Other programs may disturb eight rounds, and the gate is then rightly undecided: more rounds settle it.
    let mut seen = Vec::new();
    for rounds in [8, 24, 72] {
        let patience = Patience { rounds, most_rounds: rounds, time: Duration::from_secs(60) };
        let measured = Clock::start(patience, 1).compare(&mut baseline, &mut bench).unwrap();
        let gates = validate(&nano(), &SETTING, &slow, curves(), &measured, None).unwrap().gates;
        assert!(!failed(&gates).contains(&"accuracy"), "{gates:?}");
        if failed(&gates).contains(&"throughput") {
            return;
        }
        seen.push(measured);
    }
    panic!("six times the products pass the throughput gate: {seen:?}");
}

/// Every product uses the scale of its right operand for its left one.
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

/// Scales that leave most of the range unused, or that most values exceed.
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

/// The gates for eight bits as a rung of the ladder, with an ideal speed-up; on a GPU if `HEADROOM_TEST_DEVICE` says
/// cuda.
fn gates_of_eight_bits(rewrite: fn(&Graph) -> Result<Graph, GraphError>) -> Vec<Gate> {
    let device: DeviceSpec =
        std::env::var("HEADROOM_TEST_DEVICE").map_or(DeviceSpec::Cpu, |name| name.parse().unwrap());
    let (setting, single) = (Setting { device, ..SETTING }, StepConfig { target: device.target(), ..nano() });
    let list = Variant::of(&PassList::version_2());
    let reference = outputs_and_curve(&single, &list, &setting, (CURVE_STEPS, &[])).unwrap();
    let eight = StepConfig { precision: Precision::Fp8, ..single };
    let faster = Speedup { ratio: 1.5, low: 1.4, high: 1.6, rounds: 8 };
    gates_of(&eight, &setting, &variant(rewrite, nothing), &reference, (CURVE_STEPS, &[]), (&faster, (100, 100)))
        .unwrap()
}

#[test]
fn a_wrong_scale_is_caught_by_the_rung_of_eight_bits() {
    let gates = gates_of_eight_bits(unchanged);
    assert_eq!((failed(&gates), gates.len()), (vec![], 7), "{gates:?}");
    for rewrite in [another_tensors_scale, with_margin::<18>, with_margin::<-4>] {
        let gates = gates_of_eight_bits(rewrite);
        assert!(failed(&gates).contains(&"gradients"), "{gates:?}");
        println!("caught: {gates:?}");
    }
}

#[test]
fn precisions_climb_on_the_fastest_proved_before_them() {
    struct Silent;
    impl Watcher for Silent {
        fn doing(&mut self, _: &str) {}
    }
    let rates = Rates { product_flops: 1e11, bytes: 1e10, call_seconds: 1e-6 };
    let faster = Rates { product_flops: 4e11, ..rates };
    let patience = Patience { rounds: 4, most_rounds: 4, time: Duration::from_secs(2) };
    let asked = Asked {
        precisions: &[(Precision::Fp32, rates), (Precision::Bf16, faster), (Precision::Fp8, faster)],
        patience,
        curve_steps: CURVE_STEPS,
        known_curve: &[],
    };
    let rungs = climb(&nano(), &SETTING, &Variant::of(&PassList::all()), &asked, &mut Silent).unwrap();
    assert_eq!(rungs.iter().map(|rung| rung.precision).collect::<Vec<_>>(), [Precision::Bf16, Precision::Fp8]);
    let bf16 = if rungs[0].is_proved() { Precision::Bf16 } else { Precision::Fp32 };
    assert_eq!((rungs[0].over, rungs[1].over), (Precision::Fp32, bf16));
    assert!(rungs[0].predicted > 1.0, "products at four times the rate: {}", rungs[0].predicted);
    for rung in &rungs {
        let wrong: Vec<&str> =
            failed(&rung.gates).into_iter().filter(|name| !["throughput", "memory"].contains(name)).collect();
        assert!(wrong.is_empty(), "{}: {:?}", rung.precision, rung.gates);
        // A rung that is not shown to be faster is not accepted, however accurate it is.
        let is_faster = rung.measured.low >= 1.0;
        assert!(is_faster || !rung.is_proved());
    }
    let want = if rungs[1].is_proved() { Precision::Fp8 } else { bf16 };
    assert_eq!(proved(&rungs), want);
}
