//! AVX2 and AVX-512 vectors.

use std::arch::x86_64::*;

use super::Lanes;

const LOG2_E: f32 = std::f32::consts::LOG2_E;
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Coefficients of `(e^r - 1 - r) / r²`, highest power first.
const POLYNOMIAL: [f32; 6] = [1.987_569_2e-4, 1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5e-1];
/// Outside this range, the result is zero or infinity.
const LOWEST: f32 = -87.336_54;
const HIGHEST: f32 = 88.722_83;

/// 256-bit registers with FMA.
pub struct Avx2;

// SAFETY: intrinsics that touch what the trait's contract allows.
unsafe impl Lanes for Avx2 {
    type Vector = __m256;
    type Mask = __m256i;
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m256 {
        // SAFETY: the caller's CPU has AVX2.
        unsafe { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m256 {
        // SAFETY: the caller vouches for the CPU and for eight lanes.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, value: __m256) {
        // SAFETY: the caller vouches for the CPU and for eight lanes.
        unsafe { _mm256_storeu_ps(to, value) }
    }

    #[inline(always)]
    unsafe fn first(lanes: usize) -> __m256i {
        // SAFETY: the caller's CPU has AVX2.
        unsafe {
            let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes.min(8) as i32), lane)
        }
    }

    #[inline(always)]
    unsafe fn load_masked(mask: __m256i, from: *const f32) -> __m256 {
        // SAFETY: the caller vouches for the CPU and the masked lanes.
        unsafe { _mm256_maskload_ps(from, mask) }
    }

    #[inline(always)]
    unsafe fn store_masked(mask: __m256i, to: *mut f32, value: __m256) {
        // SAFETY: the caller vouches for the CPU and the masked lanes.
        unsafe { _mm256_maskstore_ps(to, mask, value) }
    }

