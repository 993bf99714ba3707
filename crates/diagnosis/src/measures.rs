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
pub mod explained;
pub mod flops;
mod graph_breaks;
pub mod held_between;
pub mod intervals;
mod kernel_index;
pub mod kernels;
pub mod kinds;
pub mod launches;
mod marks;
pub mod memory;
pub mod memory_bound;
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
    let (mut measures, mut found) = (Measures::default(), Trust::default());
    // Runs the two largest halves in parallel; each is a chain of passes over the same columns.
    rayon::join(
        || {
            measures.breakdown = breakdown::breakdown(view, &stops);
            measures.operators = operators::operators(view, &costs);
            measures.kernels = kernels::kernels(view);
            measures.kinds = kinds::kinds(view);
            measures.launches = launches::launches(view);
            measures.critical_path = critical_path::critical_path(view);
            measures.communication = communication::communication(view);
        },
        || {
            measures.synchronisation = synchronisation::synchronisation(view, &stops);
            measures.copies = copies::copies(view);
            measures.memory = memory::memory(view, calls);
            measures.roofline = roofline::roofline(view, &costs, calls);
            measures.data_loading = data_loading::data_loading(view);
            measures.rebuilt_constants = constants::rebuilt_constants(view);
            measures.patterns = patterns::patterns(view, &costs);
            found = trust::trust(view, unprofiled);
        },
    );
    measures.per_step = per_step::per_step(view);
    measures.on_host = on_host::work_on_host(view, &stops);
    measures.read_loops = read_loops::read_loops(view);
    measures.converted = converted::converted(view);
    measures.sequences = sequences::sequences(view);
    measures.queue = queue::queue(view);
    measures.compiled = compiled::compiled(view);
    measures.model_parts = model_parts::model_parts(view);
    measures.counters = counters::counters(view);
    measures.stops = stops;
    (found, measures)
}

/// The name of the device.
pub fn device_name(trace: &Trace) -> Option<&str> {
    let listed = trace.header.devices.first().map(|device| device.name.as_str());
    // A headroom run on the CPU names its processor.
    let own = || trace.header.headroom.as_ref().map(|run| run.device.as_str());
    listed.or_else(own).filter(|name| !name.is_empty())
}
