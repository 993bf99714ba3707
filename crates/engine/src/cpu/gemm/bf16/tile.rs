//! The inner loop in bfloat16: 32×32 elements of C over some units of depth, with tile registers or vectors.

use std::arch::asm;
use std::arch::x86_64::*;

use super::Form;
use super::pack::{SIDE, UNIT, UNIT_NUMBERS, VECTOR};
use super::unit::Bf16Unit;

/// Initial value of C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Zero,
    FromC,
}

/// A panel of each operand over the same units, and the address of C.
pub struct Square {
    pub left: *const u16,
    pub right: *const u16,
    /// At least one.
    pub units: usize,
    pub start: Start,
    pub c: *mut f32,
    pub c_stride: usize,
    /// Right panels that will be read next: some of their cache lines are prefetched for each unit.
    pub ahead: *const u16,
    /// Address of C for the next square, of which some rows are prefetched for each unit.
    pub c_ahead: *const f32,
}

/// Tile registers configured for this thread. Dropping releases them, so that the system has less to save.
pub struct Tiles {
    unit: Bf16Unit,
    form: Form,
}

/// Tile shapes for `ldtilecfg`: all eight tiles have 16 rows of 64 bytes.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

static SHAPES: Shapes = Shapes {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

impl Tiles {
    /// # Safety
    /// The machine has `unit`, which is not the software one, and is AMX if numbers are split.
    pub unsafe fn new(unit: Bf16Unit, form: Form) -> Tiles {
        if unit == Bf16Unit::Amx {
            // SAFETY: reads 64 bytes of a valid configuration; the compiler itself never uses tile registers.
            unsafe { asm!("ldtilecfg [{}]", in(reg) &SHAPES, options(nostack, readonly)) };
        }
        Tiles { unit, form }
    }

    /// # Safety
    /// The panels are packed over the units, and C has 32×32 elements that nobody else touches.
    pub unsafe fn run(&self, square: &Square) {
        // SAFETY: passed on from the caller; the machine has the unit.
        unsafe {
            match (self.unit, self.form) {
                (Bf16Unit::Amx, Form::Rounded) => in_tiles(square, multiply_rounded),
                (_, Form::Split) => in_tiles(square, multiply_split),
                (_, Form::Rounded) => by_vectors(square),
            }
        }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        if self.unit == Bf16Unit::Amx {
            // SAFETY: changes only tile registers.
            unsafe { asm!("tilerelease", options(nostack, nomem)) };
        }
    }
}

/// Loads four accumulator tiles, lets `multiply` add to them, and stores them.
///
/// # Safety
/// As [`Tiles::run`], on a machine with AMX, the tiles configured.
#[inline(always)]
unsafe fn in_tiles(square: &Square, multiply: unsafe fn(&Square)) {
    let c_bytes = square.c_stride * size_of::<f32>();
    let below = square.c.wrapping_add(VECTOR * square.c_stride);
    // SAFETY: tiles are loaded from and stored to what the caller vouches for. The compiler never uses tile registers,
    // so none is lost between the blocks.
    unsafe {
        match square.start {
            Start::Zero => {
                asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", options(nostack, nomem));
            }
            Start::FromC => asm!(
                "tileloadd tmm0, [{c} + {stride}*1]",
                "tileloadd tmm1, [{c} + {stride}*1 + 64]",
                "tileloadd tmm2, [{below} + {stride}*1]",
                "tileloadd tmm3, [{below} + {stride}*1 + 64]",
                c = in(reg) square.c, below = in(reg) below, stride = in(reg) c_bytes,
                options(nostack, readonly),
            ),
        }
        multiply(square);
        asm!(
            "tilestored [{c} + {stride}*1], tmm0",
            "tilestored [{c} + {stride}*1 + 64], tmm1",
            "tilestored [{below} + {stride}*1], tmm2",
            "tilestored [{below} + {stride}*1 + 64], tmm3",
            c = in(reg) square.c, below = in(reg) below, stride = in(reg) c_bytes,
            options(nostack),
        );
    }
}

/// Two tiles of each operand at a time: four products for four loads.
///
/// # Safety
/// As [`in_tiles`].
#[inline(always)]
unsafe fn multiply_rounded(square: &Square) {
    // SAFETY: the panels that the caller vouches for.
    unsafe {
        asm!(
            "2:",
            "tileloadd tmm4, [{left} + {row}*1]",
            "tileloadd tmm6, [{right} + {pair}*1]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{right} + {pair}*1 + 64]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{left} + {row}*1 + 1024]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "prefetcht1 [{ahead}]",
            "prefetcht1 [{ahead} + 64]",
            "prefetcht1 [{ahead} + 128]",
            "prefetcht1 [{ahead} + 192]",
            "add {ahead}, 256",
            "prefetchw [{c}]",
            "prefetchw [{c} + 64]",
            "add {c}, {stride}",
            "prefetchw [{c}]",
            "prefetchw [{c} + 64]",
            "add {c}, {stride}",
            "add {left}, 2048",
            "add {right}, 2048",
            "dec {units}",
            "jnz 2b",
            left = inout(reg) square.left => _,
            right = inout(reg) square.right => _,
            units = inout(reg) square.units => _,
            ahead = inout(reg) square.ahead => _,
            c = inout(reg) square.c_ahead => _,
            stride = in(reg) square.c_stride * size_of::<f32>(),
            row = in(reg) 2 * UNIT,
            pair = in(reg) 4 * SIDE,
            options(nostack, readonly),
        );
    }
}

/// Six products of parts per product of numbers: those that contribute to the 24 bits of a single. Each part of the
/// right operand is loaded once.
///
/// # Safety
/// As [`in_tiles`], for panels of three parts.
#[inline(always)]
unsafe fn multiply_split(square: &Square) {
    // SAFETY: the panels that the caller vouches for.
    unsafe {
        asm!(
            "2:",
            // First by third,
            "tileloadd tmm4, [{left} + {row}*1]",
            "tileloadd tmm6, [{right} + {pair}*1 + 4096]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm5, [{left} + {row}*1 + 1024]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tileloadd tmm7, [{right} + {pair}*1 + 4160]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "prefetcht1 [{ahead} + 0]",
            "prefetcht1 [{ahead} + 64]",
            "prefetchw [{c}]",
            "prefetchw [{c} + 64]",
            "add {c}, {stride}",
            // first by second,
            "tileloadd tmm6, [{right} + {pair}*1 + 2048]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tileloadd tmm7, [{right} + {pair}*1 + 2112]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "prefetcht1 [{ahead} + 128]",
            "prefetcht1 [{ahead} + 192]",
            "prefetchw [{c}]",
            "prefetchw [{c} + 64]",
            "add {c}, {stride}",
            // second by second,
            "tileloadd tmm4, [{left} + {row}*1 + 2048]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{left} + {row}*1 + 3072]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "prefetcht1 [{ahead} + 256]",
            "prefetcht1 [{ahead} + 320]",
            "prefetchw [{c}]",
            "prefetchw [{c} + 64]",
            "add {c}, {stride}",
            // second by first,
            "tileloadd tmm6, [{right} + {pair}*1]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tileloadd tmm7, [{right} + {pair}*1 + 64]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "prefetcht1 [{ahead} + 384]",
            "prefetcht1 [{ahead} + 448]",
            "prefetchw [{c}]",
            "prefetchw [{c} + 64]",
            "add {c}, {stride}",
            // third by first,
            "tileloadd tmm4, [{left} + {row}*1 + 4096]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{left} + {row}*1 + 5120]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "prefetcht1 [{ahead} + 512]",
            "prefetcht1 [{ahead} + 576]",
            "prefetchw [{c}]",
            "prefetchw [{c} + 64]",
            "add {c}, {stride}",
            // first by first.
            "tileloadd tmm4, [{left} + {row}*1]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{left} + {row}*1 + 1024]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "prefetcht1 [{ahead} + 640]",
            "prefetcht1 [{ahead} + 704]",
            "prefetchw [{c}]",
            "prefetchw [{c} + 64]",
            "add {c}, {stride}",
            "add {ahead}, 768",
            "add {left}, 6144",
            "add {right}, 6144",
            "dec {units}",
            "jnz 2b",
            left = inout(reg) square.left => _,
            right = inout(reg) square.right => _,
            units = inout(reg) square.units => _,
            ahead = inout(reg) square.ahead => _,
            c = inout(reg) square.c_ahead => _,
            stride = in(reg) square.c_stride * size_of::<f32>(),
            row = in(reg) 2 * UNIT,
            pair = in(reg) 4 * SIDE,
            options(nostack, readonly),
        );
    }
}

/// Rows whose sums are in registers at a time: 16 sums hide the latency of the products.
const ROWS: usize = 8;

/// # Safety
/// As [`Tiles::run`], on a machine with AVX-512 BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn by_vectors(square: &Square) {
    for first in (0..SIDE).step_by(ROWS) {
        // SAFETY: rows of the panel and of C that the caller vouches for.
        unsafe {
            let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
            if square.start == Start::FromC {
                for (row, sums) in sums.iter_mut().enumerate() {
                    let c = square.c.add((first + row) * square.c_stride);
                    *sums = [_mm512_loadu_ps(c), _mm512_loadu_ps(c.add(VECTOR))];
                }
            }
            for unit in 0..square.units {
                let left = square.left.add(unit * UNIT_NUMBERS + first * UNIT).cast::<i32>();
                let right = square.right.add(unit * UNIT_NUMBERS).cast::<i32>();
                for pair in 0..UNIT / 2 {
                    let right = right.add(pair * SIDE);
                    let right =
                        [pairs(_mm512_loadu_si512(right.cast())), pairs(_mm512_loadu_si512(right.add(VECTOR).cast()))];
                    for (row, sums) in sums.iter_mut().enumerate() {
                        let left = pairs(_mm512_set1_epi32(*left.add(row * UNIT / 2 + pair)));
                        sums[0] = _mm512_dpbf16_ps(sums[0], left, right[0]);
                        sums[1] = _mm512_dpbf16_ps(sums[1], left, right[1]);
                    }
                }
            }
            for (row, sums) in sums.iter().enumerate() {
                let c = square.c.add((first + row) * square.c_stride);
                _mm512_storeu_ps(c, sums[0]);
                _mm512_storeu_ps(c.add(VECTOR), sums[1]);
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn pairs(value: __m512i) -> __m512bh {
    // SAFETY: both are 512 bits without structure.
    unsafe { std::mem::transmute(value) }
}
