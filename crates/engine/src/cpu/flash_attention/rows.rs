//! What happens to one row of scores, or of a head, at each instruction-set level.

#[cfg(target_arch = "x86_64")]
use super::super::gemm::lanes::{Avx2, Avx512};
use super::super::gemm::lanes::{Lanes, Portable};
use super::super::isa::Isa;
use super::super::math;
use crate::by_isa;

/// The first `seen` scores become `e^(score - largest)`, the rest zero; the largest and the sum.
pub fn soften(isa: Isa, scores: &mut [f32], seen: usize) -> (f32, f32) {
    let (visible, masked) = scores.split_at_mut(seen);
    masked.fill(0.0);
    match isa.runnable() {
        // SAFETY: `runnable` never exceeds what the CPU was found to have.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { soften_avx512(visible) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { soften_avx2(visible) },
        // SAFETY: plain Rust runs everywhere.
        _ => unsafe { soften_row::<Portable>(visible) },
    }
}

/// The first `seen` of `p` hold scores and become weights, those of `ds` hold the weights' gradients and become the
/// scores'; the rest becomes zero.
pub fn soften_gradient(isa: Isa, (lse, dot): (f32, f32), seen: usize, p: &mut [f32], ds: &mut [f32]) {
    let ((p, p_masked), (ds, ds_masked)) = (p.split_at_mut(seen), ds.split_at_mut(seen));
    p_masked.fill(0.0);
    ds_masked.fill(0.0);
    match isa.runnable() {
        // SAFETY: `runnable` never exceeds what the CPU was found to have.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { gradient_avx512(lse, dot, p, ds) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { gradient_avx2(lse, dot, p, ds) },
        // SAFETY: plain Rust runs everywhere.
        _ => unsafe { gradient_row::<Portable>(lse, dot, p, ds) },
    }
}

/// # Safety
/// Inlined into a function compiled for the level of `L`, on a CPU that has it.
#[inline(always)]
unsafe fn soften_row<L: Lanes>(x: &mut [f32]) -> (f32, f32) {
    let whole = x.len() / L::LANES * L::LANES;
    // SAFETY: whole vectors within the slice, then the rest under a mask.
    unsafe {
        let mut tops = L::splat(f32::NEG_INFINITY);
        for at in (0..whole).step_by(L::LANES) {
            tops = L::larger(L::load(x.as_ptr().add(at)), tops);
        }
        let tops = L::to_array(tops);
        let seen = tops[..L::LANES].iter().chain(&x[whole..]);
        let top = seen.copied().fold(f32::NEG_INFINITY, |a, b| if b > a { b } else { a });
        let (tops, mut sums) = (L::splat(top), L::splat(0.0));
        for at in (0..whole).step_by(L::LANES) {
            let at = x.as_mut_ptr().add(at);
            let value = L::exp(L::subtract(L::load(at), tops));
            sums = L::add(sums, value);
            L::store_masked(L::first(L::LANES), at, value);
        }
        let mut sum = 0.0;
        for lane in &L::to_array(sums)[..L::LANES] {
            sum += lane;
        }
        if whole < x.len() {
            let (mask, at) = (L::first(x.len() - whole), x.as_mut_ptr().add(whole));
            L::store_masked(mask, at, L::exp(L::subtract(L::load_masked(mask, at), tops)));
            for rest in &x[whole..] {
                sum += rest;
            }
        }
        (top, sum)
    }
}

/// # Safety
/// As [`soften_row`]; both slices have one length.
#[inline(always)]
unsafe fn gradient_row<L: Lanes>(lse: f32, dot: f32, p: &mut [f32], ds: &mut [f32]) {
    // SAFETY: masks end where the slices end.
    unsafe {
        let (lse, dot) = (L::splat(lse), L::splat(dot));
        for at in (0..p.len()).step_by(L::LANES) {
            let mask = L::first(p.len() - at);
            let (p, ds) = (p.as_mut_ptr().add(at), ds.as_mut_ptr().add(at));
            let weight = L::exp(L::subtract(L::load_masked(mask, p), lse));
            L::store_masked(mask, p, weight);
            L::store_masked(mask, ds, L::multiply(weight, L::subtract(L::load_masked(mask, ds), dot)));
        }
    }
}

/// # Safety
/// The CPU has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn soften_avx2(x: &mut [f32]) -> (f32, f32) {
    // SAFETY: compiled for the level.
    unsafe { soften_row::<Avx2>(x) }
}

/// # Safety
/// The CPU has AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn soften_avx512(x: &mut [f32]) -> (f32, f32) {
    // SAFETY: compiled for the level.
    unsafe { soften_row::<Avx512>(x) }
}

/// # Safety
/// The CPU has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn gradient_avx2(lse: f32, dot: f32, p: &mut [f32], ds: &mut [f32]) {
    // SAFETY: compiled for the level.
    unsafe { gradient_row::<Avx2>(lse, dot, p, ds) }
}

/// # Safety
/// The CPU has AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn gradient_avx512(lse: f32, dot: f32, p: &mut [f32], ds: &mut [f32]) {
    // SAFETY: compiled for the level.
    unsafe { gradient_row::<Avx512>(lse, dot, p, ds) }
}

by_isa! {
    pub fn dot(a: &[f32], b: &[f32]) -> f32 {
        math::dot(a, b)
    }

    pub fn scale_into(factor: f32, from: &[f32], to: &mut [f32]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = from * factor;
        }
    }

    /// Halves of a head turned against each other, and scaled; `sign` is -1 for the way back.
    pub fn turn(sign: f32, factor: f32, from: &[f32], cos: &[f32], sin: &[f32], to: &mut [f32]) {
        let half = cos.len();
        let ((a, b), (first, second)) = (from.split_at(half), to.split_at_mut(half));
        let (b, sin, second) = (&b[..half], &sin[..half], &mut second[..half]);
        for i in 0..half {
            let s = sign * sin[i];
            first[i] = (a[i] * cos[i] - b[i] * s) * factor;
            second[i] = (b[i] * cos[i] + a[i] * s) * factor;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_a_row_are_exact_exponentials_at_every_level() {
        for isa in Isa::available() {
            for seen in [1, 7, 8, 16, 33, 40] {
                let scores: Vec<f32> = (0..40).map(|i| (i * 37 % 40) as f32 * 2.5 - 60.0).collect();
                let mut weights = scores.clone();
                let (top, sum) = soften(isa, &mut weights, seen);
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
    fn special_scores_keep_their_meaning_at_every_level() {
        for isa in Isa::available() {
            let mut row = [0.0, f32::NEG_INFINITY, -200.0, f32::NAN];
            let (_, sum) = soften(isa, &mut row, 4);
            assert_eq!(row[..3], [1.0, 0.0, 0.0], "{isa}");
            assert!(row[3].is_nan() && sum.is_nan(), "{isa}: NaN stays");
            let (mut p, mut ds) = ([100.0; 20], [1.0; 20]);
            soften_gradient(isa, (0.0, 0.0), 20, &mut p, &mut ds);
            assert_eq!(p, [f32::INFINITY; 20], "{isa}");
        }
    }
}
