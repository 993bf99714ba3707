//! A small model's step: the graph after the passes, the placement of every value, and the predicted time.

use std::collections::BTreeMap;
use std::fmt::Write;

use headroom_graph::cost::{Link, Rates, predicted_among_ranks, predicted_step_seconds};
use headroom_graph::ops::quantize::Scaling;
use headroom_graph::pass::apply;
use headroom_graph::passes::parallel::{Parallel, parallel};
use headroom_graph::passes::{OFFERED, PassList, checkpoint, fp8, layers};
use headroom_graph::{
    Category, DType, Graph, GraphError, Layout, Op, Part, Phase, Plan, Role, TensorType, ValueId, differentiate,
};
use insta::assert_snapshot;

const LAYERS: usize = 2;
const HIDDEN: usize = 32;
const KEYS: usize = 16;
const INTERMEDIATE: usize = 48;
const VOCABULARY: usize = 64;
const BATCH: usize = 2;
const SEQUENCE: usize = 8;

fn op(name: &str, attributes: &[(&str, &str)]) -> Op {
    Op::parse(name, attributes).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Two LLaMA blocks of two heads and one key head, with their loss.
fn forward() -> Result<Graph, GraphError> {
    let mut graph = Graph::new();
    let ids = TensorType::i32(&[BATCH, SEQUENCE]);
    let (input_ids, targets) = (graph.input("input_ids", ids.clone()), graph.input("targets", ids));
    let table = TensorType::f32(&[SEQUENCE, 8]);
    let (cos, sin) = (graph.constant("rope.cos", table.clone()), graph.constant("rope.sin", table));
    fn weight(graph: &mut Graph, module: &str, role: Role, sizes: &[usize]) -> ValueId {
        graph.enter_as(module, Phase::Forward, role);
        graph.weight(&format!("{module}.weight"), TensorType::f32(sizes), Part::new(module, role))
    }
    fn norm(graph: &mut Graph, module: &str, x: ValueId) -> Result<ValueId, GraphError> {
        let weight = weight(graph, module, Role::Norm, &[HIDDEN]);
        graph.add_one(op("rms_norm", &[("eps", "0.000001")]), &[x, weight])
    }
    fn linear(
        graph: &mut Graph,
        module: &str,
        role: Role,
        x: ValueId,
        sizes: [usize; 2],
    ) -> Result<ValueId, GraphError> {
        let weight = weight(graph, module, role, &[sizes[1], sizes[0]]);
        graph.add_one(op("matmul", &[("form", "nt")]), &[x, weight])
    }
    let embedding = weight(&mut graph, "embed_tokens", Role::Embedding, &[VOCABULARY, HIDDEN]);
    let mut x = graph.add_one(op("embedding", &[]), &[input_ids, embedding])?;
    for layer in 0..LAYERS {
        let at = |part: &str| format!("layers.{layer}.{part}");
        let g = &mut graph;
        let normed = norm(g, &at("input_layernorm"), x)?;
        let q = linear(g, &at("self_attn.q_proj"), Role::Query, normed, [HIDDEN, HIDDEN])?;
        let k = linear(g, &at("self_attn.k_proj"), Role::Key, normed, [HIDDEN, KEYS])?;
        let v = linear(g, &at("self_attn.v_proj"), Role::Value, normed, [HIDDEN, KEYS])?;
        g.enter_as(&at("self_attn"), Phase::Forward, Role::Attention);
        let q = g.add_one(op("rope", &[("heads", "2"), ("turn", "forward")]), &[q, cos, sin])?;
        let k = g.add_one(op("rope", &[("heads", "1"), ("turn", "forward")]), &[k, cos, sin])?;
        let shape = [("heads", "2"), ("kv_heads", "1"), ("seq", "8"), ("scale", "0.25")];
        let scores = g.add_one(op("attention_scores", &shape), &[q, k])?;
        let shares = g.add_one(op("causal_softmax", &[]), &[scores])?;
        let plain = [("heads", "2"), ("kv_heads", "1"), ("seq", "8"), ("scale", "1")];
        let mixed = g.add_one(op("attention_mix", &plain), &[shares, v])?;
        let projected = linear(g, &at("self_attn.o_proj"), Role::Output, mixed, [HIDDEN, HIDDEN])?;
        g.enter_as(&format!("layers.{layer}"), Phase::Forward, Role::Residual);
        x = g.add_one(op("add", &[]), &[x, projected])?;
        let normed = norm(g, &at("post_attention_layernorm"), x)?;
        let gate = linear(g, &at("mlp.gate_proj"), Role::Gate, normed, [HIDDEN, INTERMEDIATE])?;
        let up = linear(g, &at("mlp.up_proj"), Role::Up, normed, [HIDDEN, INTERMEDIATE])?;
        g.enter_as(&at("mlp"), Phase::Forward, Role::Activation);
        let gate = g.add_one(op("silu", &[]), &[gate])?;
        let gated = g.add_one(op("mul", &[]), &[gate, up])?;
        let down = linear(g, &at("mlp.down_proj"), Role::Down, gated, [INTERMEDIATE, HIDDEN])?;
        g.enter_as(&format!("layers.{layer}"), Phase::Forward, Role::Residual);
        x = g.add_one(op("add", &[]), &[x, down])?;
    }
    let normed = norm(&mut graph, "norm", x)?;
    let logits = linear(&mut graph, "lm_head", Role::Head, normed, [HIDDEN, VOCABULARY])?;
    graph.enter_as("loss", Phase::Forward, Role::Loss);
    let loss = graph.add_one(op("cross_entropy", &[]), &[logits, targets])?;
    graph.output("loss", loss);
    graph.input("loss_gradient", TensorType::f32(&[1]));
    graph.validate("building")?;
    Ok(graph)
}

/// The forward pass with its gradient and a clipped AdamW, under a list of passes.
fn step(passes: &PassList, clips: bool) -> Result<Graph, GraphError> {
    let (mut graph, _) = apply(forward()?, &passes.on_forward())?;
    let parameters = graph.parameters();
    let loss = (graph.output_named("loss").unwrap(), graph.named("loss_gradient").unwrap());
    let gradients = differentiate(&mut graph, &[loss], &parameters)?;
    let mut moments = Vec::new();
    for &parameter in &parameters {
        let (name, ty) = (graph.get(parameter).name.to_string(), graph.ty(parameter).clone());
        let mut moment = |kind: &str| graph.state(&format!("{kind}.{name}"), ty.clone(), Category::OptimizerState);
        moments.push([moment("first_moment"), moment("second_moment")]);
    }
    let rates = graph.input("rates", TensorType::f32(&[3]));
    graph.enter("optimizer", Phase::Optimizer);
    let mut scale = None;
    if clips {
        let mut squares = Vec::new();
        for &gradient in &gradients {
            squares.push(graph.add_one(op("squared_norm", &[]), &[gradient])?);
        }
        let made = graph.add(op("clip_scale", &[("max_norm", "1")]), &squares)?;
        graph.output("gradient_norm", made[1]);
        scale = Some(made[0]);
    }
    let settings = [("beta1", "0.9"), ("beta2", "0.999"), ("eps", "0.00000001"), ("weight_decay", "0.01")];
    let adamw = op("adamw", &[&settings[..], &[("decays", "all"), ("bf16_copies", "0")]].concat());
    for ((&parameter, [first, second]), &gradient) in parameters.iter().zip(moments).zip(&gradients) {
        let inputs: Vec<ValueId> = [parameter, first, second, gradient, rates].into_iter().chain(scale).collect();
        graph.add(adamw, &inputs)?;
    }
    graph.validate("differentiating")?;
    Ok(apply(graph, &passes.on_step())?.0)
}

/// Number of nodes of each op, by phase.
fn counted(graph: &Graph) -> String {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    graph.nodes().iter().for_each(|node| *counts.entry((node.phase.name(), node.op.name())).or_default() += 1);
    let counts: Vec<String> = counts.iter().map(|((phase, op), count)| format!("{phase} {op} {count}")).collect();
    counts.join(", ")
}

#[test]
fn every_pass_replaces_these_nodes() {
    let mut text = format!("none: {}\n", counted(&step(&PassList::none(), true).unwrap()));
    for offered in OFFERED {
        let needed = offered.needs.iter().fold(PassList::none(), |list, name| list.with(name));
        let graph = step(&needed.with(offered.name), true).unwrap();
        writeln!(text, "{}: {}", offered.name, counted(&graph)).unwrap();
    }
    assert_snapshot!(text);
}

#[test]
fn a_step_under_all_passes_reads_so() {
    assert_snapshot!("all_passes", step(&PassList::all(), true).unwrap().to_string());
    // Without clipping, the single update has no norm.
    assert_snapshot!("all_passes_unclipped", counted(&step(&PassList::all(), false).unwrap()));
}

#[test]
fn recomputed_layers_repeat_their_forward_pass() {
    let graph = step(&PassList::version_2(), false).unwrap();
    assert_eq!(layers(&graph), LAYERS);
    let mut text = String::new();
    for count in 0..=LAYERS {
        let recomputed = checkpoint(&graph, count).unwrap();
        recomputed.validate("checkpoint").unwrap();
        let plan = Plan::new(&recomputed);
        writeln!(text, "{count}: {}\n  peak {} bytes", counted(&recomputed), plan.peak.total()).unwrap();
    }
    assert_snapshot!(text);
}

#[test]
fn eight_bit_products_read_rounded_operands() {
    let graph = step(&PassList::version_2(), false).unwrap();
    let delayed = fp8::rewrite(&graph, Scaling::Delayed).unwrap();
    delayed.validate("fp8").unwrap();
    assert_snapshot!("fp8", delayed.to_string());
    let current = fp8::rewrite(&forward().unwrap(), Scaling::Current).unwrap();
    current.validate("fp8").unwrap();
    assert_snapshot!("fp8_forward", counted(&current));
}

#[test]
fn ranks_exchange_gradients_in_buckets_beside_other_calls() {
    let graph = step(&PassList::none(), true).unwrap();
    let link = Link { round_seconds: 1e-5, bytes: 1e9 };
    let mut text = String::new();
    for (bucket, overlap, zero1) in [
        (false, false, false),
        (true, false, false),
        (true, true, false),
        (false, true, false),
        (true, true, true),
        (false, false, true),
    ] {
        for bucket_bytes in [4 << 10, 25 << 20] {
            let among = Parallel { ranks: 2, bucket, bucket_bytes, overlap, zero1 };
            let made = parallel(&graph, &among).unwrap();
            made.validate("dp").unwrap();
            let (seconds, exposed) = predicted_among_ranks(&made, &Plan::new(&made), &RATES, &link);
            writeln!(text, "{} of {bucket_bytes}: {}", among.names().join("+"), counted(&made)).unwrap();
            writeln!(text, "  {:.3} µs, {:.3} exposed", 1e6 * seconds, 1e6 * exposed).unwrap();
        }
    }
    assert_snapshot!("ranks", text);
    let among = Parallel { ranks: 2, bucket: true, bucket_bytes: 16 << 10, overlap: true, zero1: true };
    assert_snapshot!("ranks_step", parallel(&graph, &among).unwrap().to_string());
}

const RATES: Rates = Rates { product_flops: 1e12, bytes: 1e11, call_seconds: 2e-6 };

#[test]
fn a_plan_puts_every_value_in_its_place() {
    for (name, layout) in [("apart", Layout::Apart), ("together", Layout::Together)] {
        let graph = step(&PassList::all(), true).unwrap();
        let plan = Plan::laid_out(&graph, layout, 0);
        let mut text = String::new();
        for id in graph.value_ids() {
            let Some(buffer) = plan.buffer(id) else { continue };
            let (value, alive) = (graph.get(id), &buffer.alive);
            let kept = if buffer.kept { ", kept" } else { "" };
            writeln!(
                text,
                "%{} {} at {}, {} bytes, rows of {}, {}, calls {}..{}{kept}",
                id.0,
                value.name,
                buffer.offset,
                buffer.bytes,
                buffer.pitch,
                buffer.category.name(),
                alive.start,
                alive.end
            )
            .unwrap();
        }
        writeln!(
            text,
            "kept {}, arena {}, peak at call {}: {:?}",
            plan.kept_bytes, plan.arena_bytes, plan.peak_call, plan.peak
        )
        .unwrap();
        for phase in Phase::ALL {
            writeln!(text, "{}: calls {:?}, {} FLOPs", phase.name(), plan.phase(phase), plan.flops(phase)).unwrap();
        }
        writeln!(text, "{:.3} µs", 1e6 * predicted_step_seconds(&plan, &RATES)).unwrap();
        assert_snapshot!(format!("plan_{name}"), text);
        // More kept bytes only shift the rest.
        let moved = Plan::laid_out(&graph, layout, plan.kept_bytes + 1);
        assert_eq!(moved.arena_bytes, plan.arena_bytes + 64);
        assert_eq!((moved.kept_bytes, moved.peak), (plan.kept_bytes, plan.peak));
    }
}

#[test]
fn values_that_live_together_share_no_byte() {
    for passes in [PassList::none(), PassList::version_2(), PassList::all()] {
        let graph = step(&passes, true).unwrap();
        let plan = Plan::new(&graph);
        let buffers: Vec<_> = plan.buffers.iter().flatten().collect();
        for (at, one) in buffers.iter().enumerate() {
            assert!(one.offset.is_multiple_of(64) && one.offset + one.bytes <= plan.arena_bytes);
            for other in &buffers[at + 1..] {
                let meet = one.alive.start < other.alive.end && other.alive.start < one.alive.end;
                let apart = one.offset + one.bytes <= other.offset || other.offset + other.bytes <= one.offset;
                assert!(apart || !meet, "{one:?} and {other:?}");
            }
        }
        let most = plan.usage().iter().map(|usage| usage.total()).max().unwrap();
        assert_eq!((plan.peak.total(), plan.usage()[plan.peak_call]), (most, plan.peak));
    }
}

#[test]
fn lists_of_passes_say_what_they_ask_for() {
    let list = |text: &str| PassList::parse(text).unwrap();
    for (text, ranks) in [
        ("v2", false),
        ("v2,+bucket", true),
        ("v2,-bucket", false),
        ("v2,+overlap", true),
        ("v2,+zero1", true),
        ("v2,bucket=1MiB", true),
    ] {
        assert_eq!(list(text).asks_for_ranks(), ranks, "{text}");
    }
    assert!(list("v2,+checkpoint").asks_for_checkpoint() && !list("v2,-checkpoint").asks_for_checkpoint());
    assert_eq!(list("v2,+checkpoint").label(), "v2+checkpoint");
    assert!(list("all").replays() && !list("v2").replays());
    for text in ["bucket=0", "bucket=", "bucket=1GiB", "-bucket=1KiB"] {
        assert!(PassList::parse(text).is_err(), "{text}");
    }
    assert_eq!(list("bucket=100").among(2).parallel().unwrap().bucket_bytes, 100);
    assert_eq!(list("none").among(2).parallel().unwrap().bucket_bytes, 25 << 20);
    assert!(list("v2").parallel().is_none());
    let forward = OFFERED.iter().filter(|offered| offered.changes_forward()).map(|offered| offered.name);
    let on_forward: Vec<&str> = list("all").on_forward().iter().map(|pass| pass.name).collect();
    assert_eq!(forward.collect::<Vec<_>>(), on_forward);
    assert_eq!(list("all").on_step().iter().map(|pass| pass.name).collect::<Vec<_>>(), ["fuse-optimizer"]);
}

#[test]
fn element_types_are_named_and_sized() {
    for (name, dtype, bytes, is_float) in [
        ("f32", DType::F32, 4, true),
        ("bf16", DType::Bf16, 2, true),
        ("e4m3", DType::E4m3, 1, true),
        ("e5m2", DType::E5m2, 1, true),
        ("i32", DType::I32, 4, false),
    ] {
        assert_eq!((name.parse(), dtype.to_string().as_str()), (Ok(dtype), name));
        assert_eq!((dtype.bytes(), dtype.is_float()), (bytes, is_float), "{name}");
    }
    let ty: TensorType = "bf16[3, 5]".parse().unwrap();
    assert_eq!((ty.elements(), ty.bytes(), ty.shape.row(), ty.sizes()), (15, 30, 5, &[3, 5][..]));
    for text in ["f64[2]", "f32", "f32[2", "f32[x]"] {
        assert!(text.parse::<TensorType>().is_err(), "{text}");
    }
}
