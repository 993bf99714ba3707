//! Packs pieces of single-precision operands into the layouts that tiles are multiplied in, each number as three
//! bfloat16 numbers that add up to it.
//!
//! The first is the number rounded to its 8 leading bits, the second the rounded remainder, the third what then
//! remains: 24 bits in all, so nothing is lost (except for numbers below bfloat16's range). A unit of a panel is three
//! units of [`super::pack`], one part after the other.
//!
//! Non-finite numbers go into the third part, with zeros in the others. The third part is multiplied only with the
//! first part of the other operand, so infinity times a number has the sign of that number, and times zero is NaN.

use std::arch::x86_64::*;
use std::ops::Range;

use super::pack::{SIDE, UNIT, UNIT_NUMBERS, VECTOR, for_each_half, mask, transpose};
use crate::cpu::gemm::matrix::MatRef;
use crate::cpu::gemm::pack::copy_elements;

/// Number of parts that a number is split into.
pub const PARTS: usize = 3;

/// The bits that bfloat16 keeps.
const KEPT: i32 = 0xffff_0000_u32 as i32;
/// The largest bfloat16 number.
const LARGEST: f32 = f32::from_bits(0x7f7f_0000);

/// Up to 16 numbers for each step of depth.
#[repr(align(64))]
struct Transposed([f32; VECTOR * UNIT]);

/// Packs `a[rows, depth]`, panel after panel.
///
/// # Safety
/// The ranges lie within `a`, `to` has room for the depth's units, and the CPU has AVX-512 with BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub unsafe fn pack_left(a: &MatRef, rows: &Range<usize>, depth: &Range<usize>, to: *mut u16) {
    // SAFETY: the first element of the piece.
    let from = unsafe { a.ptr.add(rows.start * a.row_stride + depth.start * a.col_stride) };
    let units = depth.len().div_ceil(UNIT);
    for_each_half(rows.len(), units, a.col_stride == 1, |half, unit| {
        let steps = UNIT.min(depth.len() - unit * UNIT);
        let count = rows.len().saturating_sub(half * VECTOR).min(VECTOR);
        // SAFETY: `count` rows and `steps` steps of the piece, by the matrix's own strides; the destination belongs to
        // the unit.
        unsafe {
            let from = from.wrapping_add(half * VECTOR * a.row_stride + unit * UNIT * a.col_stride);
            let to = to.add((half / 2 * units + unit) * PARTS * UNIT_NUMBERS + half % 2 * VECTOR * UNIT);
            if a.col_stride == 1 {
                along(from, a.row_stride, count, steps, to);
            } else {
                let mut transposed = Transposed([0.0; VECTOR * UNIT]);
                let at = transposed.0.as_mut_ptr();
                if a.row_stride == 1 {
                    let first = steps.min(VECTOR);
                    turn(from, a.col_stride, first, count, at, UNIT);
                    let second = from.wrapping_add(VECTOR * a.col_stride);
                    turn(second, a.col_stride, steps - first, count, at.add(VECTOR), UNIT);
                } else {
                    copy_elements(from, (a.row_stride, a.col_stride), count, steps, at, UNIT);
                }
                along(at, UNIT, VECTOR, UNIT, to);
            }
        }
    });
}

