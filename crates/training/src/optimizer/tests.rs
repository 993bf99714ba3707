//! The nodes that each setting adds to a step, and the learning rates.

use super::*;
use crate::schedule::Shape;
use headroom_graph::{Op, Part, Role};

/// The optimizer's ops for a graph with token and position tables, a tall and a wide matrix of a block, a norm's vector
/// and a head.
struct OptimizerGraph {
    graph: Graph,
    norm: Option<ValueId>,
}

const WEIGHTS: [(&str, &[usize], Role); 6] = [
    ("embed", &[9, 4], Role::Embedding),
    ("positions", &[5, 4], Role::Position),
    ("up", &[6, 4], Role::Up),
    ("down", &[4, 6], Role::Down),
    ("norm", &[4], Role::Norm),
    ("head", &[9, 4], Role::Head),
];

fn made(config: &OptimizerConfig, norm: Norm) -> OptimizerGraph {
    let mut graph = Graph::new();
    let weight = |graph: &mut Graph, (name, sizes, role): (&str, &[usize], Role)| {
        graph.weight(name, TensorType::f32(sizes), Part::new(name, role))
    };
    let parameters: Vec<ValueId> = WEIGHTS.iter().map(|one| weight(&mut graph, *one)).collect();
    let gradient = |graph: &mut Graph, (name, sizes): (&str, &[usize])| {
        graph.input(&format!("gradient.{name}"), TensorType::f32(sizes))
    };
    let gradients: Vec<ValueId> = WEIGHTS.iter().map(|one| gradient(&mut graph, (one.0, one.1))).collect();
    let norm = optimize(&mut graph, config, &parameters, &gradients, Among::Parameters, norm).unwrap();
    OptimizerGraph { graph, norm }
}

impl OptimizerGraph {
    fn count(&self, name: &str) -> usize {
        self.graph.nodes().iter().filter(|node| node.op.name() == name).count()
    }

    fn inputs_of(&self, name: &str) -> Vec<usize> {
        self.graph.nodes().iter().filter(|node| node.op.name() == name).map(|node| node.inputs.len()).collect()
    }

    /// Kinds of tensors kept for each weight.
    fn kept(&self) -> [Vec<StateTensor>; 6] {
        WEIGHTS.map(|(name, ..)| Trained::find(&self.graph, self.graph.named(name).unwrap()).kinds())
    }
}

fn with(change: impl FnOnce(&mut OptimizerConfig)) -> OptimizerConfig {
    let mut config = OptimizerConfig::default();
    change(&mut config);
    config
}

#[test]
fn adamw_is_one_node_per_parameter_and_nothing_else() {
    let made = made(&OptimizerConfig::default(), Norm::WhereClipped);
    assert_eq!((made.count("adamw"), made.graph.nodes().len(), made.norm), (6, 6, None));
    assert_eq!(made.kept(), [(); 6].map(|()| vec![FIRST_MOMENT, SECOND_MOMENT]));
    assert_eq!(made.inputs_of("adamw"), [5; 6]);
    let up = made.graph.named("up").unwrap();
    let found = Trained::find(&made.graph, up);
    assert_eq!(found.state(SECOND_MOMENT), made.graph.named("second_moment.up"));
    assert_eq!((found.parameter, found.state(MOMENTUM)), (up, None));
}

#[test]
fn gradients_are_measured_where_they_are_clipped_or_watched() {
    let clipped = made(&with(|config| config.clip = 1.0), Norm::WhereClipped);
    assert_eq!((clipped.count("squared_norm"), clipped.count("clip_scale"), clipped.count("gradient_norm")), (6, 1, 0));
    assert_eq!(clipped.inputs_of("adamw"), [6; 6], "every update is told the factor");
    let (_, node) = clipped.graph.maker(clipped.norm.unwrap()).unwrap();
    assert_eq!((node.op, node.outputs[1]), (Op::from(ClipScale { max_norm: 1.0 }), clipped.norm.unwrap()));

    let watched = made(&OptimizerConfig::default(), Norm::Always);
    assert_eq!((watched.count("squared_norm"), watched.count("gradient_norm")), (0, 1));
    let (_, node) = watched.graph.maker(watched.norm.unwrap()).unwrap();
    assert_eq!((node.op.name(), node.inputs.len()), ("gradient_norm", 6));
    // Clipping has already computed it.
    assert_eq!(made(&with(|config| config.clip = 1.0), Norm::Always).count("gradient_norm"), 0);
}

#[test]
fn sums_of_several_batches_are_kept_and_set_back() {
    let once = made(&OptimizerConfig::default(), Norm::WhereClipped);
    assert_eq!((once.count("accumulate"), once.count("zero")), (0, 0));
    let summed = made(&with(|config| config.accumulation = 2), Norm::WhereClipped);
    assert_eq!((summed.count("accumulate"), summed.count("adamw"), summed.count("zero")), (6, 6, 6));
    // The update reads the sum, not the last batch's gradient.
    let sum = summed.graph.named("gradient_sum.up").unwrap();
    let reads = |name: &str| {
        summed.graph.nodes().iter().filter(|node| node.op.name() == name && node.inputs.contains(&sum)).count()
    };
    assert_eq!(["accumulate", "adamw", "zero"].map(reads), [1, 1, 1]);
    let gradient = summed.graph.named("gradient.up").unwrap();
    assert_eq!(summed.graph.uses(gradient), 1);
}

