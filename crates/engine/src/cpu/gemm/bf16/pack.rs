//! Packs pieces of single-precision operands, rounded to bfloat16 (nearest, ties to even), into the layouts that tiles
//! are multiplied in.
//!
//! A *panel* is [`SIDE`] rows of the left operand or [`SIDE`] columns of the right one. Depth is cut into *units* of
//! [`UNIT`]; the last unit may be padded with zeros, as may a panel. A unit of a panel is 2 KiB either way:
//!
//! - left: row after row, 32 numbers each;
//! - right: 16 pairs of steps, each pair 32 columns of two numbers.

use std::arch::x86_64::*;
use std::ops::Range;

use crate::cpu::gemm::matrix::MatRef;

/// Rows or columns of a panel.
pub const SIDE: usize = 32;
/// Steps of depth that one tile instruction takes.
pub const UNIT: usize = 32;
/// Numbers in a unit of a panel.
pub const UNIT_NUMBERS: usize = SIDE * UNIT;

pub const VECTOR: usize = 16;

/// Mask of the lanes that hold data.
pub fn mask(lanes: usize) -> __mmask16 {
    if lanes >= VECTOR { !0 } else { (1 << lanes) - 1 }
}

/// Packs `a[rows, depth]`, panel after panel.
///
/// # Safety
/// The ranges lie within `a`, `to` has room for the depth's units, and the CPU has AVX-512 with BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub unsafe fn pack_left(a: &MatRef, rows: &Range<usize>, depth: &Range<usize>, to: *mut u16) {
    let units = depth.len().div_ceil(UNIT);
    // SAFETY: the first element of the piece.
    let from = unsafe { a.ptr.add(rows.start * a.row_stride + depth.start * a.col_stride) };
    for_each_half(rows.len(), units, a.col_stride == 1, |half, unit| {
        let steps = UNIT.min(depth.len() - unit * UNIT);
        let count = rows.len().saturating_sub(half * VECTOR).min(VECTOR);
        // SAFETY: `count` rows and `steps` steps of the piece, by the matrix's own strides; the destination belongs to
        // the unit.
        unsafe {
            let from = from.wrapping_add(half * VECTOR * a.row_stride + unit * UNIT * a.col_stride);
            let to = to.add((half / 2 * units + unit) * UNIT_NUMBERS + half % 2 * VECTOR * UNIT);
            if a.col_stride == 1 {
                along(from, a.row_stride, count, steps, to);
            } else if a.row_stride == 1 {
                let mut pairs = across(from, a.col_stride, count, steps);
                transpose(&mut pairs);
                store(&pairs, to, UNIT);
            } else {
                let mut pairs = gathered(from, (a.col_stride, a.row_stride), count, steps);
                transpose(&mut pairs);
                store(&pairs, to, UNIT);
            }
        }
    });
}

/// Iterates over halves of panels × units, in the operand's memory order.
#[inline(always)]
pub fn for_each_half(rows: usize, units: usize, along: bool, mut each: impl FnMut(usize, usize)) {
    let halves = rows.div_ceil(SIDE) * (SIDE / VECTOR);
    if along {
        (0..halves).for_each(|half| (0..units).for_each(|unit| each(half, unit)));
    } else {
        (0..units).for_each(|unit| (0..halves).for_each(|half| each(half, unit)));
    }
}

/// Packs `b[depth, columns]`, at most [`SIDE`] columns.
///
/// # Safety
/// As [`pack_left`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub unsafe fn pack_right(b: &MatRef, depth: &Range<usize>, columns: &Range<usize>, to: *mut u16) {
    let units = depth.len().div_ceil(UNIT);
    // SAFETY: the first element of the piece.
    let from = unsafe { b.ptr.add(depth.start * b.row_stride + columns.start * b.col_stride) };
    for unit in 0..units {
        let steps = UNIT.min(depth.len() - unit * UNIT);
        for half in 0..SIDE / VECTOR {
            let count = columns.len().saturating_sub(half * VECTOR).min(VECTOR);
            // SAFETY: `steps` steps and `count` columns of the piece, by the matrix's own strides; the destination
            // belongs to the unit.
            unsafe {
                let from = from.wrapping_add(half * VECTOR * b.col_stride + unit * UNIT * b.row_stride);
                let to = to.add(unit * UNIT_NUMBERS + half * UNIT);
                let pairs = if b.col_stride == 1 {
                    across(from, b.row_stride, count, steps)
                } else if b.row_stride == 1 {
                    let mut rows = rounded(from, b.col_stride, count, steps);
                    transpose(&mut rows);
                    rows
                } else {
                    gathered(from, (b.row_stride, b.col_stride), count, steps)
                };
                store(&pairs, to, 2 * SIDE);
            }
        }
    }
}

/// Rows with contiguous steps: converted and stored as they are, padded with zeros.
///
/// # Safety
/// As [`pack_left`], for `count` rows of `steps` steps.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn along(from: *const f32, stride: usize, count: usize, steps: usize, to: *mut u16) {
    // SAFETY: passed on from the caller.
    unsafe { store(&rounded(from, stride, count, steps), to, UNIT) }
}

