//! Views of matrices in memory: where each element lies, and nothing else.

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
// SAFETY: as above.
unsafe impl Sync for MatRef<'_> {}

impl<'a> MatRef<'a> {
    /// `rows × cols`, row after row without gaps.
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

    /// `count` of its rows, from row `first` on.
    pub fn rows_from(self, first: usize, count: usize) -> MatRef<'a> {
        assert!(first + count <= self.rows, "rows {first} to {} of {}", first + count, self.rows);
        // SAFETY: the first of those rows lies within the view.
        MatRef { ptr: unsafe { self.ptr.add(first * self.row_stride) }, rows: count, ..self }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn cols(&self) -> usize {
        self.cols
    }
}

/// A matrix to write, its columns next to each other: element `(r, c)` at `ptr + r * row_stride + c`.
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
    /// `rows × cols`, row after row without gaps.
    pub fn row_major(data: &'a mut [f32], rows: usize, cols: usize) -> MatMut<'a> {
        MatMut::strided(data, rows, cols, cols)
    }

    /// Rows `row_stride` apart, checked against the slice.
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
        // SAFETY: a row of the view, which is ours to write.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(row * self.row_stride), self.cols) }
    }

    /// The same view, to be used in place of this one and not beside it.
    pub(crate) fn again(&self) -> MatMut<'a> {
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
