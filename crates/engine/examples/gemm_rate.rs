//! Measures products at the model's own shapes: GFLOP/s on one thread and on two, in the three forms of training and
//! for attention's heads. `gemm_rate [seconds per figure] [part of a name]`; the figure is the best of many runs.

use std::hint::black_box;
use std::time::{Duration, Instant};

use headroom_engine::cpu::gemm::{
    Accumulate, Arithmetic, Bf16Unit, Columns, Joined, MatMut, MatRef, Product, Scratch, gemm, gemm_batch, gemm_bf16,
};
use headroom_engine::cpu::isa::Isa;
use headroom_engine::cpu::pool::Pool;

/// Tokens, inputs and outputs of a linear layer, each named by model size and layer.
const LINEARS: [(&str, usize, usize, usize); 13] = [
    ("tiny q", 1024, 256, 256),
    ("tiny kv", 1024, 256, 128),
    ("tiny up", 1024, 256, 512),
    ("tiny down", 1024, 512, 256),
    ("tiny head", 1024, 256, 1000),
    ("small q", 2048, 512, 512),
    ("small kv", 2048, 512, 256),
    ("small up", 2048, 512, 1104),
    ("small down", 2048, 1104, 512),
    ("small head", 2048, 512, 1000),
    ("medium q", 8192, 1024, 1024),
    ("medium up", 8192, 1024, 3456),
    ("medium down", 8192, 3456, 1024),
];

/// Heads (batch × heads), key heads, sequence and head size.
const ATTENTIONS: [(&str, [usize; 4]); 3] =
    [("tiny heads", [64, 32, 128, 32]), ("small heads", [64, 32, 256, 64]), ("one long", [4, 4, 2048, 64])];

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args_os().skip(1).filter_map(|word| word.into_string().ok());
    let seconds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(0.3);
    let part = arguments.next().unwrap_or_default();
    let time = Duration::from_secs_f64(seconds);
    let (isa, unit) = (Isa::detect(), Bf16Unit::detect());
    let pools = [Pool::new(1)?, Pool::new(2)?];
    let scratches = [Scratch::new(1), Scratch::new(2)];
    let teams = [(&pools[0], &scratches[0]), (&pools[1], &scratches[1])];

    let dispatch = best_seconds(time, || pools[1].broadcast(&|worker| _ = black_box(worker)));
    #[allow(clippy::print_stdout, reason = "a benchmark prints its figures")]
    let show = |line: String| println!("{line}");
    show(format!("{isa}, scratch {} KiB on 2 threads, dispatch {:.2} µs", Scratch::bytes(2) / 1024, dispatch * 1e6));
    show(format!("bf16 by {unit}"));
    show(format!(
        "{:<24} {:>5} {:>5} {:>5} {:>8} {:>8} {:>8} {:>8}",
        "GFLOP/s", "M", "N", "K", "1 thread", "2", "1 bf16", "2 bf16"
    ));

    for (name, tokens, inputs, outputs) in LINEARS {
        let (x, w) = (filled(tokens * inputs), filled(outputs * inputs));
        let dy = filled(tokens * outputs);
        let x = MatRef::row_major(from_a_line(&x), tokens, inputs);
        let w = MatRef::row_major(from_a_line(&w), outputs, inputs);
        let dy = MatRef::row_major(from_a_line(&dy), tokens, outputs);
        for (form, a, b) in [("y = x·Wᵀ", x, w.transposed()), ("dx = dy·W", dy, w), ("dW = dyᵀ·x", dy.transposed(), x)]
        {
            if !format!("{name} {form}").contains(&part) {
                continue;
            }
            let (m, k, n) = (a.rows(), a.cols(), b.cols());
            let mut c = filled(m * n);
            let offset = c.len() - from_a_line(&c).len();
            let c = &mut c[offset..];
            let accumulate = Accumulate::Overwrite;
            let rates = teams.map(|(pool, scratch)| {
                let single = best_seconds(time, || {
                    let c = MatMut::row_major(c, m, n);
                    gemm(pool, isa, scratch, Product { alpha: 1.0, a, b, accumulate, c });
                });
                let rounded = best_seconds(time, || {
                    let mut columns = [Columns { b, c: MatMut::row_major(c, m, n) }];
                    gemm_bf16(pool, isa, unit, scratch, Joined::columns_of(1.0, accumulate, a, &mut columns));
                });
                [single, rounded].map(|seconds| (2 * m * n * k) as f64 / seconds / 1e9)
            });
            let [[one, one_bf16], [two, two_bf16]] = rates;
            show(format!(
                "{name:<12}{form:<12} {m:>5} {n:>5} {k:>5} {one:>8.0} {two:>8.0} {one_bf16:>8.0} {two_bf16:>8.0}"
            ));
        }
    }

    for (name, shape) in ATTENTIONS {
        for (form, products) in [("q·kᵀ", scores as Heads), ("p·v", outputs), ("dsᵀ·q", key_gradients)] {
            if !format!("{name} {form}").contains(&part) {
                continue;
            }
            let [heads, _, s, hd] = shape;
            let q = filled(s * heads * hd);
            let mut p = filled(heads * s * s);
            let mut out = filled(s * heads * hd);
            let rates = teams.map(|(pool, scratch)| {
                let run = Run { pool, isa, scratch, shape, q: q.as_ptr(), p: p.as_mut_ptr(), out: out.as_mut_ptr() };
                let seconds = best_seconds(time, || products(&run));
                (2 * heads * s * s * hd) as f64 / seconds / 1e9
            });
            show(format!("{name:<12}{form:<12} {s:>5} {:>5} {hd:>5} {:>8.0} {:>8.0}", heads, rates[0], rates[1]));
        }
    }
    Ok(())
}

