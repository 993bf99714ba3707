//! Kernels over rows of scores, or of a head, at each instruction-set level; each call processes several rows.

use crate::by_isa;
use crate::cpu::gemm::MatMut;
use crate::cpu::lanes::{Lanes, by_lanes};
use crate::cpu::math;

/// Statistics (largest score, sum) of a row that has seen no keys yet.
pub const BEFORE_ANY: (f32, f32) = (f32::NEG_INFINITY, 0.0);

/// Rows of scores: one for each entry of `figures`, with stride `stride`; row `i` sees `seen + i` keys, clamped to
/// `0..=keys`.
#[derive(Clone, Copy)]
pub struct Rows {
    pub stride: usize,
    pub seen: isize,
    pub keys: usize,
}

impl Rows {
    #[inline(always)]
    fn seen_by(&self, row: usize) -> usize {
        (self.seen + row as isize).clamp(0, self.keys as isize) as usize
    }
}

by_lanes! {
    /// Replaces the scores that a row sees by `e^(score - largest)`, and the rest of its keys by zero. On entry
    /// `figures` hold the largest score of earlier keys; on return, the overall largest and the sum over these keys.
    pub fn online_softmax<L>(scores: &mut [f32], rows: Rows, figures: &mut [(f32, f32)]) {
        for (index, (scores, figures)) in scores.chunks_mut(rows.stride).zip(figures).enumerate() {
            let (x, masked) = scores[..rows.keys].split_at_mut(rows.seen_by(index));
            masked.fill(0.0);
            let whole = x.len() / L::LANES * L::LANES;
            // SAFETY: whole vectors within the slice, then the rest under a mask.
            unsafe {
                // Four independent chains hide the latency; a single one would wait for itself at every vector.
                let mut tops = [L::splat(f32::NEG_INFINITY); 4];
                let fours = whole / (4 * L::LANES) * (4 * L::LANES);
                for at in (0..fours).step_by(4 * L::LANES) {
                    for (chain, tops) in tops.iter_mut().enumerate() {
                        *tops = L::larger(L::load(x.as_ptr().add(at + chain * L::LANES)), *tops);
                    }
                }
                for at in (fours..whole).step_by(L::LANES) {
                    tops[0] = L::larger(L::load(x.as_ptr().add(at)), tops[0]);
                }
                let mut top = L::largest(L::larger(L::larger(tops[0], tops[1]), L::larger(tops[2], tops[3])));
                for &x in &x[whole..] {
                    top = if x > top { x } else { top };
                }
                top = if top > figures.0 { top } else { figures.0 };
                let (tops, mut sums) = (L::splat(top), L::splat(0.0));
                for at in (0..whole).step_by(L::LANES) {
                    let at = x.as_mut_ptr().add(at);
                    let value = L::exp(L::subtract(L::load(at), tops));
                    sums = L::add(sums, value);
                    L::store(at, value);
                }
                let mut sum = L::total(sums);
                if whole < x.len() {
                    let (mask, at) = (L::first(x.len() - whole), x.as_mut_ptr().add(whole));
                    L::store_masked(mask, at, L::exp(L::subtract(L::load_masked(mask, at), tops)));
                    for rest in &x[whole..] {
                        sum += rest;
                    }
                }
                *figures = (top, sum);
            }
        }
    }

    /// Merges the online-softmax statistics of earlier key blocks (`so_far`) into those that [`online_softmax`]
    /// computed for the next block, and rescales `mixed`, with row stride `stride`, to the new largest score.
    pub fn merge_statistics<L>(so_far: &[(f32, f32)], figures: &mut [(f32, f32)], mixed: &mut [f32], stride: usize) {
        for ((so_far, figures), mixed) in so_far.iter().zip(figures).zip(mixed.chunks_mut(stride)) {
            let mut factor = 1.0;
            if figures.0 > so_far.0 {
                let mixed = &mut mixed[..stride];
                // SAFETY: masks stop at the end of the row.
                unsafe {
                    let factors = L::exp(L::splat(so_far.0 - figures.0));
                    for at in (0..stride).step_by(L::LANES) {
                        let (mask, at) = (L::first(stride - at), mixed.as_mut_ptr().add(at));
                        L::store_masked(mask, at, L::multiply(factors, L::load_masked(mask, at)));
                    }
                    factor = L::largest(factors);
                }
            }
            figures.1 += factor * so_far.1;
        }
    }

    /// Replaces the scores that a row of `p` sees by weights, and the weights' gradients in `ds` by the scores'
    /// gradients; the rest becomes zero. `figures` hold the row's logsumexp and `dout · out`.
    pub fn softmax_gradient<L>(p: &mut [f32], ds: &mut [f32], rows: Rows, figures: &[(f32, f32)]) {
        let both = p.chunks_mut(rows.stride).zip(ds.chunks_mut(rows.stride));
        for (index, ((p, ds), figures)) in both.zip(figures).enumerate() {
            let seen = rows.seen_by(index);
            p[seen..rows.keys].fill(0.0);
            ds[seen..rows.keys].fill(0.0);
            let (p, ds) = (&mut p[..seen], &mut ds[..seen]);
            // SAFETY: masks stop at the end of the slices, which have the same length.
            unsafe {
                let (lse, dot) = (L::splat(figures.0), L::splat(figures.1));
                for at in (0..seen).step_by(L::LANES) {
                    let mask = L::first(seen - at);
                    let (p, ds) = (p.as_mut_ptr().add(at), ds.as_mut_ptr().add(at));
                    let weight = L::exp(L::subtract(L::load_masked(mask, p), lse));
                    L::store_masked(mask, p, weight);
                    L::store_masked(mask, ds, L::multiply(weight, L::subtract(L::load_masked(mask, ds), dot)));
                }
            }
        }
    }

    /// Copies rows with stride `from_stride`, scaled.
    pub fn copy<L>(factor: f32, from: &[f32], from_stride: usize, to: MatMut) {
        let mut to = to;
        for row in 0..to.rows() {
            // SAFETY: this level's own vectors.
            unsafe { scale_row::<L>(L::splat(factor), &from[row * from_stride..], to.row(row)) };
        }
    }

    /// Divides each row by its sum, the second of its figures.
    pub fn divide<L>(figures: &[(f32, f32)], from: &[f32], from_stride: usize, to: MatMut) {
        let mut to = to;
        for (row, (_, sum)) in figures.iter().enumerate() {
            // SAFETY: this level's own vectors.
            unsafe { scale_row::<L>(L::splat(1.0 / sum), &from[row * from_stride..], to.row(row)) };
        }
    }

    /// Rotates the halves of each row against each other, and scales; `sign` is -1 for the inverse. Row `i` uses row
    /// `i` of the tables.
    pub fn turn<L>(sign: f32, factor: f32, from: &[f32], from_stride: usize, tables: (&[f32], &[f32]), to: MatMut) {
        let mut to = to;
        // SAFETY: each row is cut out of its slice; masks stop at the end of its halves.
        unsafe {
            let (sign, factor) = (L::splat(sign * factor), L::splat(factor));
            for row in 0..to.rows() {
                let to = to.row(row);
                let half = to.len() / 2;
                let from = &from[row * from_stride..][..2 * half];
                let (cos, sin) = (&tables.0[row * half..][..half], &tables.1[row * half..][..half]);
                for at in (0..half).step_by(L::LANES) {
                    let mask = L::first(half - at);
                    let a = L::load_masked(mask, from.as_ptr().add(at));
                    let b = L::load_masked(mask, from.as_ptr().add(half + at));
                    let cos = L::multiply(factor, L::load_masked(mask, cos.as_ptr().add(at)));
                    let sin = L::multiply(sign, L::load_masked(mask, sin.as_ptr().add(at)));
                    let first = L::subtract(L::multiply(a, cos), L::multiply(b, sin));
                    L::store_masked(mask, to.as_mut_ptr().add(at), first);
                    let second = L::add(L::multiply(b, cos), L::multiply(a, sin));
                    L::store_masked(mask, to.as_mut_ptr().add(half + at), second);
                }
            }
        }
    }
}

