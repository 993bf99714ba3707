//! Checks products against a plain triple loop in f64: shapes, strides, instruction sets and thread counts.

#[path = "common/operand.rs"]
mod operand;

use headroom_engine::cpu::gemm::{Accumulate, Arithmetic, MatMut, MatRef, Product, Scratch, gemm, gemm_batch};
use headroom_engine::cpu::isa::Isa;
use headroom_engine::cpu::pool::Pool;
use operand::{Operand, STORAGES, Storage, noise, pools, same_bits};

/// `before + alpha · a · b` (or without `before`) in f64, and the scale of its rounding error.
fn plain(alpha: f32, a: &Operand, b: &Operand, before: impl Fn(usize, usize) -> f64) -> Vec<(f64, f64)> {
    let mut out = Vec::with_capacity(a.rows * b.cols);
    for row in 0..a.rows {
        for col in 0..b.cols {
            let terms = (0..a.cols).map(|k| f64::from(a.at(row, k)) * f64::from(b.at(k, col)));
            let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
            let before = before(row, col);
            out.push((before + f64::from(alpha) * sum, before.abs() + size * f64::from(alpha).abs() + 1e-30));
        }
    }
    out
}

struct Case {
    m: usize,
    n: usize,
    k: usize,
    a: Storage,
    b: Storage,
    alpha: f32,
    accumulate: Accumulate,
}

/// Runs the case at every level and thread count: the result is close to the plain sum, has the same bits for all
/// thread counts, and nothing is written outside C.
fn check(pools: &[(Pool, Scratch)], case: &Case) {
    let Case { m, n, k, alpha, accumulate, .. } = *case;
    let name = format!("{m}×{n}×{k} {:?}·{:?} alpha {alpha} {accumulate:?}", case.a, case.b);
    let (a, b) = (Operand::new(m, k, case.a, 1), Operand::new(k, n, case.b, 2));
    let c_stride = n + 3;
    // NaN marks elements that may not be read or written.
    let mut before = vec![f32::NAN; m * c_stride];
    if accumulate == Accumulate::Add {
        for (i, value) in noise(m * c_stride, 3).into_iter().enumerate() {
            if i % c_stride < n {
                before[i] = value;
            }
        }
    }
    let want = plain(alpha, &a, &b, |row, col| match accumulate {
        Accumulate::Overwrite => 0.0,
        Accumulate::Add => f64::from(before[row * c_stride + col]),
    });
    for isa in Isa::available() {
        let mut first: Option<Vec<f32>> = None;
        for (pool, scratch) in pools {
            let mut c = before.clone();
            let view = MatMut::strided(&mut c, m, n, c_stride);
            gemm(pool, isa, scratch, Product { alpha, a: a.view(), b: b.view(), accumulate, c: view });
            for row in 0..m {
                for col in 0..n {
                    let (want, size) = want[row * n + col];
                    let got = f64::from(c[row * c_stride + col]);
                    let error = (got - want).abs();
                    // A block of 512 is summed sequentially: errors grow like √depth, and 32 eps is far outside.
                    assert!(
                        error <= 32.0 * f64::from(f32::EPSILON) * size,
                        "{name} {isa}: c[{row}, {col}] is {got}, not {want}"
                    );
                }
                let beside = &c[row * c_stride + n..((row + 1) * c_stride).min(c.len())];
                assert!(beside.iter().all(|value| value.is_nan()), "{name} {isa}: row {row} written past its end");
            }
            match &first {
                None => first = Some(c),
                Some(first) => {
                    assert!(same_bits(first, &c), "{name} {isa}: other bits on {} threads", pool.threads());
                }
            }
        }
    }
}

