//! Packs pieces of the operands into the layouts that the inner loop reads.

use std::ops::Range;

use super::kernel::{PACKED_COLUMN_STRIDE, PACKED_ROW_STRIDE, ROWS_MAX};
use super::matrix::MatRef;
use crate::by_isa;
use crate::cpu::isa::Isa;

/// Copies `a[rows, depth]` (at most 14 rows) to `to`, with row stride [`PACKED_ROW_STRIDE`].
///
/// # Safety
/// The ranges lie within `a`, `to` has room for a panel, and the CPU has the level `isa`.
pub unsafe fn pack_left_rows(isa: Isa, a: &MatRef, rows: &Range<usize>, depth: &Range<usize>, to: *mut f32) {
    debug_assert!(rows.len() <= ROWS_MAX);
    for (row, to_row) in rows.clone().zip(0..) {
        // SAFETY: reads a row of the piece by the matrix's own strides and writes within the panel.
        unsafe {
            let from = a.ptr.add(row * a.row_stride + depth.start * a.col_stride);
            let to = to.add(to_row * PACKED_ROW_STRIDE);
            if a.col_stride == 1 {
                copy_run(isa, from, depth.len(), to);
            } else {
                (0..depth.len()).for_each(|step| *to.add(step) = *from.add(step * a.col_stride));
            }
        }
    }
}

/// Copies row panels `a[rows, depth]` with contiguous rows to `to`, one panel after the other; the steps of depth have
/// stride [`PACKED_COLUMN_STRIDE`].
///
/// # Safety
/// The ranges lie within each `a`, `a.row_stride` is 1, `to` has room for the panels, and the CPU has the level `isa`.
pub unsafe fn pack_left_columns(isa: Isa, row_panels: &[(&MatRef, Range<usize>)], depth: &Range<usize>, to: *mut f32) {
    const STEPS: usize = 8;
    // A few steps of all panels at a time, so that their cache lines and pages are used up at once.
    for first in (0..depth.len()).step_by(STEPS) {
        let steps = STEPS.min(depth.len() - first);
        for ((a, rows), nth) in row_panels.iter().zip(0..) {
            // SAFETY: `steps` steps of the panel's rows, by the matrix's own stride, into the panel's own destination.
            unsafe {
                let from = a.ptr.add(rows.start + (depth.start + first) * a.col_stride);
                let to = to.add((nth * depth.len() + first) * PACKED_COLUMN_STRIDE);
                copy_rows(isa, from, a.col_stride, steps, rows.len(), to, PACKED_COLUMN_STRIDE);
            }
        }
    }
}

/// Copies `b[depth, columns]` to `to`, `width` floats per step of depth, padded with zeros.
///
/// # Safety
/// The ranges lie within `b`, `columns.len() <= width`, `to` has room for `depth.len() * width`, and the CPU has the
/// level `isa`.
pub unsafe fn pack_right(isa: Isa, b: &MatRef, depth: Range<usize>, columns: Range<usize>, width: usize, to: *mut f32) {
    // SAFETY: the first element of the piece, which the caller vouches for.
    let from = unsafe { b.ptr.add(depth.start * b.row_stride + columns.start * b.col_stride) };
    // SAFETY: each arm reads the piece by the matrix's own strides and writes `width` floats per step.
    unsafe {
        if b.col_stride == 1 {
            copy_rows(isa, from, b.row_stride, depth.len(), columns.len(), to, width);
        } else if b.row_stride == 1 {
            transpose(isa, from, b.col_stride, depth.len(), columns.len(), to, width);
        } else {
            copy_elements(from, (b.row_stride, b.col_stride), depth.len(), columns.len(), to, width);
        }
        if columns.len() < width {
            for step in 0..depth.len() {
                to.add(step * width + columns.len()).write_bytes(0, width - columns.len());
            }
        }
    }
}

by_isa! {
    /// Rounds to 8 bits of mantissa, ties to even; NaN stays NaN.
    pub fn round_to_bf16(values: &mut [f32]) {
        for value in values {
            let bits = value.to_bits();
            let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000;
            let nan = bits & 0x7fff_ffff > 0x7f80_0000;
            *value = f32::from_bits(if nan { bits | 0x0040_0000 } else { rounded });
        }
    }
}

/// Copies `count` floats.
///
/// # Safety
/// Both sides are valid for that, and the CPU has the level `isa`.
#[inline]
unsafe fn copy_run(isa: Isa, from: *const f32, count: usize, to: *mut f32) {
    // SAFETY: passed on from the caller.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::copy_run(from, count, to),
            _ => std::ptr::copy_nonoverlapping(from, to, count),
        }
    }
}

/// `to[step * width + i] = from[step * stride + i]` for `i < count`; `count <= width <= 32`.
///
/// # Safety
/// Both sides are valid for that, and the CPU has the level `isa`.
unsafe fn copy_rows(isa: Isa, from: *const f32, stride: usize, steps: usize, count: usize, to: *mut f32, width: usize) {
    // SAFETY: passed on from the caller.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::copy_rows(from, stride, steps, count, to, width),
            _ => {
                for step in 0..steps {
                    std::ptr::copy_nonoverlapping(from.add(step * stride), to.add(step * width), count);
                }
            }
        }
    }
}