/// Scales as many elements as the target has.
///
/// # Safety
/// Inlined into a function compiled for the level of `L`.
#[inline(always)]
unsafe fn scale_row<L: Lanes>(factor: L::Vector, from: &[f32], to: &mut [f32]) {
    let from = &from[..to.len()];
    for at in (0..to.len()).step_by(L::LANES) {
        // SAFETY: masks stop at the end of both slices.
        unsafe {
            let mask = L::first(to.len() - at);
            let value = L::multiply(factor, L::load_masked(mask, from.as_ptr().add(at)));
            L::store_masked(mask, to.as_mut_ptr().add(at), value);
        }
    }
}

by_isa! {
    pub fn dot(a: &[f32], b: &[f32]) -> f32 {
        math::dot(a, b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::isa::Isa;

    #[test]
    fn weights_of_a_row_are_exact_exponentials_at_every_level() {
        for isa in Isa::available() {
            for seen in [1, 7, 8, 16, 33, 40] {
                let scores: Vec<f32> = (0..40).map(|i| (i * 37 % 40) as f32 * 2.5 - 60.0).collect();
                let mut weights = scores.clone();
                let mut figures = [BEFORE_ANY];
                let rows = Rows { stride: 40, seen: seen as isize, keys: 40 };
                online_softmax(isa, &mut weights, rows, &mut figures);
                let [(top, sum)] = figures;
                let want_top = scores[..seen].iter().copied().fold(f32::NEG_INFINITY, f32::max);
                assert_eq!(top, want_top, "{isa} {seen}");
                let want: Vec<f64> = scores[..seen].iter().map(|x| f64::from(x - top).exp()).collect();
                for (have, want) in weights.iter().zip(&want) {
                    let error = (f64::from(*have) - want).abs();
                    assert!(error <= 5e-7 * want + 1e-37, "{isa} {seen}: {have} is not {want}");
                }
                assert!((f64::from(sum) - want.iter().sum::<f64>()).abs() <= 1e-6 * want.iter().sum::<f64>());
                assert!(weights[seen..].iter().all(|x| *x == 0.0), "{isa} {seen}: masked weights are zero");
            }
        }
    }

    #[test]
    fn keys_in_two_parts_are_weighed_as_those_of_one() {
        for isa in Isa::available() {
            // The largest score is in the first part, or in the second.
            for scores in [[3.0f32, -2.0, 1.0, 2.5, 0.0, -40.0], [-3.0, -2.0, 1.0, 2.5, 9.0, -40.0]] {
                let (mut first, mut second) = ([scores[0], scores[1], scores[2]], [scores[3], scores[4], scores[5]]);
                let (mut figures, mut mixed) = ([BEFORE_ANY], [0.0; 16]);
                let rows = Rows { stride: 3, seen: 3, keys: 3 };
                online_softmax(isa, &mut first, rows, &mut figures);
                mixed.fill(first.iter().sum());
                let so_far = figures;
                online_softmax(isa, &mut second, rows, &mut figures);
                merge_statistics(isa, &so_far, &mut figures, &mut mixed, 16);
                let [(top, sum)] = figures;
                let want_top = scores.into_iter().fold(f32::NEG_INFINITY, f32::max);
                let want: f64 = scores.iter().map(|x| f64::from(x - want_top).exp()).sum();
                assert_eq!(top, want_top, "{isa}");
                assert!((f64::from(sum) - want).abs() <= 1e-6 * want, "{isa}: {sum} is not {want}");
                let all = mixed[7] + second.iter().sum::<f32>();
                assert!((f64::from(all) - want).abs() <= 1e-6 * want, "{isa}: {all} is not {want}");
            }
            let (mut none, mut figures, mut mixed) = ([7.0; 3], [(1.0, 2.0)], [5.0; 16]);
            let so_far = figures;
            online_softmax(isa, &mut none, Rows { stride: 3, seen: -4, keys: 3 }, &mut figures);
            merge_statistics(isa, &so_far, &mut figures, &mut mixed, 16);
            assert_eq!((none, figures, mixed), ([0.0; 3], [(1.0, 2.0)], [5.0; 16]), "{isa}: no key changes nothing");
        }
    }

    #[test]
    fn special_scores_keep_their_meaning_at_every_level() {
        for isa in Isa::available() {
            let mut row = [0.0, f32::NEG_INFINITY, -200.0, f32::NAN];
            let mut figures = [BEFORE_ANY];
            online_softmax(isa, &mut row, Rows { stride: 4, seen: 4, keys: 4 }, &mut figures);
            let [(_, sum)] = figures;
            assert_eq!(row[..3], [1.0, 0.0, 0.0], "{isa}");
            assert!(row[3].is_nan() && sum.is_nan(), "{isa}: NaN stays");
            let (mut p, mut ds) = ([100.0; 20], [1.0; 20]);
            softmax_gradient(isa, &mut p, &mut ds, Rows { stride: 20, seen: 20, keys: 20 }, &[(0.0, 0.0)]);
            assert_eq!(p, [f32::INFINITY; 20], "{isa}");
        }
    }
}
