//! Embedding tables with a dense gradient although a step uses few of their rows.

use std::collections::BTreeMap;

use hashbrown::HashSet;
use headroom_trace::Category;

use super::intervals::Span;
use super::parameters::{Parameters, update};
use super::view::View;
use crate::constants::tables::{ROWS_TO_USED, SHARE_OF_PARAMETERS};

/// All such tables together.
#[derive(Clone, Debug, Default)]
pub struct DenseTable {
    pub rows: f64,
    pub width: f64,
    /// Upper bound on the rows used per step: the number of looked-up indices.
    pub used_rows: f64,
    /// Kernels of the gradient: the zero fill, and the accumulation of the used rows.
    pub gradient: Vec<usize>,
    pub fills: Vec<usize>,
    /// Kernels of the optimizer, which spend `share_of_update` of their time on the table.
    pub update: Vec<usize>,
    pub share_of_update: f64,
    /// Device time spent on rows that nothing uses.
    pub unused_seconds: f64,
}

/// Tables of one size.
#[derive(Default)]
struct Tables {
    /// Rows that a step looks up.
    looked_up: f64,
    gradients: Vec<usize>,
}

impl DenseTable {
    pub fn used_share(&self) -> f64 {
        self.used_rows / self.rows.max(1.0)
    }
}

