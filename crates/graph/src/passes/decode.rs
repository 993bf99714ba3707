//! Turns a forward pass over whole sequences into one over the next tokens of one sequence, with a KV cache.

use crate::graph::{Category, Graph, GraphError, Source, ValueId};
use crate::op::Op;
use crate::ops::add::Add;
use crate::ops::cached_attention::CachedAttention;
use crate::ops::embedding::Embedding;
use crate::role::Role;
use crate::tensor::TensorType;
use std::collections::BTreeMap;

/// Input `i32[1]`: the position of the first token in the sequence.
pub const FIRST: &str = "first";
/// Input `i32[r]`: the position of each token, if the model has learned positions.
pub const PLACES: &str = "places";
/// Output `[r, v]`.
pub const LOGITS: &str = "logits";

/// `graph` is a forward pass of one sequence of `r` tokens with these `logits`; the cache holds up to `longest` tokens.
/// Constants (rotation tables) become inputs, since their rows change with the position. The loss is dropped.
pub fn decode(graph: &Graph, logits: ValueId, longest: usize) -> Result<Graph, GraphError> {
    let mut to = Graph::new();
    let mut moved: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let mut rows = 1;
    for id in graph.value_ids() {
        let (name, ty) = (&*graph.get(id).name, graph.ty(id).clone());
        let new = match graph.get(id).source {
            Source::Input if name == "targets" => continue,
            Source::Input => {
                rows = ty.elements();
                to.input(name, ty)
            }
            Source::Constant => to.input(name, ty),
            Source::Parameter => to.parameter(name, ty),
            Source::State(category) => to.state(name, ty, category),
            Source::Node(_) => continue,
        };
        to.place(new, graph.get(id).part.clone());
        moved.insert(id, new);
    }
    let first = to.input(FIRST, TensorType::i32(&[1]));
    for node in graph.nodes() {
        let at = |index: usize| moved[&node.inputs[index]];
        to.enter_as(&node.module, node.phase, node.role);
        let made = match node.op {
            // The attention mix at the end of the chain replaces all of it; the loss is dropped.
            Op::AttentionScores(_) | Op::CausalSoftmax(_) | Op::CrossEntropy(_) => continue,
            Op::AttentionMix(_) => {
                let Some((q, k, scores)) = scored(graph, node.inputs[0]) else { continue };
                let keys = TensorType::f32(&[longest, graph.ty(k).shape.row()]);
                let kept = |to: &mut Graph, what: &str| {
                    to.state(&format!("{what}.{}", node.module), keys.clone(), Category::Activations)
                };
                let (keys, values) = (kept(&mut to, "keys"), kept(&mut to, "values"));
                to.add(scores, &[moved[&q], moved[&k], at(1), keys, values, first])?
            }
            Op::AddRows(_) if node.role == Role::Position => {
                let places = to.input(PLACES, TensorType::i32(&[rows]));
                let added = to.add_one(Embedding {}, &[places, at(1)])?;
                to.add(Add {}, &[at(0), added])?
            }
            op => to.add(op, &node.inputs.iter().map(|input| moved[input]).collect::<Vec<_>>())?,
        };
        moved.extend(node.outputs.iter().copied().zip(made));
    }
    to.output(LOGITS, moved[&logits]);
    Ok(to)
}

/// The queries and keys behind attention weights, and the op that replaces them.
fn scored(graph: &Graph, weights: ValueId) -> Option<(ValueId, ValueId, CachedAttention)> {
    let (_, softmax) = graph.maker(weights)?;
    let (_, scores) = graph.maker(*softmax.inputs.first()?)?;
    let (Op::AttentionScores(op), &[q, k]) = (scores.op, &scores.inputs[..]) else { return None };
    Some((q, k, CachedAttention { heads: op.heads, kv_heads: op.kv_heads, scale: op.scale }))
}
