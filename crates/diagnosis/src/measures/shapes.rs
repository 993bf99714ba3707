//! The speed of GEMMs, convolutions and attention for each of their shapes.

use std::collections::HashMap;

use headroom_trace::NameId;
use serde::Serialize;

use super::flops::{Cost, Precision};
use super::rates::{Rates, roof};
use super::view::View;

#[derive(Clone, Debug, Default, Serialize)]
pub struct ShapeRow {
    pub kind: &'static str,
    pub name: String,
    pub input_dims: String,
    pub precision: &'static str,
    pub calls: u64,
    pub seconds: f64,
    /// Share of the total time of all rows.
    pub share: f64,
    pub flops: f64,
    /// `None` if no peak of the device is known.
    pub percent_of_roof: Option<f64>,
}

const MOST_ROWS: usize = 100;

/// `seconds` and `costs` are indexed by host span. The rows with the most time come first.
pub fn by_shape(view: &View, costs: &[Cost], seconds: &[f64], rates: Option<&Rates>) -> Vec<ShapeRow> {
    let host = &view.trace.host;
    let range = view.steps.host_range();
    let kinds: Vec<Option<&'static str>> = view.trace.names.iter().map(|(_, name)| kind(name)).collect();
    let mut rows: HashMap<(NameId, NameId, NameId), (ShapeRow, f64)> = HashMap::new();
    for at in (0..host.len()).filter(|&at| costs[at].flops > 0.0 && seconds[at] > 0.0) {
        let inside = (range.start..range.end).contains(&host.start[at]);
        let Some(kind) = kinds[host.name[at].index()].filter(|_| inside) else { continue };
        let (row, least) = rows.entry((host.name[at], host.dims[at], host.types[at])).or_default();
        row.kind = kind;
        row.calls += 1;
        row.seconds += seconds[at];
        row.flops += costs[at].flops;
        row.precision = match costs[at].precision {
            Precision::Fp32 => "fp32",
            Precision::Half => "16 bits",
            Precision::Fp8 => "fp8",
            Precision::Int8 => "int8",
            Precision::Fp64 => "fp64",
        };
        *least += rates.map_or(0.0, |rates| roof(rates, costs[at]));
    }
    let mut rows: Vec<ShapeRow> = rows
        .into_iter()
        .map(|((name, dims, _), (row, least))| ShapeRow {
            name: view.name(name).to_string(),
            input_dims: view.name(dims).to_string(),
            percent_of_roof: (least > 0.0).then(|| 100.0 * least / row.seconds),
            ..row
        })
        .collect();
    rows.sort_by(|left, right| {
        let names = |row: &ShapeRow| (row.name.clone(), row.input_dims.clone(), row.precision);
        right.seconds.total_cmp(&left.seconds).then_with(|| names(left).cmp(&names(right)))
    });
    // Summed in the order of the rows, because the last digit depends on the order.
    let all: f64 = rows.iter().map(|row| row.seconds).sum();
    rows.iter_mut().for_each(|row| row.share = row.seconds / all.max(f64::MIN_POSITIVE));
    rows.truncate(MOST_ROWS);
    rows
}

fn kind(name: &str) -> Option<&'static str> {
    let has = |word: &str| name.contains(word);
    if has("attention") {
        Some("attention")
    } else if has("conv") {
        Some("convolution")
    } else if has("mm") || has("linear") || has("matmul") {
        Some("product")
    } else {
        None
    }
}
