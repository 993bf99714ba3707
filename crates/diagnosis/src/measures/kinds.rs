//! Classifies kernels by name: what the device's time went into, and which kernels use tensor cores.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use headroom_trace::Category;
use serde::{Deserialize, Serialize};

use super::collectives::is_communication;
use super::copies::{Direction, direction};
use super::intervals::seconds;
use super::marks::{MARKS, is_marked};
use super::view::View;

/// Kind of a piece of device work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Product,
    Convolution,
    Attention,
    Normalisation,
    ElementWise,
    Reduction,
    /// Embeddings, gathers, scatters, sorts.
    Indexing,
    Optimizer,
    Communication,
    /// Copies and fills that stay on the device, transposes and layout changes.
    CopyOnDevice,
    CopyToOrFromHost,
    #[default]
    Other,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Product => "matrix products",
            Kind::Convolution => "convolutions",
            Kind::Attention => "attention",
            Kind::Normalisation => "norms",
            Kind::ElementWise => "element-wise",
            Kind::Reduction => "reductions",
            Kind::Indexing => "indexing and sorting",
            Kind::Optimizer => "optimizer",
            Kind::Communication => "communication",
            Kind::CopyOnDevice => "copies on the device",
            Kind::CopyToOrFromHost => "copies to or from the host",
            Kind::Other => "other kernels",
        }
    }

    /// Whether matrix units run it where possible.
    pub fn is_for_matrix_units(self) -> bool {
        matches!(self, Kind::Product | Kind::Convolution | Kind::Attention)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KindRow {
    pub kind: Kind,
    pub name: &'static str,
    pub calls: u64,
    pub seconds: f64,
    /// Share of all device time.
    pub share: f64,
}

/// Device time by kind, the largest first. Concurrent work counts for each kind.
pub fn kinds(view: &View) -> Vec<KindRow> {
    let device = &view.trace.device;
    let of_name = kinds_of_names(view);
    let mut sums: BTreeMap<Kind, (u64, i64)> = BTreeMap::new();
    for at in view.in_steps() {
        let sum = sums.entry(of_span(view, &of_name, at)).or_default();
        sum.0 += 1;
        sum.1 += device.duration[at];
    }
    let all: i64 = sums.values().map(|(_, nanos)| nanos).sum();
    let row = |(kind, (calls, nanos)): (Kind, (u64, i64))| KindRow {
        kind,
        name: kind.name(),
        calls,
        seconds: seconds(nanos),
        share: nanos as f64 / all.max(1) as f64,
    };
    let mut rows: Vec<KindRow> = sums.into_iter().map(row).collect();
    rows.sort_by(|left, right| right.seconds.total_cmp(&left.seconds).then(left.kind.cmp(&right.kind)));
    rows
}

/// Kinds by name id; meaningless for names that are not kernels.
pub fn kinds_of_names(view: &View) -> Vec<Kind> {
    view.of_kernels(kind_of)
}

pub fn of_span(view: &View, of_name: &[Kind], at: usize) -> Kind {
    let device = &view.trace.device;
    match device.category[at] {
        Category::Memcpy if direction(view.name(device.name[at])) != Direction::Within => Kind::CopyToOrFromHost,
        Category::Memcpy | Category::Memset => Kind::CopyOnDevice,
        _ => of_name[device.name[at].index()],
    }
}

/// The marks that say a kernel's kind.
static KINDS: LazyLock<Vec<(Kind, &str)>> = LazyLock::new(|| {
    let kind = |[what, mark]: &[&'static str; 2]| Some((serde_json::from_value((*what).into()).ok()?, *mark));
    MARKS.iter().filter_map(kind).collect()
});

pub fn kind_of(kernel: &str) -> Kind {
    if is_communication(kernel) {
        return Kind::Communication;
    }
    let lower = kernel.to_ascii_lowercase();
    // PyTorch's own kernels name their form before their purpose: `elementwise_kernel<…threshold_kernel_impl…>`.
    if lower.contains("elementwise_kernel") || lower.contains("catarraybatchedcopy") || lower.starts_with("triton_poi")
    {
        return Kind::ElementWise;
    }
    if lower.contains("reduce_kernel") && !lower.contains("splitk") {
        return Kind::Reduction;
    }
    if lower.starts_with("triton_red") || lower.starts_with("triton_per") {
        return Kind::Reduction;
    }
    KINDS.iter().find(|(_, mark)| lower.contains(mark)).map_or(Kind::Other, |(kind, _)| *kind)
}

/// Whether a kernel uses matrix units, by the marks that vendors put into names: `Some(true)` for tensor cores, MFMA
/// and similar, `Some(false)` for kernels known to do without, `None` if the name does not say.
pub fn uses_matrix_units(kernel: &str) -> Option<bool> {
    let lower = kernel.to_ascii_lowercase();
    let (with, without) = (is_marked("matrix-units", &lower), is_marked("no-matrix-units", &lower));
    match (with, without) {
        (true, false) => Some(true),
        // `…sgemm…tensorop…` names a single-precision GEMM on tensor cores; likewise `…f32f32_tf32f32…`.
        (true, true) => Some(lower.contains("tf32") || lower.contains("tensorop") || lower.contains("xf32")),
        (false, true) => Some(false),
        // Tensile writes its matrix instruction into the name; a single-precision GEMM without one does not use any.
        (false, false) => (lower.starts_with("cijk_") && lower.contains("_sb_")).then_some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn kernels_say_in_their_names_what_they_do_and_by_which_units() {
        for [what, kernel] in table::rows(include_str!("kernel_examples.tsv")) {
            let said = match what {
                "matrix-units" => uses_matrix_units(kernel) == Some(true),
                "no-matrix-units" => uses_matrix_units(kernel) == Some(false),
                "unknown-units" => uses_matrix_units(kernel).is_none(),
                "no-communication" => !is_communication(kernel),
                kind => serde_json::to_value(kind_of(kernel)).expect("has a name") == kind,
            };
            assert!(said, "{kernel} is not {what}");
        }
    }
}