pub fn dense_table(view: &View, parameters: &Parameters, optimizer: &[Span]) -> Option<DenseTable> {
    let device = &view.trace.device;
    let gradients = view.host_spans_named(|name| name == "aten::embedding_dense_backward");
    let mut tables: BTreeMap<(u64, u64), Tables> = BTreeMap::new();
    for at in gradients.into_iter().filter(|&at| view.step_of(at).is_some()) {
        let inputs = view.shapes(at);
        let concrete = view.concrete(at);
        let rows = concrete.get(2).and_then(|rows| rows.parse::<u64>().ok());
        let (Some(rows), [grad, indices, ..]) = (rows, inputs.as_slice()) else { continue };
        let width = grad.last().copied().unwrap_or(0);
        let alike = tables.entry((rows, width)).or_default();
        alike.looked_up += indices.iter().map(|size| *size as f64).product::<f64>() / view.steps.count();
        alike.gradients.push(at);
    }
    // Equal tables have one gradient each; one table that is read twice has two.
    let one_each = |alike: &Tables| (alike.gradients.len() as f64 / view.steps.count()).max(1.0);
    let counts: [&dyn Fn(&Tables) -> f64; 2] = [&one_each, &|_| 1.0];
    let is_hardly_used = |rows: f64, alike: &Tables| rows >= ROWS_TO_USED.get() * alike.looked_up;
    let together = |count: &dyn Fn(&Tables) -> f64| {
        let (mut sum, mut elements) = (DenseTable::default(), 0.0);
        for (&(rows, width), alike) in &tables {
            let rows = rows as f64 * count(alike);
            if is_hardly_used(rows, alike) {
                (sum.rows, sum.used_rows) = (sum.rows + rows, sum.used_rows + alike.looked_up);
                elements += rows * width as f64;
            }
        }
        sum.width = elements / sum.rows.max(1.0);
        sum.share_of_update = elements / parameters.elements.max(1.0);
        sum
    };
    let is_most = |table: &DenseTable| (SHARE_OF_PARAMETERS.get()..=1.001).contains(&table.share_of_update);
    let (count, mut table) =
        counts.into_iter().map(|count| (count, together(count))).find(|(_, table)| is_most(table))?;
    let own = tables.iter().filter(|((rows, _), alike)| is_hardly_used(*rows as f64 * count(alike), alike));
    let own: HashSet<usize> = own.flat_map(|(_, alike)| alike.gradients.iter().copied()).collect();
    let of_gradient = |at: usize| {
        let owner = view.operator_of_device(at)?;
        view.ancestors(owner).find(|outer| own.contains(outer)).map(|_| owner)
    };
    for at in device.busy().filter(|&at| matches!(device.category[at], Category::Kernel | Category::Memset)) {
        let Some(owner) = of_gradient(at) else { continue };
        table.gradient.push(at);
        if view.ancestors(owner).any(|at| matches!(view.host_name(at), "aten::zero_" | "aten::fill_")) {
            table.fills.push(at);
        }
    }
    table.update = update(view, parameters, optimizer).kernels;
    let time = |kernels: &[usize]| view.device_nanos(kernels) as f64 / 1e9;
    let of_table = time(&table.fills) + table.share_of_update * time(&table.update);
    table.unused_seconds = (1.0 - table.used_share()) * of_table;
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};
    use crate::measures::parameters::parameters;

    /// A table of `rows` rows of 128, of which 1,000 are looked up, with an update of 4 ms.
    fn table(rows: u64) -> Option<DenseTable> {
        tables(&[rows], &[rows])
    }

    /// Consecutive tables with these numbers of rows, and the gradients accumulated for them.
    fn tables(read: &[u64], accumulated: &[u64]) -> Option<DenseTable> {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 10_000 * MICRO);
        for (place, rows) in read.iter().enumerate() {
            let (at, work) = (1_000 * MICRO * place as i64, 2_000 * MICRO * place as i64);
            let args = format!(
                r#""Input Dims":[[1000,128],[1000],[],[],[]],"Input type":["float","long int","Scalar","Scalar","Scalar"],"Concrete Inputs":["","","{rows}","-1","False"]"#
            );
            made.span("cpu_op", "aten::embedding_dense_backward", 1, at, at + 100 * MICRO, &args);
            made.operator("aten::zero_", at + 5 * MICRO, at + 20 * MICRO);
            made.launch((at + 6 * MICRO, at + 10 * MICRO), "FillFunctor", (work + 20 * MICRO, work + 1_020 * MICRO));
            made.operator("aten::sum", at + 30 * MICRO, at + 40 * MICRO);
            made.launch((at + 31 * MICRO, at + 35 * MICRO), "scatter", (work + 1_020 * MICRO, work + 1_120 * MICRO));
        }
        for (place, rows) in accumulated.iter().enumerate() {
            let (at, sizes) = ((110 + 1_000 * place as i64) * MICRO, format!("[[{rows},128]]"));
            made.shaped("torch::autograd::AccumulateGrad", at, at + 10 * MICRO, &sizes, "float");
        }
        made.operator("aten::_foreach_add_", 9_200 * MICRO, 9_240 * MICRO);
        made.launch((9_210 * MICRO, 9_220 * MICRO), "multi_tensor_apply_kernel", (9_300 * MICRO, 13_300 * MICRO));
        let trace = made.trace();
        let view = View::new(&trace);
        dense_table(&view, &parameters(&view), &[Span { start: 9_200 * MICRO, end: 9_240 * MICRO }])
    }

    #[test]
    fn rows_that_nothing_uses_cost_their_fill_and_their_update() {
        let found = table(100_000).expect("has few used rows");
        assert_eq!((found.rows, found.used_rows), (100_000.0, 1_000.0));
        assert_eq!((found.gradient.len(), found.fills.len(), found.update.len()), (2, 1, 1));
        assert!((found.share_of_update - 1.0).abs() < 1e-9);
        assert!((found.unused_seconds - 0.99 * 5e-3).abs() < 1e-9, "{}", found.unused_seconds);
    }

    #[test]
    fn a_table_that_is_used_is_not_told() {
        assert!(table(4_000).is_none());
    }

    #[test]
    fn several_tables_count_together_and_one_that_is_read_twice_once() {
        let found = tables(&[100_000; 3], &[100_000; 3]).expect("three tables");
        assert_eq!((found.rows, found.used_rows, found.fills.len()), (300_000.0, 3_000.0, 3));
        let found = tables(&[100_000; 2], &[100_000]).expect("one table");
        assert_eq!((found.rows, found.used_rows), (100_000.0, 2_000.0));
        let found = tables(&[100_000, 4_000], &[100_000, 4_000]).expect("a used one beside it");
        assert_eq!((found.rows, found.fills.len()), (100_000.0, 1), "which keeps its own kernels");
    }
}
