//! Operands of products for tests: every memory layout, and reproducible values.

use headroom_engine::cpu::gemm::{MatRef, Scratch};
use headroom_engine::cpu::pool::Pool;

/// Memory layout of an operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Storage {
    RowMajor,
    Transposed,
    /// Row stride `cols + 5`, like a head inside a wider tensor.
    Wide,
    /// Neither rows nor columns are contiguous.
    Scattered,
}

pub const STORAGES: [Storage; 4] = [Storage::RowMajor, Storage::Transposed, Storage::Wide, Storage::Scattered];
pub const THREADS: [usize; 4] = [1, 2, 3, 5];

pub struct Operand {
    pub data: Vec<f32>,
    pub rows: usize,
    pub cols: usize,
    pub strides: (usize, usize),
}

impl Operand {
    pub fn new(rows: usize, cols: usize, storage: Storage, seed: u64) -> Operand {
        let strides = match storage {
            Storage::RowMajor => (cols, 1),
            Storage::Transposed => (1, rows),
            Storage::Wide => (cols + 5, 1),
            Storage::Scattered => (2 * cols + 3, 2),
        };
        let len = if rows * cols == 0 { 0 } else { (rows - 1) * strides.0 + (cols - 1) * strides.1 + 1 };
        Operand { data: noise(len, seed), rows, cols, strides }
    }

    pub fn view(&self) -> MatRef<'_> {
        MatRef::strided(&self.data, self.rows, self.cols, self.strides.0, self.strides.1)
    }

    pub fn at(&self, row: usize, col: usize) -> f32 {
        self.data[row * self.strides.0 + col * self.strides.1]
    }
}

/// Values in [-1, 1) from a counter, the same on every run.
pub fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

pub fn same_bits(left: &[f32], right: &[f32]) -> bool {
    left.iter().map(|value| value.to_bits()).eq(right.iter().map(|value| value.to_bits()))
}

pub fn pools() -> Vec<(Pool, Scratch)> {
    THREADS.iter().map(|&threads| (Pool::new(threads).expect("threads start"), Scratch::new(threads))).collect()
}
