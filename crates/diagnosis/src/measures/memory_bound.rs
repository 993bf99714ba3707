//! Memory-bound operators: the time that their tensors' bytes need at the memory bandwidth, and the time taken.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use headroom_trace::{Category, NONE};
use serde::Serialize;

use super::flops::element_bytes;
use super::intervals::seconds;
use super::roofline::rates;
use super::view::View;
use crate::constants::norms::SHORTEST_NANOS;

/// All calls of one operator.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MemoryBoundRow {
    pub operator: String,
    pub calls: u64,
    pub seconds: f64,
    /// Time to move the inputs, and an output as large as the largest, once at the memory bandwidth.
    pub least_seconds: f64,
    /// Each kernel with its share of that time.
    #[serde(skip)]
    pub kernels: Vec<(usize, i64)>,
}

/// Name parts of operators that compute, that pass through memory several times, or whose output is not as large as an
/// input.
const OTHERS: &[&str] = &[
    "mm",
    "mv",
    "dot",
    "conv",
    "attention",
    "norm",
    "linear",
    "einsum",
    "baddb",
    "upsample",
    "fold",
    "im2col",
    "col2im",
    "repeat",
    "one_hot",
    "pad",
    "rand",
    "uniform",
    "bernoulli",
    "exponential",
    "sort",
    "topk",
    "unique",
    "nonzero",
    "multinomial",
    "fft",
    "cdist",
    "_foreach",
    "_fused",
    "linalg",
    "cholesky",
    "svd",
    "solve",
    "cat",
    "stack",
    "lstm",
    "gru",
    "rnn",
    "ctc",
];

fn is_bound_by_memory(operator: &str) -> bool {
    let name = operator.strip_prefix("aten::");
    name.is_some_and(|name| !OTHERS.iter().any(|part| name.contains(part)))
}

/// The operators with the most time beyond their bytes first; empty if the memory bandwidth is unknown.
pub fn memory_bound(view: &View) -> Vec<MemoryBoundRow> {
    let (host, device) = (&view.trace.host, &view.trace.device);
    let Some((rates, _)) = rates(view).filter(|_| view.trace.header.headroom.is_none()) else { return Vec::new() };
    let range = view.steps.range();
    let by_name: Vec<bool> = view.trace.names.iter().map(|(_, name)| is_bound_by_memory(name)).collect();
    // By operator call: its kernels and their time.
    let mut calls: BTreeMap<usize, (Vec<usize>, i64)> = BTreeMap::new();
    for at in device.busy().filter(|&at| device.category[at] == Category::Kernel && view.call_of[at] != NONE) {
        if !(range.start..range.end).contains(&device.start[at]) {
            continue;
        }
        let Some(inner) = view.operator_of(view.call_of[at] as usize) else { continue };
        // An operator may sort or fill on its way: the outer one is measured by its own tensors.
        let outer = view.ancestors(inner).skip(1).take(2).find(|&outer| is_scatter(view.host_name(outer)));
        let owner = outer.unwrap_or(inner);
        if by_name[host.name[owner].index()] {
            let call = calls.entry(owner).or_default();
            call.0.push(at);
            call.1 += device.duration[at];
        }
    }
    let mut known: HashMap<_, Option<f64>> = HashMap::new();
    let mut rows: BTreeMap<&str, MemoryBoundRow> = BTreeMap::new();
    for (owner, (kernels, taken)) in calls {
        let key = [host.name[owner], host.dims[owner], host.types[owner], host.concrete[owner]];
        let Some(bytes) = *known.entry(key).or_insert_with(|| moved_bytes(view, owner)) else { continue };
        let least = (1e9 * bytes / rates.bytes).max(SHORTEST_NANOS.get() * kernels.len() as f64).min(taken as f64);
        let row = rows.entry(view.host_name(owner)).or_default();
        row.calls += 1;
        row.seconds += seconds(taken);
        row.least_seconds += least / 1e9;
        let share = least / taken.max(1) as f64;
        row.kernels.extend(kernels.into_iter().map(|at| (at, (share * device.duration[at] as f64) as i64)));
    }
    let named = |(name, row): (&str, MemoryBoundRow)| MemoryBoundRow { operator: name.to_string(), ..row };
    let mut rows: Vec<MemoryBoundRow> = rows.into_iter().map(named).collect();
    let above = |row: &MemoryBoundRow| row.seconds - row.least_seconds;
    rows.sort_by(|left, right| above(right).total_cmp(&above(left)).then(left.operator.cmp(&right.operator)));
    rows.truncate(MOST_ROWS);
    rows
}

const MOST_ROWS: usize = 8;

fn is_scatter(operator: &str) -> bool {
    ["aten::index_put", "aten::_index_put", "aten::index_add", "aten::scatter_add", "aten::embedding_dense_backward"]
        .iter()
        .any(|start| operator.starts_with(start))
}

