//! Measures attention at the model's own shapes: GFLOP/s of the visible part, forward and backward, on one thread and
//! on two, beside a product at the same moment. `attention_rate [seconds per figure] [name]`; the figure is the mean of
//! many runs, taken alternately.

use std::time::{Duration, Instant};

use headroom_engine::cpu::gemm::{Accumulate, MatMut, MatRef, Product, Scratch, gemm};
use headroom_engine::cpu::isa::Isa;
use headroom_engine::cpu::pool::Pool;
use headroom_engine::cpu::{Cpu, Reductions};
use headroom_engine::{Device, Program};
use headroom_graph::ops::flash_attention::{FlashAttention, FlashAttentionGrad, Rotation};
use headroom_graph::{Graph, TensorType, ValueId};

/// Batch, positions, heads, key-value heads and head size.
const SHAPES: [(&str, [usize; 5]); 5] = [
    ("tiny", [8, 128, 8, 4, 32]),
    ("small", [8, 256, 8, 4, 64]),
    ("small:1x2048", [1, 2048, 8, 4, 64]),
    ("medium", [4, 512, 16, 8, 64]),
    ("large:1x1024", [1, 1024, 16, 8, 128]),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1).filter_map(|word| word.into_string().ok());
    let seconds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let part = arguments.next().unwrap_or_default();
    let time = Duration::from_secs_f64(seconds);
    let isa = Isa::detect();
    #[allow(clippy::print_stdout, reason = "a benchmark prints its figures")]
    let show = |line: String| println!("{line}");
    show(format!("{:<14} {:>8} {:>8} {:>8} {:>8}", "GFLOP/s", "threads", "forward", "backward", "product"));
    for (name, shape) in SHAPES.into_iter().filter(|(name, _)| part.is_empty() || *name == part) {
        for threads in [1, 2] {
            let mut attention = [forward(shape, isa, threads)?, backward(shape, isa, threads)?];
            let mut product = product(isa, threads)?;
            let mut taken = [const { Vec::new() }; 3];
            let start = Instant::now();
            while start.elapsed() < time {
                for (taken, run) in taken.iter_mut().zip([0, 1, 2]) {
                    let before = Instant::now();
                    match run {
                        2 => product.1(),
                        _ => attention[run].1.run(0, 0..1),
                    }
                    taken.push(before.elapsed().as_secs_f64());
                }
            }
            let flops = [attention[0].0, attention[1].0, product.0];
            let [forward, backward, product] = [0, 1, 2].map(|at| flops[at] / mean(&taken[at]) / 1e9);
            show(format!("{name:<14} {threads:>8} {forward:>8.0} {backward:>8.0} {product:>8.0}"));
        }
    }
    Ok(())
}

fn mean(taken: &[f64]) -> f64 {
    taken.iter().sum::<f64>() / taken.len() as f64
}

type Failure = Box<dyn std::error::Error>;

fn forward([batch, seq, heads, kv_heads, hd]: [usize; 5], isa: Isa, threads: usize) -> Result<(f64, Cpu), Failure> {
    let op = FlashAttention { heads, kv_heads, seq, scale: 0.125, rotation: Rotation::Inside };
    let (q, k, table) = types(batch * seq, heads * hd, kv_heads * hd, seq, hd);
    alone(op.into(), &[q, k.clone(), k, table.clone(), table], isa, threads)
}

fn backward([batch, seq, heads, kv_heads, hd]: [usize; 5], isa: Isa, threads: usize) -> Result<(f64, Cpu), Failure> {
    let op = FlashAttentionGrad { heads, kv_heads, seq, scale: 0.125, rotation: Rotation::Inside };
    let (q, k, table) = types(batch * seq, heads * hd, kv_heads * hd, seq, hd);
    let lse = TensorType::f32(&[batch, heads, seq]);
    alone(op.into(), &[q.clone(), k.clone(), k, q.clone(), lse, q, table.clone(), table], isa, threads)
}

fn types(rows: usize, wide: usize, narrow: usize, seq: usize, hd: usize) -> (TensorType, TensorType, TensorType) {
    (TensorType::f32(&[rows, wide]), TensorType::f32(&[rows, narrow]), TensorType::f32(&[seq, hd / 2]))
}

/// A program of one call with small input values, and its FLOPs.
fn alone(op: headroom_graph::Op, types: &[TensorType], isa: Isa, threads: usize) -> Result<(f64, Cpu), Failure> {
    let mut graph = Graph::new();
    let inputs: Vec<ValueId> =
        types.iter().enumerate().map(|(index, ty)| graph.input(&format!("input{index}"), ty.clone())).collect();
    let results = graph.add(op, &inputs)?;
    for (index, &result) in results.iter().enumerate() {
        graph.output(&format!("output{index}"), result);
    }
    let flops = op.flops(types, &op.outputs(types)?) as f64;
    let program = Program::new(graph);
    let mut cpu = Cpu::new(threads, isa, Reductions::Fixed, &[program])?;
    for (&input, ty) in inputs.iter().zip(types) {
        let values: Vec<f32> = (0..ty.elements()).map(|i| (i % 17) as f32 / 16.0 - 0.5).collect();
        cpu.write_f32(0, input, 0, &values);
    }
    cpu.run(0, 0..1);
    Ok((flops, cpu))
}

/// The second product of the feed-forward block at the size small, and its FLOPs.
fn product(isa: Isa, threads: usize) -> Result<(f64, impl FnMut()), Failure> {
    let [m, k, n] = [2048, 1104, 512];
    let (a, b, mut c) = (vec![0.5; m * k], vec![0.25; k * n], vec![0.0; m * n]);
    let (pool, scratch) = (Pool::new(threads)?, Scratch::new(threads));
    let run = move || {
        let (a, b) = (MatRef::row_major(&a, m, k), MatRef::row_major(&b, k, n));
        let c = MatMut::row_major(&mut c, m, n);
        gemm(&pool, isa, &scratch, Product { alpha: 1.0, a, b, accumulate: Accumulate::Overwrite, c });
    };
    Ok(((2 * m * k * n) as f64, run))
}
