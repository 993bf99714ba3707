//! The plan's calls as recorded in a headroom trace: where each ran, how long, in which step, and what it states about
//! itself.

use headroom_record::intensity::Bound;
use headroom_trace::run::{PeaksHeader, RunHeader, place_of};
use headroom_trace::{NONE, Phase, Stated};
use std::collections::HashMap;

use super::intervals::Span;
use super::shares::shares;
use super::view::View;

/// One execution of one call.
#[derive(Clone, Copy, Debug)]
pub struct Call<'t> {
    /// Its index among the host spans.
    pub at: usize,
    /// Its index in `steps.list`.
    pub step: usize,
    pub name: &'t str,
    pub module: &'t str,
    pub phase: Phase,
    pub stated: Stated,
    /// From its first kernel to its last; on a CPU the operator itself.
    pub span: Span,
    /// Its own share of the span's time, if other calls ran at the same time.
    pub seconds: f64,
    /// The least time that the nearer roof allows.
    pub floor: f64,
}

impl Call<'_> {
    /// Bytes live while it runs.
    pub fn live_bytes(&self) -> u64 {
        self.stated.live.iter().sum()
    }
}

/// All calls of the steps, in order of start, and the peak rates to compare with.
pub struct Calls<'t> {
    pub list: Vec<Call<'t>>,
    pub header: &'t RunHeader,
    pub steps: f64,
}

impl<'t> Calls<'t> {
    /// `None` if the trace is not from a headroom run.
    pub fn new(view: &View<'t>) -> Option<Calls<'t>> {
        let header = view.trace.header.headroom.as_ref()?;
        let host = &view.trace.host;
        let ran = spans_on_device(view);
        let mut list: Vec<Call> = (0..host.len())
            .filter(|&at| view.is_operator(at))
            .filter_map(|at| {
                let stated = *view.trace.stated(at)?;
                let span = ran.get(&host.id[at]).copied().unwrap_or(view.host_span(at));
                Some(Call {
                    at,
                    step: view.step_of(at)?,
                    name: view.host_name(at),
                    module: view.name(stated.module),
                    phase: stated.phase?,
                    stated,
                    span,
                    seconds: 0.0,
                    floor: floor(&header.peaks, &stated),
                })
            })
            .collect();
        if list.is_empty() {
            return None;
        }
        list.sort_by_key(|call| (call.step, call.span.start, host.id[call.at]));
        for step in list.chunk_by_mut(|left, right| left.step == right.step) {
            let spans: Vec<Span> = step.iter().map(|call| call.span).collect();
            let floors: Vec<f64> = step.iter().map(|call| call.floor).collect();
            for (call, seconds) in step.iter_mut().zip(shares(&spans, &floors)) {
                call.seconds = seconds;
            }
        }
        Some(Calls { list, header, steps: view.steps.count() })
    }

    /// Converts a sum over all steps to one per step.
    pub fn per_step(&self, sum: u64) -> u64 {
        (sum as f64 / self.steps).round() as u64
    }

    /// The first of the calls with the most live bytes.
    pub fn fullest(&self) -> Option<&Call<'t>> {
        self.list.iter().rev().max_by_key(|call| call.live_bytes())
    }

    /// FLOPs per step of the calls for which `belongs` holds.
    pub fn flops(&self, belongs: impl Fn(&Call) -> bool) -> u64 {
        self.per_step(self.list.iter().filter(|call| belongs(call)).map(|call| call.stated.flops).sum())
    }

    /// The bound of a kind of call: call overhead if the roofs allow less time than that, otherwise its roof.
    pub fn bound(&self, intensity: f64, floor_seconds: f64) -> Bound {
        let peaks = &self.header.peaks;
        if floor_seconds < peaks.call_seconds {
            Bound::OverheadBound
        } else if intensity < peaks.product_flops / peaks.memory_bandwidth_bytes {
            Bound::MemoryBound
        } else {
            Bound::ComputeBound
        }
    }

    /// FLOP/s of the GEMMs at the fastest kind of place. Uses whole spans: a GEMM that runs beside another call does
    /// not have the whole device, and its share of the time would make it look faster than it was.
    pub fn fastest_products(&self) -> f64 {
        let mut places: HashMap<(Phase, String, &str), (f64, f64)> = HashMap::new();
        for call in &self.list {
            let intensity = call.stated.flops as f64 / call.stated.bytes.max(1) as f64;
            if self.bound(intensity, call.floor) == Bound::ComputeBound {
                let sum = places.entry((call.phase, place_of(call.module), call.name)).or_default();
                *sum = (sum.0 + call.stated.flops as f64, sum.1 + call.span.nanos() as f64 / 1e9);
            }
        }
        places.into_values().map(|(flops, time)| flops / time.max(f64::MIN_POSITIVE)).fold(0.0, f64::max)
    }
}

fn floor(peaks: &PeaksHeader, stated: &Stated) -> f64 {
    let at = |amount: u64, rate: f64| if rate > 0.0 { amount as f64 / rate } else { 0.0 };
    at(stated.flops, peaks.product_flops).max(at(stated.bytes, peaks.memory_bandwidth_bytes))
}

/// By operator id: the span from the first of its kernels, copies and fills to the last.
fn spans_on_device(view: &View) -> HashMap<u32, Span> {
    let device = &view.trace.device;
    let mut spans: HashMap<u32, Span> = HashMap::new();
    for at in device.busy().filter(|&at| device.external[at] != NONE) {
        let span = view.device_span(at);
        let known = spans.entry(device.external[at]).or_insert(span);
        *known = Span { start: known.start.min(span.start), end: known.end.max(span.end) };
    }
    spans
}

/// The modules that a call covers, each with its share: three for `layers.0.self_attn.q_proj+k_proj+v_proj`.
pub fn parts_of<'t>(module: &'t str, shares: &str) -> Vec<(Vec<&'t str>, f64)> {
    let path: Vec<&str> = module.split('.').filter(|part| !part.is_empty()).collect();
    let Some((leaf, parents)) = path.split_last().filter(|(leaf, _)| leaf.contains('+')) else {
        return vec![(path, 1.0)];
    };
    let leaves: Vec<&str> = leaf.split('+').collect();
    let stated: Vec<f64> = serde_json::from_str(shares).unwrap_or_default();
    let alike = 1.0 / leaves.len() as f64;
    let share = |index: usize| if stated.len() == leaves.len() { stated[index] } else { alike };
    leaves.iter().enumerate().map(|(index, leaf)| ([parents, &[*leaf]].concat(), share(index))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fused_call_is_shared_out_to_its_modules() {
        assert_eq!(
            parts_of("layers.0.mlp.gate+up", "[0.75, 0.25]"),
            [(vec!["layers", "0", "mlp", "gate"], 0.75), (vec!["layers", "0", "mlp", "up"], 0.25)]
        );
        assert_eq!(parts_of("lm_head", ""), [(vec!["lm_head"], 1.0)]);
        assert_eq!(parts_of("a+b", "nonsense")[1], (vec!["b"], 0.5));
    }
}
