//! An output that several threads write, each a part of its own.

use super::gemm::MatMut;
use std::marker::PhantomData;

pub struct Shared<'a> {
    start: *mut f32,
    length: usize,
    life: PhantomData<&'a mut [f32]>,
}

// SAFETY: it hands out parts only through `unsafe`, whose callers promise that no two threads use the same one.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    pub fn new(data: &'a mut [f32]) -> Shared<'a> {
        Shared { start: data.as_mut_ptr(), length: data.len(), life: PhantomData }
    }

    /// # Safety
    /// Nothing else uses these elements while the slice lives.
    pub unsafe fn slice(&self, offset: usize, length: usize) -> &'a mut [f32] {
        assert!(offset + length <= self.length, "a part lies within the output");
        // SAFETY: just checked; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(offset), length) }
    }

    /// # Safety
    /// Nothing else uses these elements while the view lives.
    pub unsafe fn matrix(&self, offset: usize, rows: usize, cols: usize, row_stride: usize) -> MatMut<'a> {
        assert!(row_stride >= cols && rows > 0, "rows do not overlap");
        assert!(offset + (rows - 1) * row_stride + cols <= self.length, "a part lies within the output");
        // SAFETY: just checked; the rest is the caller's promise.
        unsafe { MatMut::from_raw(self.start.add(offset), rows, cols, row_stride) }
    }
}
