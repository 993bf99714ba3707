//! Embedding tables with a dense gradient of which a step uses few rows.

use std::collections::BTreeMap;

use hashbrown::HashSet;
use headroom_trace::Category;

use super::flops::shapes;
use super::intervals::Span;
use super::parameters::{Parameters, update};
use super::view::View;

/// The largest such table.
#[derive(Clone, Debug, Default)]
pub struct DenseTable {
    pub rows: f64,
    pub width: f64,
    /// At most so many rows are used per step: as many as indices are looked up.
    pub used_rows: f64,
    /// Kernels of the gradient: the fill with zeros, and what adds the used rows to it.
    pub gradient: Vec<usize>,
    pub fills: Vec<usize>,
    /// Kernels of the optimizer, of whose time `share_of_update` goes into the table.
    pub update: Vec<usize>,
    pub share_of_update: f64,
    /// Device time that goes into rows which nothing uses.
    pub unused_seconds: f64,
}

/// Fewer rows to each used one are not worth another kind of gradient.
const ROWS_TO_USED: f64 = 8.0;
/// A smaller table is lost among the other parameters.
const SHARE_OF_PARAMETERS: f64 = 0.5;

impl DenseTable {
    pub fn used_share(&self) -> f64 {
        self.used_rows / self.rows.max(1.0)
    }
}

pub fn dense_table(view: &View, parameters: &Parameters, optimizer: &[Span]) -> Option<DenseTable> {
    let (host, device) = (&view.trace.host, &view.trace.device);
    let gradients = view.host_spans_named(|name| name == "aten::embedding_dense_backward");
    let mut tables: BTreeMap<(u64, u64), f64> = BTreeMap::new();
    let mut own: HashSet<usize> = HashSet::new();
    for at in gradients.into_iter().filter(|&at| view.steps.at_host(host.start[at]).is_some()) {
        let inputs = shapes(view.name(host.dims[at]));
        let concrete: Vec<String> = serde_json::from_str(view.name(host.concrete[at])).unwrap_or_default();
        let rows = concrete.get(2).and_then(|rows| rows.parse::<u64>().ok());
        let (Some(rows), [grad, indices, ..]) = (rows, inputs.as_slice()) else { continue };
        let width = grad.last().copied().unwrap_or(0);
        *tables.entry((rows, width)).or_default() += indices.iter().map(|size| *size as f64).product::<f64>();
        own.insert(at);
    }
    let tables = tables.into_iter().map(|((rows, width), looked_up)| (rows as f64, width as f64, looked_up));
    let (rows, width, looked_up) = tables.max_by(|one, two| (one.0 * one.1).total_cmp(&(two.0 * two.1)))?;
    let used_rows = looked_up / view.steps.count();
    let share_of_update = rows * width / parameters.elements.max(1.0);
    if rows < ROWS_TO_USED * used_rows || !(SHARE_OF_PARAMETERS..=1.001).contains(&share_of_update) {
        return None;
    }
    let of_gradient = |at: usize| {
        let owner = view.operator_of_device(at)?;
        view.ancestors(owner).find(|outer| own.contains(outer)).map(|_| owner)
    };
    let mut table = DenseTable { rows, width, used_rows, share_of_update, ..DenseTable::default() };
    for at in device.busy().filter(|&at| matches!(device.category[at], Category::Kernel | Category::Memset)) {
        let Some(owner) = of_gradient(at) else { continue };
        table.gradient.push(at);
        if view.ancestors(owner).any(|at| matches!(view.host_name(at), "aten::zero_" | "aten::fill_")) {
            table.fills.push(at);
        }
    }
    table.update = update(view, parameters, optimizer).kernels;
    let time = |kernels: &[usize]| kernels.iter().map(|&at| device.duration[at]).sum::<i64>() as f64 / 1e9;
    let of_table = time(&table.fills) + share_of_update * time(&table.update);
    table.unused_seconds = (1.0 - table.used_share()) * of_table;
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::Fabricated;
    use crate::measures::parameters::parameters;

    const MICRO: i64 = 1_000;

    /// A table of `rows` rows of 128, of which 1,000 are looked up, and its update of 4 ms.
    fn table(rows: u64) -> Option<DenseTable> {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 10_000 * MICRO);
        let args = format!(
            r#""Input Dims":[[1000,128],[1000],[],[],[]],"Input type":["float","long int","Scalar","Scalar","Scalar"],"Concrete Inputs":["","","{rows}","-1","False"]"#
        );
        made.span("cpu_op", "aten::embedding_dense_backward", 1, 0, 100 * MICRO, &args);
        made.operator("aten::zero_", 5 * MICRO, 20 * MICRO);
        made.launch((6 * MICRO, 10 * MICRO), "FillFunctor", (20 * MICRO, 1_020 * MICRO));
        made.operator("aten::sum", 30 * MICRO, 40 * MICRO);
        made.launch((31 * MICRO, 35 * MICRO), "sum_and_scatter", (1_020 * MICRO, 1_120 * MICRO));
        made.shaped("torch::autograd::AccumulateGrad", 110 * MICRO, 120 * MICRO, &format!("[[{rows},128]]"), "float");
        made.operator("aten::_foreach_add_", 200 * MICRO, 240 * MICRO);
        made.launch((210 * MICRO, 220 * MICRO), "multi_tensor_apply_kernel", (1_120 * MICRO, 5_120 * MICRO));
        let trace = made.trace();
        let view = View::new(&trace);
        dense_table(&view, &parameters(&view), &[Span { start: 200 * MICRO, end: 240 * MICRO }])
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
}
