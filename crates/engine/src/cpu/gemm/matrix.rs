//! Views of matrices in memory: pure addressing.

use std::marker::PhantomData;

/// A read-only strided matrix: element `(r, c)` at `ptr + r * row_stride + c * col_stride`.
#[derive(Clone, Copy, Debug)]
pub struct MatRef<'a> {
    pub(super) ptr: *const f32,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) row_stride: usize,
    pub(super) col_stride: usize,
    life: PhantomData<&'a [f32]>,
}

// SAFETY: a view reads what a `&[f32]` would, and that may be shared between threads.
unsafe impl Send for MatRef<'_> {}
// SAFETY: a shared view only reads, as a shared `&[f32]` does.
unsafe impl Sync for MatRef<'_> {}

impl<'a> MatRef<'a> {
    /// `rows × cols`, row-major without gaps.
    pub fn row_major(data: &'a [f32], rows: usize, cols: usize) -> MatRef<'a> {
        MatRef::strided(data, rows, cols, cols, 1)
    }

    /// Any strides, checked against the slice.
    pub fn strided(data: &'a [f32], rows: usize, cols: usize, row_stride: usize, col_stride: usize) -> MatRef<'a> {
        check_extent(data.len(), rows, cols, row_stride, col_stride);
        // SAFETY: the furthest element was just checked to lie within `data`.
        unsafe { MatRef::from_raw(data.as_ptr(), rows, cols, row_stride, col_stride) }
    }

    /// # Safety
    /// Every element of the view may be read for as long as the view and its copies are used, and nothing writes to
    /// them meanwhile.
    pub unsafe fn from_raw(
        ptr: *const f32,
        rows: usize,
        cols: usize,
        row_stride: usize,
        col_stride: usize,
    ) -> MatRef<'a> {
        MatRef { ptr, rows, cols, row_stride, col_stride, life: PhantomData }
    }

    /// The same memory read as the transposed matrix.
    pub fn transposed(self) -> MatRef<'a> {
        MatRef { rows: self.cols, cols: self.rows, row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }

    /// `count` rows, starting at row `first`.
    pub fn rows_from(self, first: usize, count: usize) -> MatRef<'a> {
        let end = first.checked_add(count);
        assert!(end.is_some_and(|end| end <= self.rows), "{count} rows from row {first} on, of {}", self.rows);
        if count == 0 || self.cols == 0 {
            // Nothing is read, and the address of a missing row may lie outside the memory.
            return MatRef { rows: count, ..self };
        }
        // SAFETY: the first of those rows has an element, which lies within the view.
        MatRef { ptr: unsafe { self.ptr.add(first * self.row_stride) }, rows: count, ..self }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn cols(&self) -> usize {
        self.cols
    }
}

/// A writable matrix with contiguous columns: element `(r, c)` at `ptr + r * row_stride + c`.
#[derive(Debug)]
pub struct MatMut<'a> {
    pub(super) ptr: *mut f32,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) row_stride: usize,
    life: PhantomData<&'a mut [f32]>,
}

// SAFETY: a view stands for a `&mut [f32]`, which may move to another thread.
unsafe impl Send for MatMut<'_> {}
// SAFETY: a shared view gives no access of its own; `gemm` takes it by value.
unsafe impl Sync for MatMut<'_> {}

impl<'a> MatMut<'a> {
    /// `rows × cols`, row-major without gaps.
    pub fn row_major(data: &'a mut [f32], rows: usize, cols: usize) -> MatMut<'a> {
        MatMut::strided(data, rows, cols, cols)
    }

    /// Rows with stride `row_stride`, checked against the slice.
    pub fn strided(data: &'a mut [f32], rows: usize, cols: usize, row_stride: usize) -> MatMut<'a> {
        check_extent(data.len(), rows, cols, row_stride, 1);
        assert!(rows <= 1 || row_stride >= cols, "rows of {cols} columns overlap at a stride of {row_stride}");
        // SAFETY: the furthest element was just checked to lie within `data`, and rows do not overlap.
        unsafe { MatMut::from_raw(data.as_mut_ptr(), rows, cols, row_stride) }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    #[inline(always)]
    pub fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        if self.cols == 0 {
            return &mut [];
        }
        // SAFETY: a row of the view with an element in it, which is ours to write.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(row * self.row_stride), self.cols) }
    }

    /// The same view; the original cannot be used while it lives.
    pub(super) fn reborrow(&mut self) -> MatMut<'_> {
        MatMut { life: PhantomData, ..*self }
    }

    /// A second copy of the view.
    ///
    /// # Safety
    /// Only one of the two is used at a time.
    pub(super) unsafe fn alias(&self) -> MatMut<'_> {
        MatMut { life: PhantomData, ..*self }
    }

    /// # Safety
    /// Every element of the view may be written for as long as the view is used, rows do not overlap, and nothing
    /// else reads or writes them meanwhile.
    pub unsafe fn from_raw(ptr: *mut f32, rows: usize, cols: usize, row_stride: usize) -> MatMut<'a> {
        MatMut { ptr, rows, cols, row_stride, life: PhantomData }
    }
}

fn check_extent(len: usize, rows: usize, cols: usize, row_stride: usize, col_stride: usize) {
    if rows == 0 || cols == 0 {
        return;
    }
    let furthest = (rows - 1)
        .checked_mul(row_stride)
        .zip((cols - 1).checked_mul(col_stride))
        .and_then(|(down, right)| down.checked_add(right));
    assert!(
        furthest.is_some_and(|furthest| furthest < len),
        "a {rows}×{cols} matrix with strides {row_stride} and {col_stride} reaches past its {len} elements"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rows_at_the_end_of_a_strided_view_point_nowhere_else() {
        // Three rows of two, with stride five, in exactly the twelve elements they need.
        let data: Vec<f32> = (0..12u8).map(f32::from).collect();
        let view = MatRef::strided(&data, 3, 2, 5, 1);
        let none = view.rows_from(3, 0);
        assert_eq!((none.rows(), none.cols()), (0, 2));
        assert!(data.as_ptr_range().contains(&none.ptr));
        let last = view.rows_from(2, 1);
        assert_eq!((last.ptr, last.rows()), (data[10..].as_ptr(), 1));
        let hollow = MatRef::strided(&data, 4, 0, 1 << 40, 1).rows_from(3, 1);
        assert!(data.as_ptr_range().contains(&hollow.ptr));
    }

    #[test]
    #[should_panic(expected = "rows from row")]
    fn more_rows_than_can_be_counted_are_refused() {
        MatRef::row_major(&[1.0, 2.0], 2, 1).rows_from(2, usize::MAX);
    }

    #[test]
    fn rows_are_written_one_after_the_other() {
        let mut data = vec![0.0; 8];
        let mut view = MatMut::strided(&mut data, 3, 2, 3);
        for row in 0..view.rows() {
            view.reborrow().row(row).fill(row as f32 + 1.0);
        }
        assert_eq!(data, [1.0, 1.0, 0.0, 2.0, 2.0, 0.0, 3.0, 3.0]);
        assert!(MatMut::strided(&mut data, 2, 0, 1 << 40).row(1).is_empty());
    }
}