/// `to[step * width + i] = from[i * stride + step]` for `i < count`.
///
/// # Safety
/// Both sides are valid for that, and the CPU has the level `isa`.
unsafe fn transpose(isa: Isa, from: *const f32, stride: usize, steps: usize, count: usize, to: *mut f32, width: usize) {
    // SAFETY: passed on from the caller; elements that the vector code skips are copied one by one.
    unsafe {
        let (whole_count, whole_steps) = match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 if count >= 16 => {
                let (whole_count, whole_steps) = (count / 16 * 16, steps / 4 * 4);
                for i in (0..whole_count).step_by(16) {
                    avx512::transpose_16(from.add(i * stride), stride, whole_steps, to.add(i), width);
                }
                (whole_count, whole_steps)
            }
            _ => (0, 0),
        };
        let (rest, to_rest) = (from.add(whole_steps), to.add(whole_steps * width));
        copy_elements(rest, (1, stride), steps - whole_steps, whole_count, to_rest, width);
        let (rest, to_rest) = (from.add(whole_count * stride), to.add(whole_count));
        copy_elements(rest, (1, stride), steps, count - whole_count, to_rest, width);
    }
}

/// `to[step * width + i] = from[step * step_stride + i * stride]`, one by one.
///
/// # Safety
/// Both sides are valid for `steps × count` elements at their strides.
pub unsafe fn copy_elements(
    from: *const f32,
    (step_stride, stride): (usize, usize),
    steps: usize,
    count: usize,
    to: *mut f32,
    width: usize,
) {
    for i in 0..count {
        for step in 0..steps {
            // SAFETY: within the ranges that the caller vouches for.
            unsafe { *to.add(step * width + i) = *from.add(step * step_stride + i * stride) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    /// # Safety
    /// As [`super::copy_run`], on a CPU with AVX-512.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    pub unsafe fn copy_run(from: *const f32, count: usize, to: *mut f32) {
        // SAFETY: whole vectors within `count`, then the rest under a mask.
        unsafe {
            let whole = count / 16 * 16;
            for i in (0..whole).step_by(16) {
                _mm512_storeu_ps(to.add(i), _mm512_loadu_ps(from.add(i)));
            }
            let rest = (1 << (count - whole)) - 1;
            _mm512_mask_storeu_ps(to.add(whole), rest, _mm512_maskz_loadu_ps(rest, from.add(whole)));
        }
    }

    /// Prefetch distance in steps; rows may lie pages apart, where the hardware does not prefetch.
    const AHEAD: usize = 16;

    /// # Safety
    /// As [`super::copy_rows`], on a CPU with AVX-512.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    pub unsafe fn copy_rows(from: *const f32, stride: usize, steps: usize, count: usize, to: *mut f32, width: usize) {
        let mask = |lanes: usize| if lanes >= 16 { !0u16 } else { (1 << lanes) - 1 };
        let (first, second) = (mask(count), mask(count.saturating_sub(16)));
        // SAFETY: masked loads and stores touch `count` floats per step.
        unsafe {
            for step in 0..steps {
                let (from, to) = (from.add(step * stride), to.add(step * width));
                _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(AHEAD * stride).cast());
                if count > 16 {
                    _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(AHEAD * stride + count - 1).cast());
                }
                _mm512_mask_storeu_ps(to, first, _mm512_maskz_loadu_ps(first, from));
                if count > 16 {
                    let (from, to) = (from.add(16), to.add(16));
                    _mm512_mask_storeu_ps(to, second, _mm512_maskz_loadu_ps(second, from));
                }
            }
        }
    }

    /// `to[step * width + i] = from[i * stride + step]` for `i < 16` and `steps`, a multiple of 4.
    ///
    /// Four lanes of 4 floats are loaded into place from rows `i`, `i + 4`, `i + 8` and `i + 12`, which leaves a 4×4
    /// transpose within each lane.
    ///
    /// # Safety
    /// Both sides are valid for that, on a CPU with AVX-512.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    pub unsafe fn transpose_16(from: *const f32, stride: usize, steps: usize, to: *mut f32, width: usize) {
        // SAFETY: 128-bit loads of steps `step..step + 4` of the 16 rows, and 16 floats stored for each of the steps.
        unsafe {
            let rows = |i: usize, step: usize| {
                let quad = |row: usize| _mm_loadu_ps(from.add(row * stride + step));
                let all = _mm512_castps128_ps512(quad(i));
                let all = _mm512_mask_broadcast_f32x4(all, 0x00f0, quad(i + 4));
                let all = _mm512_mask_broadcast_f32x4(all, 0x0f00, quad(i + 8));
                _mm512_mask_broadcast_f32x4(all, 0xf000, quad(i + 12))
            };
            for step in (0..steps).step_by(4) {
                let (r0, r1, r2, r3) = (rows(0, step), rows(1, step), rows(2, step), rows(3, step));
                let low = _mm512_castps_pd(_mm512_unpacklo_ps(r0, r1));
                let high = _mm512_castps_pd(_mm512_unpackhi_ps(r0, r1));
                let low_next = _mm512_castps_pd(_mm512_unpacklo_ps(r2, r3));
                let high_next = _mm512_castps_pd(_mm512_unpackhi_ps(r2, r3));
                let to = to.add(step * width);
                _mm512_storeu_ps(to, _mm512_castpd_ps(_mm512_unpacklo_pd(low, low_next)));
                _mm512_storeu_ps(to.add(width), _mm512_castpd_ps(_mm512_unpackhi_pd(low, low_next)));
                _mm512_storeu_ps(to.add(2 * width), _mm512_castpd_ps(_mm512_unpacklo_pd(high, high_next)));
                _mm512_storeu_ps(to.add(3 * width), _mm512_castpd_ps(_mm512_unpackhi_pd(high, high_next)));
            }
        }
    }
}