#[test]
fn small_and_odd_shapes_match_the_plain_sum_in_every_storage() {
    let pools = pools();
    let sizes = [1, 2, 3, 7, 13, 16, 17, 29, 33, 65];
    let mut turn = 0;
    for &m in &sizes {
        for &n in &sizes {
            for &k in &[1, 2, 5, 16, 31, 64] {
                // Every storage pair, alpha and accumulation occurs many times over the shapes.
                turn += 1;
                check(
                    &pools,
                    &Case {
                        m,
                        n,
                        k,
                        a: STORAGES[turn % 4],
                        b: STORAGES[turn / 4 % 4],
                        alpha: [1.0, -0.5, 3.25][turn % 3],
                        accumulate: [Accumulate::Overwrite, Accumulate::Add][turn / 2 % 2],
                    },
                );
            }
        }
    }
}

#[test]
fn shapes_past_every_block_limit_match_on_any_number_of_threads() {
    let pools = pools();
    // Depth past one and two blocks; columns past one stage; few rows; few columns.
    let shapes = [(37, 1100, 513), (150, 70, 1030), (15, 1500, 700), (301, 33, 200), (64, 64, 2100), (2, 600, 1025)];
    // Shapes that are split for tiles: several blocks and stages, rows and columns that do not fill the last tile.
    let tiled = [(290, 190, 680), (130, 2100, 420), (700, 158, 1400)];
    for (i, (m, n, k)) in shapes.into_iter().chain(tiled).enumerate() {
        for (a, b) in [
            (Storage::RowMajor, Storage::Transposed),
            (Storage::RowMajor, Storage::RowMajor),
            (Storage::Transposed, Storage::RowMajor),
        ] {
            let accumulate = [Accumulate::Overwrite, Accumulate::Add][i % 2];
            let alpha = if i % 3 == 0 { 1.0 } else { 0.75 };
            check(&pools, &Case { m, n, k, a, b, alpha, accumulate });
        }
    }
}

#[test]
fn rows_a_page_apart_match_the_plain_sum() {
    let pools = pools();
    let case = |a, b, m, n, k| Case { m, n, k, a, b, alpha: 1.0, accumulate: Accumulate::Overwrite };
    check(&pools, &case(Storage::RowMajor, Storage::RowMajor, 30, 20, 1024));
    check(&pools, &case(Storage::Transposed, Storage::Transposed, 1024, 20, 40));
}

#[test]
fn a_sum_over_no_depth_is_zero_or_leaves_c_alone() {
    let (pool, scratch) = (Pool::new(2).unwrap(), Scratch::new(2));
    for (accumulate, want) in [(Accumulate::Overwrite, 0.0), (Accumulate::Add, 7.0)] {
        let mut c = vec![7.0; 6];
        let (a, b) = (MatRef::row_major(&[], 2, 0), MatRef::row_major(&[], 0, 3));
        let c_view = MatMut::row_major(&mut c, 2, 3);
        gemm(&pool, Isa::detect(), &scratch, Product { alpha: 1.0, a, b, accumulate, c: c_view });
        assert_eq!(c, vec![want; 6]);
    }
}

#[test]
fn nan_and_infinity_reach_the_elements_they_belong_to_and_no_others() {
    let (pool, scratch) = (Pool::new(2).unwrap(), Scratch::new(2));
    let shapes = [(29, 50, 40), (160, 128, 150)];
    for (isa, (m, n, k)) in Isa::available().into_iter().flat_map(|isa| shapes.map(|shape| (isa, shape))) {
        let mut a = vec![1.0; m * k];
        let mut b = vec![0.0; k * n];
        a[3 * k + 7] = f32::NAN; // row 3
        a[5 * k + 2] = f32::INFINITY; // row 5, times zero: NaN
        b[4 * n + 49] = f32::INFINITY; // column 49, times one: infinity
        let mut c = vec![f32::NAN; m * n];
        gemm(
            &pool,
            isa,
            &scratch,
            Product {
                alpha: 1.0,
                a: MatRef::row_major(&a, m, k),
                b: MatRef::row_major(&b, k, n),
                accumulate: Accumulate::Overwrite,
                c: MatMut::row_major(&mut c, m, n),
            },
        );
        for row in 0..m {
            for col in 0..n {
                let value = c[row * n + col];
                match (row, col) {
                    (3 | 5, _) => assert!(value.is_nan(), "{isa}: c[{row}, {col}] is {value}"),
                    (_, 49) => assert_eq!(value, f32::INFINITY, "{isa}: c[{row}, {col}]"),
                    _ => assert_eq!(value, 0.0, "{isa}: c[{row}, {col}]"),
                }
            }
        }
    }
}