/// The tensors of one attention: queries `[s, heads, hd]` (keys and values are read from their first `key_heads`),
/// scores `[heads, s, s]`, and an output of the queries' size.
struct Run<'a> {
    pool: &'a Pool,
    isa: Isa,
    scratch: &'a Scratch,
    shape: [usize; 4],
    q: *const f32,
    p: *mut f32,
    out: *mut f32,
}

// SAFETY: products write only to their own matrices.
unsafe impl Sync for Run<'_> {}

type Heads = fn(&Run);

impl Run<'_> {
    fn query(&self, head: usize) -> MatRef<'_> {
        let [heads, _, s, hd] = self.shape;
        // SAFETY: head `head` of the tensor.
        unsafe { MatRef::from_raw(self.q.add(head * hd), s, hd, heads * hd, 1) }
    }

    fn probabilities(&self, head: usize) -> MatRef<'_> {
        let [_, _, s, _] = self.shape;
        // SAFETY: head `head` of the tensor.
        unsafe { MatRef::from_raw(self.p.add(head * s * s), s, s, s, 1) }
    }

    fn output(&self, head: usize) -> MatMut<'_> {
        let [heads, _, s, hd] = self.shape;
        // SAFETY: head `head` of the tensor, which only its own product requests.
        unsafe { MatMut::from_raw(self.out.add(head * hd), s, hd, heads * hd) }
    }
}

fn scores(run: &Run) {
    let [heads, keys, s, _] = run.shape;
    // SAFETY: one item per head, each with its own matrix of scores.
    unsafe {
        gemm_batch(run.pool, run.isa, Arithmetic::Single, run.scratch, heads, 1, &|head, _| Product {
            alpha: 0.125,
            a: run.query(head),
            b: run.query(head * keys / heads).transposed(),
            accumulate: Accumulate::Overwrite,
            c: MatMut::from_raw(run.p.add(head * s * s), s, s, s),
        });
    }
}

fn outputs(run: &Run) {
    let [heads, keys, ..] = run.shape;
    // SAFETY: one item per head, each with its own output.
    unsafe {
        gemm_batch(run.pool, run.isa, Arithmetic::Single, run.scratch, heads, 1, &|head, _| Product {
            alpha: 1.0,
            a: run.probabilities(head),
            b: run.query(head * keys / heads),
            accumulate: Accumulate::Overwrite,
            c: run.output(head),
        });
    }
}

fn key_gradients(run: &Run) {
    let [heads, keys, ..] = run.shape;
    let sharing = heads / keys;
    // SAFETY: one item per key head, each with its own output.
    unsafe {
        gemm_batch(run.pool, run.isa, Arithmetic::Single, run.scratch, keys, sharing, &|key, term| Product {
            alpha: 0.125,
            a: run.probabilities(key * sharing + term).transposed(),
            b: run.query(key * sharing + term),
            accumulate: if term == 0 { Accumulate::Overwrite } else { Accumulate::Add },
            c: run.output(key),
        });
    }
}

fn filled(len: usize) -> Vec<f32> {
    (0..len + LINE).map(|i| (i % 17) as f32 / 16.0 - 0.5).collect()
}

/// Floats in a cache line.
const LINE: usize = 16;

/// Skips to the first cache-line boundary: tensors in the arena are aligned like that.
fn from_a_line(floats: &[f32]) -> &[f32] {
    &floats[floats.as_ptr().align_offset(LINE * size_of::<f32>())..]
}

/// The shortest of the runs that fit into `time`, after one warm-up.
fn best_seconds(time: Duration, mut run: impl FnMut()) -> f64 {
    run();
    let start = Instant::now();
    let mut best = f64::INFINITY;
    while start.elapsed() < time {
        let before = Instant::now();
        run();
        best = best.min(before.elapsed().as_secs_f64());
    }
    best
}
