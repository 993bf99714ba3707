//! The collectives of one trace: their kernels and host spans, kind, group and size.

use headroom_trace::{Category, NONE};
use serde::Serialize;

use super::flops::element_bytes;
use super::intervals::Span;
use super::marks::{is_marked, marks};
use super::view::View;

/// The operation of a collective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
    Broadcast,
    Reduce,
    /// A send, a receive, or several of them at once.
    PointToPoint,
    #[default]
    Other,
}

impl Kind {
    /// Classifies the name of a kernel, an operator or an annotation.
    pub fn of(name: &str) -> Kind {
        let plain: String = name.to_ascii_lowercase().chars().filter(|letter| letter.is_ascii_alphanumeric()).collect();
        let has = |word: &str| plain.contains(word);
        // `allreduce` contains `reduce`, so longer words come first.
        if has("allreduce") || has("crossdevicereduce") {
            Kind::AllReduce
        } else if has("reducescatter") {
            Kind::ReduceScatter
        } else if has("allgather") {
            Kind::AllGather
        } else if has("alltoall")
            || has("a2a")
            || marks("expert-parallel").iter().any(|mark| has(&mark.replace(['_', ':'], "")))
        {
            Kind::AllToAll
        } else if has("broadcast") {
            Kind::Broadcast
        } else if has("reduce") {
            Kind::Reduce
        } else if has("send") || has("recv") || has("permute") {
            Kind::PointToPoint
        } else {
            Kind::Other
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Kind::AllReduce => "all-reduce",
            Kind::AllGather => "all-gather",
            Kind::ReduceScatter => "reduce-scatter",
            Kind::AllToAll => "all-to-all",
            Kind::Broadcast => "broadcast",
            Kind::Reduce => "reduce",
            Kind::PointToPoint => "send and receive",
            Kind::Other => "other",
        }
    }

    /// Whether every rank's message has the same size.
    pub fn is_even(self) -> bool {
        matches!(self, Kind::AllReduce | Kind::AllGather | Kind::ReduceScatter | Kind::Broadcast | Kind::Reduce)
    }

    /// Bytes that a link carries per byte of the message, for this many `ranks`.
    pub fn bus_factor(self, ranks: u32) -> Option<f64> {
        let others = f64::from(ranks.max(1) - 1) / f64::from(ranks.max(1));
        match self {
            Kind::AllReduce => Some(2.0 * others),
            Kind::AllGather | Kind::ReduceScatter | Kind::AllToAll => Some(others),
            Kind::Broadcast | Kind::Reduce => Some(1.0),
            Kind::PointToPoint | Kind::Other => None,
        }
    }
}

/// Whether a kernel moves data between ranks: NCCL, RCCL, oneCCL, symmetric memory, expert parallelism, all-reduces of
/// inference engines.
pub fn is_communication(kernel: &str) -> bool {
    // Template arguments and function parameters say what a kernel works on, not what it does.
    let named = kernel.replace("(anonymous namespace)::", "");
    let function = named.split(['<', '(']).next().unwrap_or(&named).to_ascii_lowercase();
    let within_a_block = ["warp", "block"].iter().any(|unit| function.contains(unit));
    ["rank-library", "expert-parallel"].iter().any(|what| is_marked(what, &function))
        || (!within_a_block && is_marked("collective", &function))
}

/// Whether a host span is a collective of a library that runs on the host, or the host's side of one of NCCL's.
pub fn is_host_communication(name: &str) -> bool {
    ["gloo:", "mpi:", "ucc:", "ccl:", "nccl:", "shm_allreduce", "shm_all_reduce"].iter().any(|start| {
        name.starts_with(start) || name.rsplit("::").next().is_some_and(|function| function.starts_with(start))
    })
}

/// Whether an operator does nothing but start or run a collective.
pub fn is_collective_operator(name: &str) -> bool {
    name.starts_with("c10d::") || name == "record_param_comms" || is_host_communication(name)
}

#[derive(Clone, Debug)]
pub struct Collective {
    /// The device span, or the host span if the library runs there.
    pub at: usize,
    pub span: Span,
    pub kind: Kind,
    /// The group's name and ranks; empty if the trace gives none.
    pub group: String,
    pub group_size: u32,
    /// Size of the whole message: what a rank reduces, or what all have gathered. 0 if the trace does not say.
    pub bytes: u64,
}

