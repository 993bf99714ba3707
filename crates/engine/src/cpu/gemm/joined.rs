//! Products that share an operand, computed as one: it is copied once, and the threads synchronise once.
//!
//! Panels never span two products. So each C has the bits that its product alone would give.

use std::ops::Range;

use super::matrix::{MatMut, MatRef};
use super::{Accumulate, Product, non_empty, part};

/// A right operand and the destination of its product.
pub struct Columns<'a> {
    pub b: MatRef<'a>,
    pub c: MatMut<'a>,
}

/// A left operand and the destination of its product.
pub struct Rows<'a> {
    pub a: MatRef<'a>,
    pub c: MatMut<'a>,
}

/// The side on which the products differ.
enum Parts<'a> {
    /// One left operand, several right ones.
    Columns(MatRef<'a>, &'a [Columns<'a>]),
    /// Several left operands, one right one.
    Rows(&'a [Rows<'a>], MatRef<'a>),
}

/// `c (+)= alpha · a · b` for each part. All have the same depth. It borrows its parts exclusively: an exclusive borrow
/// of it is one of every C.
pub struct Joined<'a> {
    pub(super) alpha: f32,
    pub(super) accumulate: Accumulate,
    parts: Parts<'a>,
}

/// A panel of rows or of columns: the part that it belongs to, and its range there.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    pub part: usize,
    pub range: Range<usize>,
}

impl<'a> Joined<'a> {
    /// One left operand, several right ones.
    pub fn columns_of(alpha: f32, accumulate: Accumulate, a: MatRef<'a>, columns: &'a mut [Columns<'_>]) -> Joined<'a> {
        Joined { alpha, accumulate, parts: Parts::Columns(a, columns) }
    }

    /// Several left operands, one right one.
    pub fn rows_of(alpha: f32, accumulate: Accumulate, rows: &'a mut [Rows<'_>], b: MatRef<'a>) -> Joined<'a> {
        Joined { alpha, accumulate, parts: Parts::Rows(rows, b) }
    }
}

impl Joined<'_> {
    pub(super) fn parts(&self) -> usize {
        match self.parts {
            Parts::Columns(_, parts) => parts.len(),
            Parts::Rows(parts, _) => parts.len(),
        }
    }

    pub(super) fn depth(&self) -> usize {
        self.a(0).cols
    }

    /// The left operand of a part of the rows.
    pub(super) fn a(&self, part: usize) -> &MatRef<'_> {
        match &self.parts {
            Parts::Columns(a, _) => a,
            Parts::Rows(parts, _) => &parts[part].a,
        }
    }

    /// The right operand of a part of the columns.
    pub(super) fn b(&self, part: usize) -> &MatRef<'_> {
        match &self.parts {
            Parts::Columns(_, parts) => &parts[part].b,
            Parts::Rows(_, b) => b,
        }
    }

    /// The C of a part of the rows and a part of the columns; one of the two has only one part.
    pub(super) fn c(&self, rows: usize, columns: usize) -> &MatMut<'_> {
        match &self.parts {
            Parts::Columns(_, parts) => &parts[columns].c,
            Parts::Rows(parts, _) => &parts[rows].c,
        }
    }

    /// Number of rows of each part of the rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = usize> {
        let parts = if matches!(self.parts, Parts::Rows(..)) { self.parts() } else { 1 };
        (0..parts).map(|part| self.a(part).rows)
    }

    /// Number of columns of each part of the columns.
    pub(super) fn columns(&self) -> impl Iterator<Item = usize> {
        let parts = if matches!(self.parts, Parts::Columns(..)) { self.parts() } else { 1 };
        (0..parts).map(|part| self.b(part).cols)
    }

    /// Checks the shapes; returns whether every part is non-empty. Sums over zero depth are set to zero here.
    pub(super) fn whole(&mut self) -> bool {
        let mut whole = true;
        for part in 0..self.parts() {
            whole &= non_empty(&mut self.part(part));
        }
        whole
    }

    pub(super) fn part(&mut self, part: usize) -> Product<'_> {
        let (rows, columns) = if matches!(self.parts, Parts::Rows(..)) { (part, 0) } else { (0, part) };
        // SAFETY: only this borrows the parts, and the product borrows this.
        let c = unsafe { self.c(rows, columns).alias() };
        let (a, b) = (*self.a(rows), *self.b(columns));
        Product { alpha: self.alpha, a, b, accumulate: self.accumulate, c }
    }
}

/// Number of panels of at most `largest`.
pub fn panels(parts: impl Iterator<Item = usize>, largest: usize) -> usize {
    parts.map(|length| length.div_ceil(largest)).sum()
}

/// The `index`-th panel over all parts; `cut(length, panels, nth)` gives the range of a part's `nth` panel.
pub fn panel(
    parts: impl Iterator<Item = usize>,
    largest: usize,
    index: usize,
    cut: impl Fn(usize, usize, usize) -> Range<usize>,
) -> Panel {
    let mut before = 0;
    for (number, length) in parts.enumerate() {
        let panels = length.div_ceil(largest);
        if index < before + panels {
            return Panel { part: number, range: cut(length, panels, index - before) };
        }
        before += panels;
    }
    unreachable!("there are {before} panels, and {index} is none of them")
}

/// Panels of one width; the last is narrower.
pub fn as_wide_as(width: usize) -> impl Fn(usize, usize, usize) -> Range<usize> {
    move |length, _, nth| nth * width..((nth + 1) * width).min(length)
}

/// Panels of nearly equal height.
pub fn equal(length: usize, panels: usize, nth: usize) -> Range<usize> {
    part(0..length, panels, nth)
}
