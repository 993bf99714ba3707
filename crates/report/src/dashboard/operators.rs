//! The table of operators and kernels by module, per step.

use crate::targets;
use headroom_diagnosis::Analysis;
use headroom_diagnosis::measures::places::places;
use headroom_diagnosis::measures::view::View;
use headroom_record::intensity::Bound;
use headroom_record::operators::OperatorRecord;
use headroom_trace::Trace;
use serde::Serialize;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Operators {
    /// The total that `share` refers to.
    pub share_of: &'static str,
    pub rows: Vec<Row>,
    pub kernels: Vec<Kernel>,
}

/// Figures of a mean step.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    pub name: String,
    pub module: String,
    pub phase: String,
    pub calls: f64,
    /// Self time where the work runs: on the device, otherwise on the host.
    pub seconds: f64,
    pub host_seconds: f64,
    pub share: f64,
    pub flops: Option<f64>,
    pub bytes: Option<f64>,
    pub intensity: Option<f64>,
    pub bound: Option<&'static str>,
    pub percent_of_roof: Option<f64>,
    /// The time it could be reduced to, and the pass that does it, in words.
    pub target: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Kernel {
    pub name: String,
    /// Shortened for reading.
    pub shown: String,
    pub operator: String,
    pub module: String,
    pub calls: f64,
    pub seconds: f64,
    pub share: f64,
    pub occupancy_percent: Option<f64>,
}

pub fn of_run(record: &OperatorRecord) -> Operators {
    let row = |place: &headroom_record::operators::PlaceStats| Row {
        name: place.name.clone(),
        module: place.module.clone(),
        phase: place.phase.clone(),
        calls: place.count as f64,
        seconds: place.time,
        // Files of earlier versions lack it.
        host_seconds: if place.host_time > 0.0 { place.host_time } else { place.time },
        share: place.percent_of_step / 100.0,
        flops: Some(place.flops as f64),
        bytes: Some(place.bytes as f64),
        intensity: Some(place.intensity),
        bound: Some(place.bound.word()),
        percent_of_roof: Some(place.percent_of_roof),
        target: Some(targets::of_place(place)),
    };
    Operators { share_of: "the step", rows: record.by_place.iter().map(row).collect(), kernels: vec![] }
}

pub fn of_trace(trace: &Trace, analysis: &Analysis) -> Operators {
    let steps = analysis.steps.count();
    let measures = &analysis.measures;
    let on_device = measures.operators.device_self_seconds > 0.0;
    let whole = match on_device {
        true => measures.operators.device_self_seconds,
        false => measures.operators.host_self_seconds.max(f64::MIN_POSITIVE),
    };
    let rows = places(&View::new(trace)).into_iter().map(|place| {
        let seconds = if on_device { place.device_self_seconds } else { place.host_self_seconds };
        let roof = measures.roofline.rows.iter().find(|row| row.name == place.name);
        Row {
            name: place.name,
            module: place.module,
            calls: place.calls as f64 / steps,
            seconds: seconds / steps,
            host_seconds: place.host_self_seconds / steps,
            share: seconds / whole,
            intensity: roof.map(|row| row.intensity),
            bound: roof.and_then(|row| row.bound).map(Bound::word),
            target: roof.map(|row| targets::of_operator(analysis, &row.name)),
            percent_of_roof: roof.filter(|row| row.roof_seconds > 0.0).map(|row| row.percent_of_roof),
            ..Row::default()
        }
    });
    let kernels = measures.kernels.rows.iter().map(|kernel| Kernel {
        name: kernel.name.clone(),
        shown: crate::names::kernel(&kernel.name, 120),
        operator: kernel.operator.clone().unwrap_or_default(),
        module: kernel.module.clone().unwrap_or_default(),
        calls: kernel.calls as f64 / steps,
        seconds: kernel.seconds / steps,
        share: kernel.share,
        occupancy_percent: kernel.occupancy_percent,
    });
    let share_of = if on_device { "device time" } else { "operator time" };
    Operators { share_of, rows: rows.collect(), kernels: kernels.collect() }
}
