//! Vectors of floats at each instruction-set level: the few operations that a product's inner loop is made of.

use crate::cpu::math;

/// A vector register's worth of floats. Every function is inlined into a caller compiled for the level.
///
/// # Safety
/// The functions may be called only where the CPU has the level's instructions, with pointers valid for the lanes they
/// touch. `first(n)` masks touch the first `n` lanes only.
pub unsafe trait Lanes {
    type Vector: Copy;
    type Mask: Copy;
    const LANES: usize;
    unsafe fn splat(value: f32) -> Self::Vector;
    unsafe fn load(from: *const f32) -> Self::Vector;
    unsafe fn first(lanes: usize) -> Self::Mask;
    unsafe fn load_masked(mask: Self::Mask, from: *const f32) -> Self::Vector;
    unsafe fn store_masked(mask: Self::Mask, to: *mut f32, value: Self::Vector);
    unsafe fn multiply(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a * b + c`, rounded once where the level has FMA.
    unsafe fn multiply_add(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    unsafe fn subtract(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The larger of each lane; `b` where either is NaN.
    unsafe fn larger(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `e^x` to within a few units in the last place; NaN stays NaN.
    unsafe fn exp(x: Self::Vector) -> Self::Vector;
    unsafe fn to_array(x: Self::Vector) -> [f32; 16];
    /// Asks for the cache line at an address that is needed soon; any address is allowed.
    unsafe fn prefetch(at: *const f32);
    /// As `prefetch`, for a line that is needed later.
    unsafe fn prefetch_to_l2(at: *const f32);
}

/// Plain Rust, eight lanes.
pub struct Portable;

// SAFETY: touches what the pointers of the trait's contract allow.
unsafe impl Lanes for Portable {
    type Vector = [f32; 8];
    type Mask = usize;
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(value: f32) -> [f32; 8] {
        [value; 8]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> [f32; 8] {
        // SAFETY: the caller vouches for eight lanes.
        unsafe { from.cast::<[f32; 8]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn first(lanes: usize) -> usize {
        lanes.min(8)
    }

    #[inline(always)]
    unsafe fn load_masked(mask: usize, from: *const f32) -> [f32; 8] {
        // SAFETY: the caller vouches for the masked lanes.
        std::array::from_fn(|lane| if lane < mask { unsafe { *from.add(lane) } } else { 0.0 })
    }

    #[inline(always)]
    unsafe fn store_masked(mask: usize, to: *mut f32, value: [f32; 8]) {
        for (lane, value) in value.into_iter().enumerate().take(mask) {
            // SAFETY: the caller vouches for the masked lanes.
            unsafe { *to.add(lane) = value };
        }
    }

    #[inline(always)]
    unsafe fn multiply(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| a[lane] * b[lane])
    }

    #[inline(always)]
    unsafe fn multiply_add(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| a[lane] * b[lane] + c[lane])
    }

    #[inline(always)]
    unsafe fn add(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| a[lane] + b[lane])
    }

    #[inline(always)]
    unsafe fn subtract(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| a[lane] - b[lane])
    }

    #[inline(always)]
    unsafe fn larger(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|lane| if a[lane] > b[lane] { a[lane] } else { b[lane] })
    }

    #[inline(always)]
    unsafe fn exp(x: [f32; 8]) -> [f32; 8] {
        x.map(math::exp)
    }

    #[inline(always)]
    unsafe fn to_array(x: [f32; 8]) -> [f32; 16] {
        std::array::from_fn(|lane| if lane < 8 { x[lane] } else { 0.0 })
    }

    #[inline(always)]
    unsafe fn prefetch(_at: *const f32) {}

    #[inline(always)]
    unsafe fn prefetch_to_l2(_at: *const f32) {}
}

#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Lanes;

    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    /// Of `(e^r - 1 - r) / r²`, highest power first.
    const POLYNOMIAL: [f32; 6] = [1.987_569_2e-4, 1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5e-1];
    /// Below and above, the result is zero or infinite.
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
                let power_of_two = |n: __m256i| {
                    _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(n, _mm256_set1_epi32(127))))
                };
                let result = _mm256_mul_ps(
                    _mm256_mul_ps(mantissa, power_of_two(half)),
                    power_of_two(_mm256_sub_epi32(whole, half)),
                );
                let low = _mm256_cmp_ps::<_CMP_LT_OQ>(x, _mm256_set1_ps(LOWEST));
                let high = _mm256_cmp_ps::<_CMP_GT_OQ>(x, _mm256_set1_ps(HIGHEST));
                let result = _mm256_andnot_ps(low, result);
                _mm256_blendv_ps(result, _mm256_set1_ps(f32::INFINITY), high)
            }
        }

        #[inline(always)]
        unsafe fn to_array(x: __m256) -> [f32; 16] {
            let mut all = [0.0; 16];
            // SAFETY: the array has room for eight lanes.
            unsafe { _mm256_storeu_ps(all.as_mut_ptr(), x) };
            all
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
        unsafe fn larger(a: __m512, b: __m512) -> __m512 {
            // SAFETY: the caller's CPU has AVX-512.
            unsafe { _mm512_max_ps(a, b) }
        }

        #[inline(always)]
        unsafe fn exp(x: __m512) -> __m512 {
            // SAFETY: the caller's CPU has AVX-512.
            unsafe {
                // Clamped a little further out: `scalef` itself gives zero or infinity there.
                let clamped = _mm512_max_ps(_mm512_set1_ps(-104.0), _mm512_min_ps(_mm512_set1_ps(89.0), x));
                let power = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(_mm512_mul_ps(
                    clamped,
                    _mm512_set1_ps(LOG2_E),
                ));
                let r = _mm512_fnmadd_ps(power, _mm512_set1_ps(LN2_HIGH), clamped);
                let r = _mm512_fnmadd_ps(power, _mm512_set1_ps(LN2_LOW), r);
                let mut poly = _mm512_set1_ps(POLYNOMIAL[0]);
                for coefficient in &POLYNOMIAL[1..] {
                    poly = _mm512_fmadd_ps(poly, r, _mm512_set1_ps(*coefficient));
                }
                let mantissa = _mm512_add_ps(_mm512_fmadd_ps(poly, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0));
                _mm512_scalef_ps(mantissa, power)
            }
        }

        #[inline(always)]
        unsafe fn to_array(x: __m512) -> [f32; 16] {
            let mut all = [0.0; 16];
            // SAFETY: the array has room for sixteen lanes.
            unsafe { _mm512_storeu_ps(all.as_mut_ptr(), x) };
            all
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
}
