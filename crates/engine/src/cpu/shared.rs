//! An output that several threads write, each to its own part.

use super::gemm::MatMut;
use std::marker::PhantomData;

pub struct Shared<'a> {
    start: *mut f32,
    length: usize,
    life: PhantomData<&'a mut [f32]>,
}

// SAFETY: parts are handed out only through `unsafe`, whose callers promise that no two threads use the same one.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    pub fn new(data: &'a mut [f32]) -> Shared<'a> {
        Shared { start: data.as_mut_ptr(), length: data.len(), life: PhantomData }
    }

    /// # Safety
    /// The `length` floats from `start` on may be written for as long as this is used, except parts that are in use
    /// through another `Shared`.
    pub unsafe fn from_raw(start: *mut f32, length: usize) -> Shared<'a> {
        Shared { start, length, life: PhantomData }
    }

    /// # Safety
    /// Nothing else uses these elements while the slice lives.
    pub unsafe fn slice(&self, offset: usize, length: usize) -> &'a mut [f32] {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.length), "a part lies within the output");
        // SAFETY: just checked; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(offset), length) }
    }

    /// # Safety
    /// Nothing else uses these elements while the view lives.
    pub unsafe fn matrix(&self, offset: usize, rows: usize, cols: usize, row_stride: usize) -> MatMut<'a> {
        assert!(row_stride >= cols && rows > 0, "rows do not overlap");
        let last_row = (rows - 1).checked_mul(row_stride);
        let end = last_row.and_then(|last_row| last_row.checked_add(offset)?.checked_add(cols));
        assert!(end.is_some_and(|end| end <= self.length), "a part lies within the output");
        // SAFETY: just checked; the rest is the caller's promise.
        unsafe { MatMut::from_raw(self.start.add(offset), rows, cols, row_stride) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    #[test]
    fn threads_write_rows_and_columns_of_their_own() {
        let mut data = vec![0.0f32; 12];
        let shared = Shared::new(&mut data);
        thread::scope(|scope| {
            for half in 0..2 {
                let shared = &shared;
                scope.spawn(move || {
                    // SAFETY: each thread has its own two of the four columns.
                    let mut part = unsafe { shared.matrix(2 * half, 3, 2, 4) };
                    (0..3).for_each(|row| part.row(row).fill(half as f32 + 1.0));
                });
            }
        });
        assert_eq!(data, [1.0, 1.0, 2.0, 2.0].repeat(3));
    }

    #[test]
    fn parts_whose_end_cannot_be_counted_are_refused() {
        let mut data = vec![0.0f32; 8];
        let shared = Shared::new(&mut data);
        let refused = |ask: &dyn Fn()| catch_unwind(AssertUnwindSafe(ask)).is_err();
        // SAFETY: refused before anything is used.
        unsafe {
            assert!(refused(&|| _ = shared.slice(2, usize::MAX)));
            assert!(refused(&|| _ = shared.slice(usize::MAX, 1)));
            assert!(refused(&|| _ = shared.matrix(0, 3, 1, usize::MAX / 2 + 1)));
            assert!(refused(&|| _ = shared.matrix(usize::MAX, 1, 1, 1)));
            assert!(refused(&|| _ = shared.matrix(2, 1, usize::MAX, usize::MAX)));
            assert_eq!(shared.slice(8, 0).len(), 0);
        }
    }
}
