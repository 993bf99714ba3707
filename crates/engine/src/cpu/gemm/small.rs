//! Products of operands that already have the inner loop's layout, on the calling thread: nothing is copied.

use super::Accumulate;
use super::kernel::{Kernels, Left, Prefetch, Store, Tile};
use super::matrix::MatRef;
use super::pack;
use super::part;
use crate::cpu::isa::Isa;

/// Memory layout of the left operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftIn {
    /// Depth is contiguous; the row stride is given in floats.
    Rows(usize),
    /// Rows are contiguous; the stride of the steps of depth is given in floats.
    Columns(usize),
}

/// `c[rows, columns] (+)= left[rows, depth] · right[depth, columns]`.
pub struct SmallProduct<'a> {
    pub rows: usize,
    pub depth: usize,
    pub columns: usize,
    pub left: &'a [f32],
    pub left_in: LeftIn,
    /// Panels of [`Small::width`] columns with stride `panel_stride`; within each, steps of depth with stride
    /// `right_stride`. Whole vectors are read, even if the columns end before.
    pub right: &'a [f32],
    pub right_stride: usize,
    pub panel_stride: usize,
    pub accumulate: Accumulate,
    pub c: &'a mut [f32],
    pub c_stride: usize,
    /// Prefetched meanwhile.
    pub ahead: Prefetch,
}

/// The inner loops of one instruction-set level.
#[derive(Clone, Copy)]
pub struct Small {
    kernels: &'static Kernels,
}

impl Small {
    pub fn of(isa: Isa) -> Small {
        Small { kernels: Kernels::of(isa) }
    }

    /// Rows that are computed together; other counts cost as much as the next multiple.
    pub fn rows(&self) -> usize {
        self.kernels.rows_max
    }

    /// Number of columns of a panel.
    pub fn width(&self) -> usize {
        self.kernels.width()
    }

    /// Number of floats in a vector.
    pub fn lanes(&self) -> usize {
        self.kernels.lanes
    }

    /// Packs the rows of a matrix as the columns of a right operand: panel after panel, padded with zeros.
    pub fn pack_transposed(&self, rows: MatRef, to: &mut [f32]) {
        let (columns, depth, width) = (rows.rows(), rows.cols(), self.width());
        assert!(to.len() >= columns.next_multiple_of(width) * depth, "the panels fit");
        let transposed = rows.transposed();
        for (panel, to) in to.chunks_exact_mut(depth * width).enumerate().take(columns.div_ceil(width)) {
            let columns = panel * width..((panel + 1) * width).min(columns);
            // SAFETY: the ranges lie within the matrix, a panel has `depth * width` floats, and the level is runnable.
            unsafe { pack::pack_right(self.kernels.isa, &transposed, 0..depth, columns, width, to.as_mut_ptr()) };
        }
    }

    pub fn product(&self, product: SmallProduct) {
        let SmallProduct { rows, depth, columns, left, right, right_stride, panel_stride, c, c_stride, .. } = product;
        if rows == 0 || columns == 0 || depth == 0 {
            return;
        }
        let (panels, last) = (columns.div_ceil(self.width()), (columns - 1) % self.width() + 1);
        let (layout, left_stride, left_end) = match product.left_in {
            LeftIn::Rows(stride) => (Left::Rows, stride, (rows - 1) * stride + depth),
            LeftIn::Columns(stride) => (Left::Columns, stride, (depth - 1) * stride + rows),
        };
        let read = last.next_multiple_of(self.lanes());
        let whole = if panels > 1 { (panels - 2) * panel_stride + self.width() } else { 0 };
        let right_end = (depth - 1) * right_stride + ((panels - 1) * panel_stride + read).max(whole);
        assert!(left_end <= left.len(), "the left operand has {rows}×{depth} elements");
        assert!(right_end <= right.len(), "the right operand has {depth}×{columns} elements and whole vectors");
        assert!((rows - 1) * c_stride + columns <= c.len(), "C has {rows}×{columns} elements");
        let mut tile = Tile {
            a: left.as_ptr(),
            left_stride,
            b: right.as_ptr(),
            right_stride,
            depth,
            alpha: 1.0,
            c: c.as_mut_ptr(),
            c_stride,
            columns: 0,
            store: if product.accumulate == Accumulate::Add { Store::Add } else { Store::Overwrite },
            ahead: product.ahead,
        };
        let row_panels = rows.div_ceil(self.rows());
        for row_panel in 0..row_panels {
            let rows = part(0..rows, row_panels, row_panel);
            let first = if layout == Left::Rows { rows.start * left_stride } else { rows.start };
            for panel in 0..panels {
                tile.columns = if panel + 1 < panels { self.width() } else { last };
                // SAFETY: the furthest elements of all three were checked above; the level is runnable.
                unsafe {
                    tile.a = left.as_ptr().add(first);
                    tile.b = right.as_ptr().add(panel * panel_stride);
                    tile.c = c.as_mut_ptr().add(rows.start * c_stride + panel * self.width());
                    self.kernels.run(layout, rows.len(), &mut tile);
                }
            }
        }
    }
}
