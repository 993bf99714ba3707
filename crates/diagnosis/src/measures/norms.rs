//! Norms compared with the memory bandwidth: they compute next to nothing, so their bytes tell how long they need.

mod replayed;

use hashbrown::HashMap;
use serde::Serialize;

use super::flops::element_bytes;
use super::intervals::seconds;
use super::roofline::rates;
use super::view::View;
use crate::constants::norms::{REACHED, SHORTEST_NANOS};

#[derive(Clone, Debug, Default, Serialize)]
pub struct Norms {
    pub calls: u64,
    pub seconds: f64,
    /// The time for their bytes at the memory bandwidth.
    pub least_seconds: f64,
    /// The operator that takes most of the time.
    pub operator: String,
    /// Whether most of the time is in batch norms over images in NCHW layout.
    pub is_by_plane: bool,
    /// Each kernel with the time of a good one, and with the time of the fewest passes at full bandwidth.
    #[serde(skip)]
    pub kernels: Vec<NormKernel>,
    /// Kernels that convert images between channels first and channels last.
    #[serde(skip)]
    pub conversions: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormKernel {
    pub at: usize,
    pub expected_nanos: i64,
    pub fewest_nanos: i64,
}

/// How often a norm's tensor passes through memory, usually and at least.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Passes {
    usual: f64,
    fewest: f64,
}

/// Statistics over a batch or a group need a separate read; a row of a layer norm stays on the chip.
fn passes(operator: &str) -> Option<Passes> {
    let name = operator.strip_prefix("aten::")?;
    let is_of_rows = name.contains("layer_norm") || name.contains("rms_norm");
    let is_of_batches = ["batch_norm", "group_norm", "instance_norm"].iter().any(|mark| name.contains(mark));
    match name.contains("backward") {
        // Input and gradient are read twice, for the sums and for the result.
        true if is_of_rows || is_of_batches => Some(Passes { usual: 5.0, fewest: 3.0 }),
        false if is_of_batches => Some(Passes { usual: 3.0, fewest: 2.0 }),
        false if is_of_rows => Some(Passes { usual: 2.0, fewest: 2.0 }),
        _ => None,
    }
}

/// Empty if the memory bandwidth is unknown. Norms of operators without shapes are left out.
pub fn norms(view: &View) -> Norms {
    let (host, device) = (&view.trace.host, &view.trace.device);
    let mut result = Norms::default();
    if view.trace.header.headroom.is_some() {
        return result; // the plan of a headroom run states its bytes
    }
    let Some((rates, _)) = rates(view) else { return result };
    let by_name: Vec<Option<Passes>> = view.trace.names.iter().map(|(_, name)| passes(name)).collect();
    let by_plane = view.of_kernels(is_by_plane);
    let converts = view.of_kernels(is_conversion);
    let mut of_operator: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut replayed = vec![];
    for at in view.kernels() {
        if converts[device.name[at].index()] {
            result.conversions.push(at);
        }
        let is_operator = |&outer: &usize| view.is_operator(outer);
        let call = view.call(at);
        let mut operators =
            call.into_iter().flat_map(|call| view.ancestors(call)).take(8).filter(is_operator).peekable();
        match operators.peek() {
            None if by_plane[device.name[at].index()] => replayed.push(at),
            _ => {
                if let Some(owner) = operators.find(|&outer| by_name[host.name[outer].index()].is_some()) {
                    of_operator.entry(owner).or_default().push(at);
                }
            }
        }
    }
    let mut owners: Vec<(usize, Vec<usize>)> = of_operator.into_iter().collect();
    owners.sort_unstable_by_key(|(owner, _)| *owner);
    let (mut plane_nanos, mut sums) = (0, HashMap::<&str, i64>::new());
    for (owner, kernels) in owners {
        let (Some(passes), Some(bytes)) = (by_name[host.name[owner].index()], tensor_bytes(view, owner)) else {
            continue;
        };
        let taken: i64 = view.device_nanos(&kernels);
        let (once, shortest) = (1e9 * bytes / rates.bytes, SHORTEST_NANOS.get() * kernels.len() as f64);
        let least = |passes: f64| (passes * once).max(shortest).min(taken as f64);
        result.calls += 1;
        result.seconds += seconds(taken);
        result.least_seconds += least(passes.usual) / 1e9;
        *sums.entry(view.host_name(owner)).or_default() += taken;
        let has_images = view.shapes(owner).first().is_some_and(|shape| shape.len() >= 4);
        for at in kernels {
            let share = device.duration[at] as f64 / taken.max(1) as f64;
            let expected = (share * least(passes.usual) / REACHED.get()) as i64;
            result.kernels.push(NormKernel {
                at,
                expected_nanos: expected.min(device.duration[at]),
                fewest_nanos: (share * least(passes.fewest)) as i64,
            });
            plane_nanos += if has_images && by_plane[device.name[at].index()] { device.duration[at] } else { 0 };
        }
    }
    plane_nanos += replayed::take(view, &replayed, &mut result);
    let most = sums.into_iter().max_by(|left, right| left.1.cmp(&right.1).then(right.0.cmp(left.0)));
    if let Some((name, _)) = most {
        result.operator = name.to_string();
    }
    result.is_by_plane = 2.0 * seconds(plane_nanos) > result.seconds;
    result
}

/// The size of the largest input tensor of an operator.
fn tensor_bytes(view: &View, at: usize) -> Option<f64> {
    let types = view.types(at);
    let bytes = |(shape, kind): (Vec<u64>, &String)| match shape.is_empty() {
        true => 0.0,
        false => shape.iter().map(|size| *size as f64).product::<f64>() * element_bytes(kind),
    };
    let largest = view.shapes(at).into_iter().zip(&types).map(bytes).fold(0.0, f64::max);
    Some(largest).filter(|bytes| *bytes > 0.0)
}

/// Batch-norm kernels for channels-first images, by PyTorch's and cuDNN's names; those for channels last say so.
fn is_by_plane(kernel: &str) -> bool {
    let lower = kernel.to_ascii_lowercase();
    let is_batch_norm = ["batch_norm", "batchnorm", "bn_fw", "bn_bw"].iter().any(|mark| lower.contains(mark));
    is_batch_norm && !lower.contains("channels_last") && !lower.contains("nhwc")
}

fn is_conversion(kernel: &str) -> bool {
    let lower = kernel.to_ascii_lowercase();
    lower.contains("nchwtonhwc") || lower.contains("nhwctonchw")
}

#[cfg(test)]
mod tests;
