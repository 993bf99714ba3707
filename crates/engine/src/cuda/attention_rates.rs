//! Measures attention alone, forward and backward, with each implementation that the device has.

use super::either::Timed;
use super::error::CudaError;
use super::launch::Action;
use super::{Cuda, Options};
use crate::device::{EngineError, Program, Target};
use headroom_graph::ops::flash_attention::{FlashAttention, FlashAttentionGrad, Rotation};
use headroom_graph::{DType, Graph, GraphError, Precision, TensorType};

/// The shape to measure: causal attention in bf16.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape {
    pub batch: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub seq: usize,
    pub head_dim: usize,
}

/// One implementation and its useful FLOP/s: work above the diagonal does not count.
#[derive(Clone, Debug)]
pub struct AttentionRate {
    pub what: String,
    pub flops_per_sec: f64,
}

fn graph_of(shape: &AttentionShape) -> Result<Graph, GraphError> {
    let AttentionShape { batch, heads, kv_heads, seq, head_dim } = *shape;
    let scale = (head_dim as f64).powf(-0.5);
    let rotation = Rotation::Before;
    let mut graph = Graph::new();
    let rows = |heads: usize| TensorType::new(DType::Bf16, &[batch * seq, heads * head_dim]);
    let (q, k, v) = (graph.input("q", rows(heads)), graph.input("k", rows(kv_heads)), graph.input("v", rows(kv_heads)));
    let slope = graph.input("dout", rows(heads));
    let made = graph.add(FlashAttention { heads, kv_heads, seq, scale, rotation }, &[q, k, v])?;
    let inputs = [q, k, v, made[0], made[1], slope];
    let gradients = graph.add(FlashAttentionGrad { heads, kv_heads, seq, scale, rotation }, &inputs)?;
    for (index, value) in made.into_iter().chain(gradients).enumerate() {
        graph.output(&format!("output{index}"), value);
    }
    Ok(graph)
}

/// Measures forward, then backward, each with our kernels and, if available, with cuDNN.
pub fn attention_rates(options: &Options, shape: &AttentionShape) -> Result<Vec<AttentionRate>, EngineError> {
    let graph = graph_of(shape).map_err(|error| CudaError::Unsupported {
        op: "attention",
        module: "a measurement".into(),
        what: error.to_string(),
    })?;
    let cuda = Cuda::new(options, &[Program::made_for(Target::Cuda, Precision::Bf16, graph)])?;
    let AttentionShape { batch, heads, seq, head_dim, .. } = *shape;
    let forward = 2.0 * (batch * heads * seq * seq * head_dim) as f64;
    cuda.draw(0, cuda.arena.at, cuda.arena.bytes / 2, 1, 1, 1.0)?;
    let mut rates = vec![];
    for (call, (name, flops)) in cuda.programs[0].calls.iter().zip([("forward", forward), ("backward", 2.5 * forward)])
    {
        let mut ways: Vec<(String, &[Action])> = vec![];
        match &call.actions[..] {
            [Action::Either(either)] => {
                ways.push((format!("{name} ours"), &either.ours));
                ways.push((format!("{name} cudnn"), &either.theirs));
            }
            actions => ways.push((format!("{name} ours"), actions)),
        }
        for (what, actions) in ways {
            let mut timed = match Timed::new(actions, &cuda.stream, &cuda.products) {
                Ok(timed) => timed,
                Err(error) => {
                    rates.push(AttentionRate { what: format!("{what}: {error}"), flops_per_sec: 0.0 });
                    continue;
                }
            };
            for _ in 0..5 {
                timed.again(&cuda.stream)?;
            }
            rates.push(AttentionRate { what, flops_per_sec: flops / timed.least });
        }
    }
    let notes = cuda.attention_notes.iter().map(|note| AttentionRate { what: note.clone(), flops_per_sec: 0.0 });
    rates.extend(notes);
    Ok(rates)
}