/// Packs `b[depth, columns]`, at most [`SIDE`] columns.
///
/// # Safety
/// As [`pack_left`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub unsafe fn pack_right(b: &MatRef, depth: &Range<usize>, columns: &Range<usize>, to: *mut u16) {
    // SAFETY: the first element of the piece.
    let from = unsafe { b.ptr.add(depth.start * b.row_stride + columns.start * b.col_stride) };
    for unit in 0..depth.len().div_ceil(UNIT) {
        let steps = UNIT.min(depth.len() - unit * UNIT);
        for half in 0..SIDE / VECTOR {
            let count = columns.len().saturating_sub(half * VECTOR).min(VECTOR);
            // SAFETY: `steps` steps and `count` columns of the piece, by the matrix's own strides; the destination
            // belongs to the unit.
            unsafe {
                let from = from.wrapping_add(half * VECTOR * b.col_stride + unit * UNIT * b.row_stride);
                let to = to.add(unit * PARTS * UNIT_NUMBERS + half * UNIT);
                if b.col_stride == 1 {
                    across(from, b.row_stride, count, steps, to);
                } else {
                    let mut transposed = Transposed([0.0; VECTOR * UNIT]);
                    let at = transposed.0.as_mut_ptr();
                    if b.row_stride == 1 {
                        let first = steps.min(VECTOR);
                        turn(from, b.col_stride, count, first, at, VECTOR);
                        let second = from.wrapping_add(VECTOR);
                        turn(second, b.col_stride, count, steps - first, at.add(VECTOR * VECTOR), VECTOR);
                    } else {
                        copy_elements(from, (b.row_stride, b.col_stride), steps, count, at, VECTOR);
                    }
                    across(at, VECTOR, VECTOR, UNIT, to);
                }
            }
        }
    }
}

/// Rows with contiguous steps, padded with zeros.
///
/// # Safety
/// As [`pack_left`], for `count` rows of `steps` steps.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn along(from: *const f32, stride: usize, count: usize, steps: usize, to: *mut u16) {
    let (low, high) = (mask(steps), mask(steps.saturating_sub(VECTOR)));
    // The upper halves of 16 numbers, then of 16 more.
    let upper = _mm512_set_epi16(
        63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9,
        7, 5, 3, 1,
    );
    for row in 0..VECTOR {
        let present = if row < count { !0 } else { 0 };
        let from = from.wrapping_add(row * stride);
        // SAFETY: masked to existing elements.
        let (first, second) = unsafe {
            let first = _mm512_maskz_loadu_ps(low & present, from);
            (parts(first), parts(_mm512_maskz_loadu_ps(high & present, from.wrapping_add(VECTOR))))
        };
        for part in 0..PARTS {
            // SAFETY: the destination belongs to the row, in each part.
            unsafe {
                let run = _mm512_permutex2var_epi16(first[part], upper, second[part]);
                _mm512_storeu_si512(to.add(part * UNIT_NUMBERS + row * UNIT).cast(), run);
            }
        }
    }
}

/// 16 pairs of steps, each up to 16 neighbours of two numbers.
///
/// # Safety
/// As [`pack_right`], for `steps` steps of `count` neighbours.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn across(from: *const f32, stride: usize, count: usize, steps: usize, to: *mut u16) {
    let present = mask(count);
    for pair in 0..UNIT / 2 {
        let step = 2 * pair;
        let first = if step < steps { present } else { 0 };
        let second = if step + 1 < steps { present } else { 0 };
        let from = from.wrapping_add(step * stride);
        // SAFETY: masked to existing elements.
        let (first, second) = unsafe {
            let first = _mm512_maskz_loadu_ps(first, from);
            (parts(first), parts(_mm512_maskz_loadu_ps(second, from.wrapping_add(stride))))
        };
        fetch(from.wrapping_add(UNIT * stride));
        fetch(from.wrapping_add((UNIT + 1) * stride));
        for part in 0..PARTS {
            let below = _mm512_srli_epi32::<16>(first[part]);
            // (second & kept) | below
            let both = _mm512_ternarylogic_epi32::<0b1110_1100>(second[part], below, _mm512_set1_epi32(KEPT));
            // SAFETY: the destination belongs to the pair, in each part.
            unsafe { _mm512_storeu_si512(to.add(part * UNIT_NUMBERS + pair * 2 * SIDE).cast(), both) };
        }
    }
}

/// Prefetches what the next unit reads.
#[inline(always)]
fn fetch(at: *const f32) {
    // SAFETY: any address may be prefetched.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
}

/// Each number's three parts, in the upper half of its bits; ignore the lower half of the third.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn parts(x: __m512) -> [__m512i; PARTS] {
    let unusual = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(_mm512_abs_ps(x), _mm512_set1_ps(LARGEST));
    if unusual != 0 {
        return unusual_parts(x, unusual);
    }
    let first = nearest(x);
    let missing = _mm512_sub_ps(x, _mm512_castsi512_ps(first));
    let second = nearest(missing);
    let third = _mm512_sub_ps(missing, _mm512_castsi512_ps(second));
    [first, second, _mm512_castps_si512(third)]
}