/// Up to 16 runs of 32 numbers, one per register; missing ones are zero.
///
/// # Safety
/// As [`pack_left`], for `count` runs of `steps` numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn rounded(from: *const f32, stride: usize, count: usize, steps: usize) -> [__m512i; VECTOR] {
    let (low, high) = (mask(steps), mask(steps.saturating_sub(VECTOR)));
    let mut all = [_mm512_setzero_si512(); VECTOR];
    for (row, run) in all.iter_mut().enumerate() {
        if row < count {
            let from = from.wrapping_add(row * stride);
            // SAFETY: masked to the run's numbers.
            let (first, second) =
                unsafe { (_mm512_maskz_loadu_ps(low, from), _mm512_maskz_loadu_ps(high, from.wrapping_add(VECTOR))) };
            *run = numbers(_mm512_cvtne2ps_pbh(second, first));
        }
    }
    all
}

/// 16 pairs of steps, each up to 16 neighbours (columns, or rows of a transposed matrix) of two numbers.
///
/// # Safety
/// As [`pack_left`], for `steps` steps of `count` neighbours.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn across(from: *const f32, stride: usize, count: usize, steps: usize) -> [__m512i; VECTOR] {
    let present = mask(count);
    let order = _mm512_set_epi16(
        31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1,
        16, 0,
    );
    let mut all = [_mm512_setzero_si512(); VECTOR];
    for (pair, out) in all.iter_mut().enumerate() {
        let step = 2 * pair;
        let first = if step < steps { present } else { 0 };
        let second = if step + 1 < steps { present } else { 0 };
        let from = from.wrapping_add(step * stride);
        // SAFETY: masked to existing elements.
        let (first, second) =
            unsafe { (_mm512_maskz_loadu_ps(first, from), _mm512_maskz_loadu_ps(second, from.wrapping_add(stride))) };
        *out = _mm512_permutexvar_epi16(order, numbers(_mm512_cvtne2ps_pbh(second, first)));
    }
    all
}

/// As [`across`] for numbers at any strides, one by one.
///
/// # Safety
/// As [`pack_left`], for `steps` steps of `count` neighbours.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn gathered(
    from: *const f32,
    (step_stride, stride): (usize, usize),
    count: usize,
    steps: usize,
) -> [__m512i; VECTOR] {
    let mut floats = [[0.0f32; VECTOR]; UNIT];
    for (step, floats) in floats.iter_mut().enumerate().take(steps) {
        for (neighbour, float) in floats.iter_mut().enumerate().take(count) {
            // SAFETY: within the piece.
            *float = unsafe { *from.add(step * step_stride + neighbour * stride) };
        }
    }
    // SAFETY: reads the array just filled.
    unsafe { across(floats.as_ptr().cast(), VECTOR, VECTOR, UNIT) }
}

/// # Safety
/// `to` has room for 16 registers, `stride` numbers apart.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn store(all: &[__m512i; VECTOR], to: *mut u16, stride: usize) {
    for (index, value) in all.iter().enumerate() {
        // SAFETY: the caller vouches for it.
        unsafe { _mm512_storeu_si512(to.add(index * stride).cast(), *value) };
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn numbers(value: __m512bh) -> __m512i {
    // SAFETY: both are 512 bits without structure.
    unsafe { std::mem::transmute(value) }
}

/// Transposes 16×16 pairs in registers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub fn transpose(m: &mut [__m512i; VECTOR]) {
    let mut a = *m;
    for i in 0..8 {
        a[2 * i] = _mm512_unpacklo_epi32(m[2 * i], m[2 * i + 1]);
        a[2 * i + 1] = _mm512_unpackhi_epi32(m[2 * i], m[2 * i + 1]);
    }
    // In each group of four rows, lane `lane` of row j holds column 4·lane + j of its rows.
    let mut b = a;
    for group in 0..4 {
        let at = 4 * group;
        b[at] = _mm512_unpacklo_epi64(a[at], a[at + 2]);
        b[at + 1] = _mm512_unpackhi_epi64(a[at], a[at + 2]);
        b[at + 2] = _mm512_unpacklo_epi64(a[at + 1], a[at + 3]);
        b[at + 3] = _mm512_unpackhi_epi64(a[at + 1], a[at + 3]);
    }
    for j in 0..4 {
        let low_even = _mm512_shuffle_i32x4::<0b10_00_10_00>(b[j], b[j + 4]);
        let low_odd = _mm512_shuffle_i32x4::<0b11_01_11_01>(b[j], b[j + 4]);
        let high_even = _mm512_shuffle_i32x4::<0b10_00_10_00>(b[j + 8], b[j + 12]);
        let high_odd = _mm512_shuffle_i32x4::<0b11_01_11_01>(b[j + 8], b[j + 12]);
        m[j] = _mm512_shuffle_i32x4::<0b10_00_10_00>(low_even, high_even);
        m[j + 8] = _mm512_shuffle_i32x4::<0b11_01_11_01>(low_even, high_even);
        m[j + 4] = _mm512_shuffle_i32x4::<0b10_00_10_00>(low_odd, high_odd);
        m[j + 12] = _mm512_shuffle_i32x4::<0b11_01_11_01>(low_odd, high_odd);
    }
}