#[test]
fn every_level_rounds_as_little_as_single_precision_must() {
    let (pool, scratch) = (Pool::new(2).unwrap(), Scratch::new(2));
    let (m, n, k) = (130, 160, 1500);
    let (a, b) = (Operand::new(m, k, Storage::RowMajor, 1), Operand::new(k, n, Storage::Transposed, 2));
    let want = plain(1.0, &a, &b, |_, _| 0.0);
    for isa in Isa::available() {
        let mut c = vec![0.0; m * n];
        let view = MatMut::row_major(&mut c, m, n);
        let accumulate = Accumulate::Overwrite;
        gemm(&pool, isa, &scratch, Product { alpha: 1.0, a: a.view(), b: b.view(), accumulate, c: view });
        let squares = c.iter().zip(&want).map(|(got, (want, size))| ((f64::from(*got) - want) / size).powi(2));
        let rms = (squares.sum::<f64>() / (m * n) as f64).sqrt() / f64::from(f32::EPSILON);
        // Rounding operands to bfloat16 would give thousands; sequential sums of 1,500 terms give about 0.3.
        assert!(rms < 0.5, "{isa}: sums are off by {rms:.3} eps");
    }
}

/// Attention's three products over `heads` heads of `[S, hd]` inside `[S, heads · hd]`: scores, output, and the
/// gradient of keys that `heads / groups` heads share.
fn attention_products(pool: &Pool, isa: Isa, scratch: &Scratch, [heads, groups, s, hd]: [usize; 4]) -> [Vec<f32>; 3] {
    let q = noise(s * heads * hd, 4);
    let k = noise(s * groups * hd, 5);
    let sharing = heads / groups;
    let head = |data: &[f32], count: usize, h: usize| {
        assert!(h < count);
        // SAFETY: head `h` of `[s, count, hd]` lies within the tensor, which outlives the products below.
        unsafe { MatRef::from_raw(data.as_ptr().add(h * hd), s, hd, count * hd, 1) }
    };
    let mut scores = vec![f32::NAN; heads * s * s];
    let mut out = vec![f32::NAN; s * heads * hd];
    let mut dk = vec![f32::NAN; s * groups * hd];
    let (scores_at, out_at, dk_at) = (Shared(scores.as_mut_ptr()), Shared(out.as_mut_ptr()), Shared(dk.as_mut_ptr()));
    // SAFETY: in all three each item writes to its own head's matrix, and nothing reads it meanwhile.
    unsafe {
        gemm_batch(pool, isa, Arithmetic::Single, scratch, heads, 1, &|h, _| Product {
            alpha: 0.25,
            a: head(&q, heads, h),
            b: head(&k, groups, h / sharing).transposed(),
            accumulate: Accumulate::Overwrite,
            c: MatMut::from_raw(scores_at.at(h * s * s), s, s, s),
        });
        gemm_batch(pool, isa, Arithmetic::Single, scratch, heads, 1, &|h, _| Product {
            alpha: 1.0,
            a: MatRef::from_raw(scores_at.at(h * s * s), s, s, s, 1),
            b: head(&k, groups, h / sharing),
            accumulate: Accumulate::Overwrite,
            c: MatMut::from_raw(out_at.at(h * hd), s, hd, heads * hd),
        });
        gemm_batch(pool, isa, Arithmetic::Single, scratch, groups, sharing, &|g, term| Product {
            alpha: 0.25,
            a: MatRef::from_raw(scores_at.at((g * sharing + term) * s * s), s, s, s, 1).transposed(),
            b: head(&q, heads, g * sharing + term),
            accumulate: if term == 0 { Accumulate::Overwrite } else { Accumulate::Add },
            c: MatMut::from_raw(dk_at.at(g * hd), s, hd, groups * hd),
        });
    }
    [scores, out, dk]
}