#[test]
fn a_choice_has_its_own_rates_for_every_parameter() {
    let made = made(&OptimizerConfig::updating("topk:2".parse().unwrap()), Norm::WhereClipped);
    assert_eq!((made.count("choose"), made.count("squared_norm"), made.count("clip_scale")), (1, 6, 0));
    let sizes = |name: &str| made.graph.ty(made.graph.named(name).unwrap()).sizes().to_vec();
    assert_eq!((sizes(CHOICE_TREE), sizes(CHOICE_COUNTS)), (vec![6, 3], vec![6]));
    assert_eq!(sizes(CHOICE_LOG), [LOG_ROWS, 12]);
    let chosen = made.graph.nodes().iter().find(|node| node.op.name() == "choose").unwrap();
    for (at, node) in made.graph.nodes().iter().filter(|node| node.op.name() == "adamw").enumerate() {
        assert_eq!(node.inputs[4], chosen.outputs[at]);
    }
}

#[test]
fn sgd_keeps_momentum_only_where_there_is_some() {
    let of = |momentum| made(&with(|config| config.method = Method::Sgd { momentum }), Norm::WhereClipped);
    assert_eq!((of(0.9).kept()[2].clone(), of(0.9).inputs_of("sgd")), (vec![MOMENTUM], vec![4; 6]));
    assert_eq!((of(0.0).kept()[2].clone(), of(0.0).inputs_of("sgd")), (vec![], vec![3; 6]));
}

#[test]
fn muon_takes_the_matrices_of_blocks_and_the_smaller_gram_matrix() {
    let made = made(&with(|config| config.method = Method::Muon { momentum: 0.95 }), Norm::WhereClipped);
    let adamw = vec![FIRST_MOMENT, SECOND_MOMENT];
    assert_eq!(made.kept(), [adamw.clone(), adamw.clone(), vec![MOMENTUM], vec![MOMENTUM], adamw.clone(), adamw]);
    assert_eq!((made.count("adamw"), made.count("muon_momentum"), made.count("muon_update")), (4, 2, 2));
    // Five rounds of three products each, for both; no Gram matrix is larger than 4 by 4.
    assert_eq!(made.count("matmul"), 30);
    let products = made.graph.nodes().iter().filter(|node| node.op.name() == "matmul");
    let largest = products.map(|node| made.graph.ty(node.outputs[0]).elements()).max();
    assert_eq!(largest, Some(24), "the product with the matrix itself");
    let scales = made.graph.nodes().iter().filter_map(|node| match node.op {
        Op::MuonUpdate(update) => Some(update.scale),
        _ => None,
    });
    assert_eq!(scales.collect::<Vec<_>>(), [0.2 * 6f64.sqrt(); 2]);
}

#[test]
fn methods_are_known_by_their_names() {
    for method in Method::ALL {
        assert_eq!(method.to_string().parse(), Ok(method));
    }
    let error = "adam".parse::<Method>().unwrap_err();
    assert_eq!(error, "no optimizer is called `adam` (choose from adamw, sgd, muon)");
    assert_eq!(Method::ALL.map(Method::torch_name), ["AdamW", "SGD", "Muon"]);
    assert_eq!(Method::ALL.map(Method::momentum), [None, Some(0.9), Some(0.95)]);
    let other = Method::ALL.map(|method| method.with_momentum(0.5).momentum());
    assert_eq!(other, [None, Some(0.5), Some(0.5)]);
}

#[test]
fn updates_are_known_by_their_names() {
    for text in ["dense", "topk:2", "path"] {
        assert_eq!(text.parse::<Update>().unwrap().to_string(), text);
    }
    assert!("topk".parse::<Update>().is_err());
    assert_eq!(Update::Dense.rule(), None);
    let rule = Rule::TopK(2);
    assert_eq!(Update::Chosen { rule, seed: 3 }.rule(), Some(rule));
}

#[test]
fn rates_follow_the_schedule_and_correct_the_first_steps() {
    let config = with(|config| {
        config.learning_rate = 0.5;
        config.schedule = Schedule { shape: Shape::Linear, warmup_steps: 2, ..Schedule::default() };
    });
    let rates = |step| config.learning_rate_at(step, 6);
    assert_eq!([rates(1), rates(2), rates(3), rates(5)], [0.25, 0.5, 0.5, 0.25]);
    let [rate, first, second] = config.rates_at(1, 6);
    assert!(rate == 0.25 && (first - 0.1).abs() < 1e-6 && (second - 0.001f32.sqrt()).abs() < 1e-6);
    let [_, first, _] = config.rates_at(2, 6);
    assert!((first - 0.19).abs() < 1e-6);
}