/// All collectives in order of start.
pub fn collectives(view: &View) -> Vec<Collective> {
    let device = &view.trace.device;
    let is_one = view.of_kernels(is_communication);
    let kernels = device.busy().filter(|&at| device.category[at] == Category::Kernel);
    let mut found: Vec<Collective> =
        kernels.filter(|&at| is_one[device.name[at].index()]).map(|at| of_kernel(view, at)).collect();
    if found.is_empty() {
        found = host_spans(view).into_iter().map(|at| of_host_span(view, at)).collect();
    }
    found.sort_by_key(|collective| (collective.span.start, collective.at));
    found
}

/// Host spans that are collectives, for use if the device has none. Where the device was recorded, NCCL's host side
/// only launches.
pub fn host_spans(view: &View) -> Vec<usize> {
    let on_device = view.has_device_work();
    view.host_spans_named(|name| is_host_communication(name) && !(on_device && name.starts_with("nccl:")))
}

fn of_kernel(view: &View, at: usize) -> Collective {
    let trace = view.trace;
    let world = trace.header.distributed.as_ref().map_or(0, |distributed| distributed.world_size);
    let by_name = Kind::of(trace.name(trace.device.name[at]).split('(').next().unwrap_or_default());
    let plain = Collective {
        at,
        span: view.device_span(at),
        kind: by_name,
        group: String::new(),
        group_size: world,
        bytes: trace.device.bytes[at],
    };
    if let Some(message) = trace.message(at) {
        let kind = match Kind::of(trace.name(message.collective)) {
            Kind::Other => by_name,
            kind => kind,
        };
        let group_size = if message.group_size > 0 { message.group_size } else { world };
        let bytes = match kind {
            Kind::AllGather => message.bytes_out.max(message.bytes_in * u64::from(group_size)),
            _ => message.bytes_in,
        };
        let group = format!("{} {}", trace.name(message.group), trace.name(message.ranks));
        return Collective { kind, group: group.trim().to_string(), group_size, bytes, ..plain };
    }
    let call = view.call_of[at];
    let ordered = (call != NONE)
        .then(|| view.ancestors(call as usize).find(|&around| view.host_name(around).starts_with("nccl:")));
    match ordered.flatten() {
        None => plain,
        Some(annotation) => {
            let kind = Kind::of(view.host_name(annotation).trim_start_matches("nccl:"));
            let kind = if kind == Kind::Other { by_name } else { kind };
            let own = bytes_of_input(view, annotation);
            let bytes = if kind == Kind::AllGather { own * u64::from(world) } else { own };
            Collective { kind, bytes, ..plain }
        }
    }
}

fn of_host_span(view: &View, at: usize) -> Collective {
    let name = view.host_name(at);
    Collective {
        at,
        span: view.host_span(at),
        kind: Kind::of(name.split(':').next_back().unwrap_or(name)),
        group: String::new(),
        group_size: view.trace.header.distributed.as_ref().map_or(0, |distributed| distributed.world_size),
        bytes: bytes_of_input(view, at),
    }
}

/// Bytes of the first tensor passed to a host span; of an unknown type, 4 per element.
fn bytes_of_input(view: &View, at: usize) -> u64 {
    let types = view.types(at);
    let known = types.first().map_or(0.0, |kind| element_bytes(kind));
    let first = view.shapes(at).into_iter().next().filter(|shape| !shape.is_empty());
    let elements: f64 = first.map_or(0.0, |shape| shape.iter().map(|size| *size as f64).product());
    (elements * if known > 0.0 { known } else { 4.0 }) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_in_the_spelling_of_any_library() {
        assert_eq!(Kind::of("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"), Kind::ReduceScatter);
        assert_eq!(Kind::of("_allgather_base"), Kind::AllGather);
        assert_eq!(Kind::of("all_to_all"), Kind::AllToAll);
        assert_eq!(Kind::of("void deep_ep::intranode::dispatch<8>"), Kind::AllToAll);
        assert_eq!(Kind::of("EpCombineInterNodeKernel_fp8"), Kind::AllToAll);
        assert_eq!(Kind::of("ncclDevKernel_SendRecv"), Kind::PointToPoint);
        assert_eq!(Kind::of("allreduce_coalesced"), Kind::AllReduce);
    }

    #[test]
    fn links_carry_what_nccls_own_tests_count() {
        assert_eq!(Kind::AllReduce.bus_factor(8), Some(1.75));
        assert_eq!(Kind::AllGather.bus_factor(8), Some(0.875));
        assert_eq!(Kind::AllReduce.bus_factor(1), Some(0.0));
    }
}
