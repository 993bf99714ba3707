//! Checks bfloat16 products against a plain triple loop over rounded operands: shapes, strides, units and thread
//! counts.

#[path = "common/operand.rs"]
mod operand;

use headroom_engine::cpu::gemm::{Accumulate, Bf16Unit, Columns, Joined, MatMut, MatRef, Scratch, gemm_bf16};
use headroom_engine::cpu::isa::Isa;
use headroom_engine::cpu::pool::Pool;
use operand::{Operand, STORAGES, Storage, THREADS, noise, pools, same_bits};

/// Rounds to 8 bits of mantissa, ties to even.
fn rounded(x: f32) -> f64 {
    let bits = x.to_bits();
    f64::from(f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000))
}

struct Case {
    m: usize,
    /// Columns of each right operand.
    n: &'static [usize],
    k: usize,
    a: Storage,
    b: Storage,
    alpha: f32,
    accumulate: Accumulate,
}

/// The software unit at every vector level, and every other available unit.
fn units() -> Vec<(Isa, Bf16Unit)> {
    let software = Isa::available().into_iter().map(|isa| (isa, Bf16Unit::Software));
    let others = Bf16Unit::available().into_iter().filter(|unit| *unit != Bf16Unit::Software);
    software.chain(others.map(|unit| (Isa::detect(), unit))).collect()
}

fn check(pools: &[(Pool, Scratch)], case: &Case) {
    let Case { m, n, k, alpha, accumulate, .. } = *case;
    let name = format!("{m}×{n:?}×{k} {:?}·{:?} alpha {alpha} {accumulate:?}", case.a, case.b);
    let a = Operand::new(m, k, case.a, 1);
    let rights: Vec<Operand> = n.iter().map(|&n| Operand::new(k, n, case.b, 2 + n as u64)).collect();
    let before: Vec<Vec<f32>> = n.iter().map(|&n| noise(m * (n + 3), 3)).collect();
    let want: Vec<Vec<(f64, f64)>> = rights.iter().zip(&before).map(|(b, before)| plain(case, &a, b, before)).collect();
    for (isa, unit) in units() {
        let mut first: Option<Vec<Vec<f32>>> = None;
        for (pool, scratch) in pools {
            let mut c = before.clone();
            let mut columns: Vec<Columns> = rights
                .iter()
                .zip(&mut c)
                .map(|(b, c)| Columns { b: b.view(), c: MatMut::strided(c, m, b.cols, b.cols + 3) })
                .collect();
            gemm_bf16(pool, isa, unit, scratch, Joined::columns_of(alpha, accumulate, a.view(), &mut columns));
            match &first {
                None => {
                    for (c, want) in c.iter().zip(&want) {
                        close(&format!("{name} {unit} {isa}"), want, c);
                    }
                    first = Some(c);
                }
                Some(first) => {
                    let same = first.iter().zip(&c).all(|(left, right)| same_bits(left, right));
                    assert!(same, "{name} {unit} {isa}: other bits on {} threads", pool.threads());
                }
            }
        }
    }
}

/// Every element of C, including the gaps, and the scale of its rounding error.
fn plain(case: &Case, a: &Operand, b: &Operand, before: &[f32]) -> Vec<(f64, f64)> {
    let stride = b.cols + 3;
    let element = |(index, &was): (usize, &f32)| {
        let (row, col, was) = (index / stride, index % stride, f64::from(was));
        if col >= b.cols {
            return (was, 0.0);
        }
        let terms = (0..a.cols).map(|k| rounded(a.at(row, k)) * rounded(b.at(k, col)));
        let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
        let was = if case.accumulate == Accumulate::Add { was } else { 0.0 };
        (was + f64::from(case.alpha) * sum, was.abs() + size * f64::from(case.alpha).abs() + 1e-30)
    };
    before.iter().enumerate().map(element).collect()
}