/// `None` if sizes are not recorded, or hidden in a list.
fn moved_bytes(view: &View, at: usize) -> Option<f64> {
    let types = view.types(at);
    let name = view.host_name(at);
    // Lists hold an index's positions, which are small compared with what they index.
    if !name.contains("index") && types.iter().any(|kind| kind.contains("List") && kind != "ScalarList") {
        return None;
    }
    let dims = view.shapes(at);
    let tensors = || dims.iter().zip(&types).filter(|(shape, _)| !shape.is_empty());
    let bytes = |(shape, kind): (&Vec<u64>, &String)| count(shape) * element_bytes(kind);
    let read: f64 = tensors().map(bytes).sum();
    let widest = tensors().map(|(_, kind)| element_bytes(kind)).fold(0.0, f64::max);
    let written = match name {
        // Gradient, positions, number of rows: the whole table is written.
        "aten::embedding_dense_backward" => {
            let concrete = view.concrete(at);
            let rows: f64 = concrete.get(2)?.parse().ok()?;
            rows * *dims.first()?.last()? as f64 * widest.min(4.0)
        }
        _ => match broadcast(tensors().map(|(shape, _)| shape.as_slice())) {
            Some(elements) => elements * widest,
            None => tensors().map(bytes).fold(0.0, f64::max),
        },
    };
    Some(read + written).filter(|_| read > 0.0)
}

/// Elements of an element-wise operator's broadcast result; `None` if the inputs do not fit together.
fn broadcast<'s>(shapes: impl Iterator<Item = &'s [u64]>) -> Option<f64> {
    let mut result: Vec<u64> = Vec::new();
    for shape in shapes {
        for (place, &size) in shape.iter().rev().enumerate() {
            match result.get_mut(place) {
                None => result.push(size),
                Some(known) if *known == 1 => *known = size,
                Some(known) if *known == size || size == 1 => {}
                Some(_) => return None,
            }
        }
    }
    Some(count(&result))
}

fn count(shape: &[u64]) -> f64 {
    shape.iter().map(|size| *size as f64).product()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};

    /// Seconds that the bytes of one operator need; its kernels take 2 and 8 ms.
    fn least(operator: &str, arguments: &str) -> Option<f64> {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 20_000 * MICRO);
        made.span("cpu_op", operator, 1, 0, 40 * MICRO, arguments);
        made.launch((5 * MICRO, 10 * MICRO), "a", (20 * MICRO, 2_020 * MICRO));
        made.launch((15 * MICRO, 18 * MICRO), "b", (2_020 * MICRO, 10_020 * MICRO));
        let rows = memory_bound(&View::new(&made.trace()));
        let row = rows.first()?;
        assert!((row.seconds - 10e-3).abs() < 1e-12 && row.calls == 1);
        assert!((row.kernels[1].1 - 4 * row.kernels[0].1).abs() <= 4, "by their time: {:?}", row.kernels);
        Some(row.least_seconds)
    }

    fn assert_bytes(operator: &str, arguments: &str, bytes: f64) {
        let found = least(operator, arguments).unwrap_or(0.0);
        assert!((found - bytes / 4.8e12).abs() < 1e-8, "{operator}: {found}, wanted {}", bytes / 4.8e12);
    }

    #[test]
    fn an_operator_needs_its_inputs_and_an_output() {
        let one = r#""Input Dims":[[4096,8192]],"Input type":["float"]"#;
        assert_bytes("aten::relu", one, 2.0 * 4.0 * 4096.0 * 8192.0);
        let outer = r#""Input Dims":[[32768,1],[1,8192]],"Input type":["float","float"]"#;
        assert_bytes("aten::sub", outer, 4.0 * (32768.0 + 8192.0 + 32768.0 * 8192.0));
        let pool = r#""Input Dims":[[256,64,56,56],[256,64,112,112]],"Input type":["float","float"]"#;
        let image = 4.0 * 256.0 * 64.0 * 112.0 * 112.0;
        assert_bytes("aten::max_pool2d_with_indices_backward", pool, image / 4.0 + 2.0 * image);
        let table = r#""Input Dims":[[64,512,1024],[64,512],[],[],[]],"Input type":["float","long int","Scalar","Scalar","Scalar"],"Concrete Inputs":["","","50000","-1","False"]"#;
        assert_bytes(
            "aten::embedding_dense_backward",
            table,
            4.0 * (64.0 * 512.0 * 1024.0 + 50_000.0 * 1024.0) + 8.0 * 64.0 * 512.0,
        );
    }

    #[test]
    fn what_computes_and_what_hides_its_sizes_is_left_out() {
        let one = r#""Input Dims":[[4096,8192]],"Input type":["float"]"#;
        for operator in ["aten::mm", "aten::native_layer_norm", "aten::sort", "aten::upsample_nearest2d", "my::kernel"]
        {
            assert_eq!(least(operator, one), None, "{operator}");
        }
        assert_eq!(least("aten::relu", ""), None);
        assert_eq!(
            least("aten::split_with_sizes_copy", r#""Input Dims":[[8,8],[]],"Input type":["float","TensorList"]"#),
            None
        );
        let put = r#""Input Dims":[[1000000,64],[],[500000,64]],"Input type":["float","TensorList","float"]"#;
        assert!(least("aten::_index_put_impl_", put).is_some());
    }
}
