//! Measures: functions from a trace to figures.

mod anomaly;
mod attention_by_kernels;
pub mod breakdown;
mod by_hand;
pub mod calls;
mod checks;
pub mod cold;
pub mod collectives;
pub mod communication;
pub mod compiled;
pub mod constants;
mod converted;
pub mod copies;
pub mod counters;
pub mod critical_path;
pub mod data_loading;
mod differentiated_again;
pub mod explained;
pub mod flops;
mod graph_breaks;
pub mod held_between;
pub mod intervals;
mod kernel_index;
pub mod kernels;
pub mod kinds;
pub mod launches;
mod masked_attention;
pub mod memory;
pub mod memory_bound;
mod metrics;
pub mod model_parts;
pub mod norms;
mod numbered;
pub mod on_host;
pub mod operators;
pub mod overhead;
pub mod parameters;
pub mod patterns;
pub mod per_step;
pub mod places;
pub mod profiler_cost;
pub mod python;
pub mod queue;
pub mod ranks;
pub mod rates;
pub mod read_loops;
pub mod recomputed;
pub mod recorded;
mod repeated_backward;
mod repeated_forward;
pub mod repeats;
mod roles;
pub mod roofline;
mod rounds;
pub mod sequences;
pub mod shapes;
mod shares;
pub mod sites;
pub mod steps;
pub mod stops;
pub mod synchronisation;
pub mod tables;
pub mod trust;
mod unaligned;
mod unread_gradients;
pub mod view;

use headroom_trace::Trace;
use serde::Serialize;

use calls::Calls;
use trust::{Trust, Unprofiled};
use view::View;

/// All figures of one trace.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Measures {
    pub breakdown: breakdown::Breakdown,
    pub operators: operators::Operators,
    pub kernels: kernels::Kernels,
    /// Device time by kind of work.
    pub kinds: Vec<kinds::KindRow>,
    pub launches: launches::Launches,
    pub synchronisation: synchronisation::Synchronisation,
    pub copies: copies::Copies,
    pub memory: memory::Memory,
    pub roofline: roofline::Roofline,
    pub data_loading: data_loading::DataLoading,
    pub critical_path: critical_path::CriticalPath,
    pub communication: communication::Communication,
    pub rebuilt_constants: Vec<constants::Rebuilt>,
    pub patterns: patterns::Patterns,
    pub per_step: Vec<per_step::PerStep>,
    /// Gaps between the device's spans.
    #[serde(skip)]
    pub stops: Vec<stops::Stop>,
    #[serde(skip)]
    pub on_host: on_host::WorkOnHost,
    #[serde(skip)]
    pub read_loops: read_loops::ReadLoops,
    #[serde(skip)]
    pub converted: converted::Converted,
    /// Only if [`crate::Options::sites`] asks for them.
    #[serde(skip)]
    pub sites: Vec<sites::Site>,
    pub sequences: Vec<sequences::SequenceRow>,
    pub queue: queue::Queue,
    #[serde(skip)]
    pub compiled: compiled::Compiled,
    /// Attention, feed-forward and the rest, if the trace names modules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_parts: Option<model_parts::ModelParts>,
    /// Other values sampled over time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<counters::CounterRow>,
}

/// Computes all measures; `calls` are those of the plan, if the trace is from a headroom run.
pub fn measure(view: &View, calls: Option<&Calls>, unprofiled: Unprofiled) -> (Trust, Measures) {
    let costs = flops::costs(view);
    let stops = stops::stops(view);
    // Runs the two largest halves in parallel; each is a chain of passes over the same columns.
    let (left, right) = rayon::join(
        || {
            (
                breakdown::breakdown(view, &stops),
                operators::operators(view, &costs),
                kernels::kernels(view),
                kinds::kinds(view),
                launches::launches(view),
                critical_path::critical_path(view),
                communication::communication(view),
            )
        },
        || {
            (
                synchronisation::synchronisation(view, &stops),
                copies::copies(view),
                memory::memory(view, calls),
                roofline::roofline(view, &costs, calls),
                data_loading::data_loading(view),
                constants::rebuilt_constants(view),
                patterns::patterns(view, &costs),
                trust::trust(view, unprofiled),
            )
        },
    );
    let (breakdown, operators, kernels, kinds, launches, critical_path, communication) = left;
    let (synchronisation, copies, memory, roofline, data_loading, rebuilt_constants, patterns, trust) = right;
    let measures = Measures {
        breakdown,
        operators,
        kernels,
        kinds,
        launches,
        synchronisation,
        copies,
        memory,
        roofline,
        data_loading,
        critical_path,
        communication,
        rebuilt_constants,
        patterns,
        per_step: per_step::per_step(view),
        on_host: on_host::work_on_host(view, &stops),
        read_loops: read_loops::read_loops(view),
        converted: converted::converted(view),
        stops,
        sites: Vec::new(),
        sequences: sequences::sequences(view),
        queue: queue::queue(view),
        compiled: compiled::compiled(view),
        model_parts: model_parts::model_parts(view),
        counters: counters::counters(view),
    };
    (trust, measures)
}

/// The name of the device.
pub fn device_name(trace: &Trace) -> Option<&str> {
    let listed = trace.header.devices.first().map(|device| device.name.as_str());
    // A headroom run on the CPU names its processor.
    let own = || trace.header.headroom.as_ref().map(|run| run.device.as_str());
    listed.or_else(own).filter(|name| !name.is_empty())
}