fn close(name: &str, want: &[(f64, f64)], c: &[f32]) {
    for (index, (&(want, size), &have)) in want.iter().zip(c).enumerate() {
        let error = (f64::from(have) - want).abs();
        assert!(error <= 32.0 * f64::from(f32::EPSILON) * size, "{name}: element {index} is {have}, not {want}");
    }
}

#[test]
fn small_and_odd_shapes_match_the_rounded_sum_in_every_storage() {
    let pools = pools();
    let widths: [&[usize]; 6] = [&[1], &[16, 1], &[31, 33], &[64], &[17, 32, 5], &[65, 2]];
    let mut turn = 0;
    for m in [1, 3, 16, 31, 32, 33, 70] {
        for n in widths {
            for k in [1, 2, 5, 31, 32, 64, 79] {
                turn += 1;
                let (a, b) = (STORAGES[turn % 4], STORAGES[turn / 4 % 4]);
                let alpha = [1.0, -0.5, 1.0, 3.25][turn % 4];
                let accumulate = [Accumulate::Overwrite, Accumulate::Add][turn / 2 % 2];
                check(&pools, &Case { m, n, k, a, b, alpha, accumulate });
            }
        }
    }
}

#[test]
fn shapes_past_every_block_limit_match_on_any_number_of_threads() {
    let pools = pools();
    let shapes: [(usize, &[usize], usize); 5] =
        [(37, &[1100], 613), (150, &[70, 40], 1230), (15, &[1500], 700), (301, &[33], 200), (2, &[900, 60], 1025)];
    for (i, (m, n, k)) in shapes.into_iter().enumerate() {
        for (a, b) in [
            (Storage::RowMajor, Storage::Transposed),
            (Storage::RowMajor, Storage::RowMajor),
            (Storage::Transposed, Storage::RowMajor),
        ] {
            let accumulate = [Accumulate::Overwrite, Accumulate::Add][i % 2];
            check(&pools, &Case { m, n, k, a, b, alpha: 1.0, accumulate });
        }
    }
}

#[test]
fn not_a_number_and_infinity_pass_through() {
    let (pool, scratch) = (Pool::new(2).unwrap(), Scratch::new(2));
    for (isa, unit) in units() {
        for (value, want) in [(f32::NAN, f32::NAN), (f32::INFINITY, f32::INFINITY), (f32::MAX, f32::INFINITY)] {
            let mut a = vec![1.0; 40 * 40];
            a[41] = value;
            let b = vec![1.0; 40 * 8];
            let mut c = vec![0.0; 40 * 8];
            let mut columns = [Columns { b: MatRef::row_major(&b, 40, 8), c: MatMut::row_major(&mut c, 40, 8) }];
            let (a, accumulate) = (MatRef::row_major(&a, 40, 40), Accumulate::Overwrite);
            gemm_bf16(&pool, isa, unit, &scratch, Joined::columns_of(1.0, accumulate, a, &mut columns));
            assert!(c[8] == want || c[8].is_nan() && want.is_nan(), "{unit} {isa}: {value} became {}", c[8]);
            assert_eq!(c[0], 40.0, "{unit} {isa}: a row that {value} is not in");
        }
    }
}

#[test]
fn the_same_rows_have_the_same_bits_wherever_tiles_are_cut() {
    let threads = THREADS[0];
    let (pool, scratch) = (Pool::new(threads).unwrap(), Scratch::new(threads));
    let (m, n, k) = (64, 48, 1300);
    let (a, b) = (Operand::new(m, k, Storage::RowMajor, 1), Operand::new(k, n, Storage::RowMajor, 2));
    for (isa, unit) in units() {
        let run = |first: usize| {
            let mut c = vec![0.0; (m - first) * n];
            let mut columns = [Columns { b: b.view(), c: MatMut::row_major(&mut c, m - first, n) }];
            let (a, accumulate) = (a.view().rows_from(first, m - first), Accumulate::Overwrite);
            gemm_bf16(&pool, isa, unit, &scratch, Joined::columns_of(1.0, accumulate, a, &mut columns));
            c
        };
        assert!(same_bits(&run(0)[5 * n..], &run(5)), "{unit} {isa}");
    }
}