/// Memory that several threads write to, each in its own part.
#[derive(Clone, Copy)]
struct Shared(*mut f32);
// SAFETY: only disjoint parts are written.
unsafe impl Sync for Shared {}

impl Shared {
    fn at(&self, offset: usize) -> *mut f32 {
        self.0.wrapping_add(offset)
    }
}

/// The same three products by plain loops in f64.
fn attention_plain([heads, groups, s, hd]: [usize; 4]) -> [Vec<f64>; 3] {
    let (q, k) = (noise(s * heads * hd, 4), noise(s * groups * hd, 5));
    let q_at = |row: usize, h: usize, i: usize| f64::from(q[(row * heads + h) * hd + i]);
    let k_at = |row: usize, g: usize, i: usize| f64::from(k[(row * groups + g) * hd + i]);
    let sharing = heads / groups;
    let (mut scores, mut out, mut dk) =
        (vec![0.0; heads * s * s], vec![0.0; s * heads * hd], vec![0.0; s * groups * hd]);
    for h in 0..heads {
        let g = h / sharing;
        for row in 0..s {
            for col in 0..s {
                let score = 0.25 * (0..hd).map(|i| q_at(row, h, i) * k_at(col, g, i)).sum::<f64>();
                scores[(h * s + row) * s + col] = score;
                for i in 0..hd {
                    out[(row * heads + h) * hd + i] += score * k_at(col, g, i);
                    dk[(col * groups + g) * hd + i] += 0.25 * score * q_at(row, h, i);
                }
            }
        }
    }
    [scores, out, dk]
}

#[test]
fn batches_of_heads_match_the_plain_sums_on_any_number_of_threads() {
    for shape in [[4, 2, 19, 16], [6, 3, 64, 32], [2, 1, 300, 24], [1, 1, 513, 64]] {
        let want = attention_plain(shape);
        for isa in Isa::available() {
            let mut first: Option<[Vec<f32>; 3]> = None;
            for (pool, scratch) in pools() {
                let got = attention_products(&pool, isa, &scratch, shape);
                for (name, got, want) in
                    [("scores", &got[0], &want[0]), ("out", &got[1], &want[1]), ("dk", &got[2], &want[2])]
                {
                    let scale = want.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
                    for (i, (got, want)) in got.iter().zip(want).enumerate() {
                        let error = (f64::from(*got) - want).abs();
                        assert!(error <= 1e-5 * scale, "{shape:?} {isa} {name}[{i}] is {got}, not {want}");
                    }
                }
                let first = first.get_or_insert_with(|| got.clone());
                for (first, got) in first.iter().zip(&got) {
                    assert!(same_bits(first, got), "{shape:?} {isa}: other bits on {} threads", pool.threads());
                }
            }
        }
    }
}

#[test]
fn a_scratch_for_fewer_threads_than_the_pool_is_enough() {
    let (m, n, k) = (200, 100, 64);
    let (a, b) = (noise(m * k, 1), noise(k * n, 2));
    let run = |threads: usize, scratch_threads: usize| {
        let mut c = vec![0.0; m * n];
        gemm(
            &Pool::new(threads).unwrap(),
            Isa::detect(),
            &Scratch::new(scratch_threads),
            Product {
                alpha: 1.0,
                a: MatRef::row_major(&a, m, k),
                b: MatRef::row_major(&b, k, n),
                accumulate: Accumulate::Overwrite,
                c: MatMut::row_major(&mut c, m, n),
            },
        );
        c
    };
    assert!(same_bits(&run(1, 1), &run(4, 2)));
}