/// The nearest bfloat16 number.
#[inline]
#[target_feature(enable = "avx512f")]
fn nearest(x: __m512) -> __m512i {
    let half = _mm512_set1_epi32(0x8000);
    _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(x), half), _mm512_set1_epi32(KEPT))
}

/// Splits when some numbers would round to infinity, or are not finite.
#[cold]
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn unusual_parts(x: __m512, unusual: __mmask16) -> [__m512i; PARTS] {
    let bits = _mm512_castps_si512(x);
    let finite = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(_mm512_abs_ps(x), _mm512_set1_ps(f32::INFINITY));
    let cut = _mm512_and_si512(bits, _mm512_set1_epi32(KEPT));
    let first = _mm512_maskz_mov_epi32(finite, _mm512_mask_mov_epi32(nearest(x), unusual, cut));
    let missing = _mm512_maskz_sub_ps(finite, x, _mm512_castsi512_ps(first));
    let second = nearest(missing);
    let third = _mm512_castps_si512(_mm512_sub_ps(missing, _mm512_castsi512_ps(second)));
    // A NaN whose payload lies in the lower half must not become infinity.
    let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
    let kept = _mm512_mask_or_epi32(bits, nan, bits, _mm512_set1_epi32(1 << 22));
    [first, second, _mm512_mask_mov_epi32(third, !finite, kept)]
}

/// Up to 16 runs of up to 16 numbers, transposed; missing ones are zero.
///
/// # Safety
/// `runs` runs of `length` numbers, `stride` apart, can be read, and 16 runs of 16 written, `to_stride` apart.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn turn(from: *const f32, stride: usize, runs: usize, length: usize, to: *mut f32, to_stride: usize) {
    let present = mask(length);
    let mut all = [_mm512_setzero_si512(); VECTOR];
    for (index, run) in all.iter_mut().enumerate().take(runs) {
        // SAFETY: masked to existing elements.
        *run = unsafe { _mm512_maskz_loadu_epi32(present, from.wrapping_add(index * stride).cast()) };
        fetch(from.wrapping_add((index + UNIT) * stride));
    }
    transpose(&mut all);
    for (index, run) in all.iter().enumerate() {
        // SAFETY: the caller vouches for it.
        unsafe { _mm512_storeu_si512(to.add(index * to_stride).cast(), *run) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::isa::Isa;

    /// Three parts of one number, as the packed left operand holds them.
    fn packed(x: f32) -> [f32; PARTS] {
        let mut to = vec![0_u16; PARTS * UNIT_NUMBERS];
        let from = [x];
        // SAFETY: one number, room for a unit, and the level was checked.
        unsafe { pack_left(&MatRef::row_major(&from, 1, 1), &(0..1), &(0..1), to.as_mut_ptr()) };
        [0, 1, 2].map(|part| f32::from_bits(u32::from(to[part * UNIT_NUMBERS]) << 16))
    }

    #[test]
    fn parts_add_up_to_the_number_to_the_last_bit() {
        if Isa::detect() < Isa::Avx512 {
            return;
        }
        let mut bits = 1_u32;
        for _ in 0..200_000 {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let x = f32::from_bits(bits);
            // Below this, the third part is smaller than any bfloat16 number.
            if !x.is_finite() || x.abs() < 1e-30 {
                continue;
            }
            let [first, second, third] = packed(x);
            assert_eq!(f64::from(first) + f64::from(second) + f64::from(third), f64::from(x), "{x:e}");
            assert!(second.abs() <= first.abs() / 128.0 && third.abs() <= first.abs() / 32768.0, "{x:e}");
        }
        assert_eq!(packed(f32::MAX).map(f64::from).iter().sum::<f64>(), f64::from(f32::MAX));
        assert_eq!(packed(f32::NEG_INFINITY), [0.0, 0.0, f32::NEG_INFINITY]);
        assert!(packed(f32::from_bits(0x7f80_0001))[2].is_nan());
    }
}