    #[inline(always)]
    unsafe fn multiply(a: __m256, b: __m256) -> __m256 {
        // SAFETY: the caller's CPU has AVX2.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn multiply_add(a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: the caller's CPU has FMA.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        // SAFETY: the caller's CPU has AVX2.
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn subtract(a: __m256, b: __m256) -> __m256 {
        // SAFETY: the caller's CPU has AVX2.
        unsafe { _mm256_sub_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn divide(a: __m256, b: __m256) -> __m256 {
        // SAFETY: the caller's CPU has AVX2.
        unsafe { _mm256_div_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn larger(a: __m256, b: __m256) -> __m256 {
        // SAFETY: the caller's CPU has AVX2.
        unsafe { _mm256_max_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn exp(x: __m256) -> __m256 {
        // SAFETY: the caller's CPU has AVX2 and FMA.
        unsafe {
            let clamped = _mm256_max_ps(_mm256_set1_ps(LOWEST), _mm256_min_ps(_mm256_set1_ps(HIGHEST), x));
            let power = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(_mm256_mul_ps(
                clamped,
                _mm256_set1_ps(LOG2_E),
            ));
            let r = _mm256_fnmadd_ps(power, _mm256_set1_ps(LN2_HIGH), clamped);
            let r = _mm256_fnmadd_ps(power, _mm256_set1_ps(LN2_LOW), r);
            let mut poly = _mm256_set1_ps(POLYNOMIAL[0]);
            for coefficient in &POLYNOMIAL[1..] {
                poly = _mm256_fmadd_ps(poly, r, _mm256_set1_ps(*coefficient));
            }
            let mantissa = _mm256_add_ps(_mm256_fmadd_ps(poly, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0));
            // In two halves: 2^128 has no exponent of its own.
            let whole = _mm256_cvtps_epi32(power);
            let half = _mm256_srai_epi32::<1>(whole);
            let power_of_two =
                |n: __m256i| _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(n, _mm256_set1_epi32(127))));
            let result =
                _mm256_mul_ps(_mm256_mul_ps(mantissa, power_of_two(half)), power_of_two(_mm256_sub_epi32(whole, half)));
            let low = _mm256_cmp_ps::<_CMP_LT_OQ>(x, _mm256_set1_ps(LOWEST));
            let high = _mm256_cmp_ps::<_CMP_GT_OQ>(x, _mm256_set1_ps(HIGHEST));
            let result = _mm256_andnot_ps(low, result);
            _mm256_blendv_ps(result, _mm256_set1_ps(f32::INFINITY), high)
        }
    }

    #[inline(always)]
    unsafe fn total(x: __m256) -> f32 {
        // SAFETY: the caller's CPU has AVX2.
        unsafe {
            let four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }

    #[inline(always)]
    unsafe fn largest(x: __m256) -> f32 {
        // SAFETY: the caller's CPU has AVX2.
        unsafe {
            let four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const f32) {
        // SAFETY: a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    unsafe fn prefetch_to_l2(at: *const f32) {
        // SAFETY: a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
    }
}

/// 512-bit registers.
pub struct Avx512;

// SAFETY: intrinsics that touch what the trait's contract allows.
unsafe impl Lanes for Avx512 {
    type Vector = __m512;
    type Mask = __mmask16;
    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m512 {
        // SAFETY: the caller's CPU has AVX-512.
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        // SAFETY: the caller vouches for the CPU and for sixteen lanes.
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, value: __m512) {
        // SAFETY: the caller vouches for the CPU and for sixteen lanes.
        unsafe { _mm512_storeu_ps(to, value) }
    }

    #[inline(always)]
    unsafe fn first(lanes: usize) -> __mmask16 {
        if lanes >= 16 { !0 } else { (1 << lanes) - 1 }
    }

    #[inline(always)]
    unsafe fn load_masked(mask: __mmask16, from: *const f32) -> __m512 {
        // SAFETY: the caller vouches for the CPU and the masked lanes.
        unsafe { _mm512_maskz_loadu_ps(mask, from) }
    }

    #[inline(always)]
    unsafe fn store_masked(mask: __mmask16, to: *mut f32, value: __m512) {
        // SAFETY: the caller vouches for the CPU and the masked lanes.
        unsafe { _mm512_mask_storeu_ps(to, mask, value) }
    }

    #[inline(always)]
    unsafe fn multiply(a: __m512, b: __m512) -> __m512 {
        // SAFETY: the caller's CPU has AVX-512.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn multiply_add(a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: the caller's CPU has AVX-512.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        // SAFETY: the caller's CPU has AVX-512.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn subtract(a: __m512, b: __m512) -> __m512 {
        // SAFETY: the caller's CPU has AVX-512.
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn divide(a: __m512, b: __m512) -> __m512 {
        // SAFETY: the caller's CPU has AVX-512.
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn larger(a: __m512, b: __m512) -> __m512 {
        // SAFETY: the caller's CPU has AVX-512.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn exp(x: __m512) -> __m512 {
        // SAFETY: the caller's CPU has AVX-512.
        unsafe {
            // Clamped slightly further out: `scalef` itself gives zero or infinity there.
            let clamped = _mm512_max_ps(_mm512_set1_ps(-104.0), _mm512_min_ps(_mm512_set1_ps(89.0), x));
            // The sum has no bits left for a fraction, so it is rounded to the nearest integer.
            let whole = _mm512_set1_ps(1.5 * (1 << 23) as f32);
            let power = _mm512_sub_ps(_mm512_fmadd_ps(clamped, _mm512_set1_ps(LOG2_E), whole), whole);
            let r = _mm512_fnmadd_ps(power, _mm512_set1_ps(LN2_HIGH), clamped);
            let r = _mm512_fnmadd_ps(power, _mm512_set1_ps(LN2_LOW), r);
            let mut poly = _mm512_set1_ps(POLYNOMIAL[0]);
            for coefficient in &POLYNOMIAL[1..] {
                poly = _mm512_fmadd_ps(poly, r, _mm512_set1_ps(*coefficient));
            }
            let one = _mm512_set1_ps(1.0);
            let mantissa = _mm512_fmadd_ps(_mm512_fmadd_ps(poly, r, one), r, one);
            _mm512_scalef_ps(mantissa, power)
        }
    }

    #[inline(always)]
    unsafe fn total(x: __m512) -> f32 {
        // SAFETY: the caller's CPU has AVX-512.
        unsafe { _mm512_reduce_add_ps(x) }
    }

    #[inline(always)]
    unsafe fn largest(x: __m512) -> f32 {
        // SAFETY: the caller's CPU has AVX-512.
        unsafe { _mm512_reduce_max_ps(x) }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const f32) {
        // SAFETY: a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    unsafe fn prefetch_to_l2(at: *const f32) {
        // SAFETY: a prefetch of any address is harmless.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
    }
}
