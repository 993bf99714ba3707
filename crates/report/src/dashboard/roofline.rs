//! The roofline: the device's roofs, and one point per operator.

use headroom_diagnosis::Analysis;
use headroom_record::intensity::Bound;
use headroom_record::operators::OperatorRecord;
use headroom_record::roofline::RooflineRecord;
use serde::Serialize;

#[derive(Clone, Debug, Default, Serialize)]
pub struct RooflineChart {
    pub device: String,
    pub peak_flops: Option<f64>,
    pub peak_bytes: Option<f64>,
    pub peak_source: String,
    /// The whole step as one point, if known.
    pub step: Option<Point>,
    pub points: Vec<Point>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Point {
    pub name: String,
    /// Search text that finds it in the table of operators.
    pub find: String,
    pub intensity: f64,
    pub flops_per_second: f64,
    pub seconds: f64,
    pub percent_of_roof: Option<f64>,
    /// `memory`, `compute` or `overhead`, according to the analysis.
    pub bound: Option<&'static str>,
}

/// `operators` says what bounds each point.
pub fn of_run(record: &RooflineRecord, peak_source: &str, operators: Option<&OperatorRecord>) -> RooflineChart {
    let places = operators.map_or(&[][..], |operators| &operators.by_place);
    let point = |point: &headroom_record::roofline::RooflinePoint| Point {
        name: point.name.clone(),
        find: point.name.clone(),
        intensity: point.arithmetic_intensity,
        flops_per_second: point.achieved_performance,
        seconds: point.time,
        percent_of_roof: Some(point.percent_of_roof),
        bound: places.iter().find(|place| place.label() == point.name).map(|place| place.bound.word()),
    };
    RooflineChart {
        device: record.device_info.name.clone(),
        peak_flops: Some(record.device_info.peak_flops),
        peak_bytes: Some(record.device_info.peak_memory_bandwidth),
        peak_source: peak_source.to_string(),
        step: Some(Point {
            name: "the whole step".into(),
            intensity: record.performance_point.arithmetic_intensity,
            flops_per_second: record.performance_point.achieved_performance,
            ..Point::default()
        }),
        points: record.points.iter().map(point).collect(),
    }
}

pub fn of_trace(analysis: &Analysis) -> RooflineChart {
    let roofline = &analysis.measures.roofline;
    let steps = analysis.steps.count();
    let timed = roofline.rows.iter().filter(|row| row.seconds > 0.0 && row.bytes > 0.0);
    let points = timed.map(|row| Point {
        name: row.name.clone(),
        find: row.name.clone(),
        intensity: row.intensity,
        flops_per_second: row.flops / row.seconds,
        seconds: row.seconds / steps,
        percent_of_roof: (row.roof_seconds > 0.0).then_some(row.percent_of_roof),
        bound: row.bound.map(Bound::word),
    });
    RooflineChart {
        device: analysis.trace.device.clone().unwrap_or_else(|| "no device".into()),
        peak_flops: roofline.peak_flops_per_second,
        peak_bytes: roofline.peak_bytes_per_second,
        peak_source: roofline.peak_source.clone().unwrap_or_else(|| "not known for this device".into()),
        step: None,
        points: points.collect(),
    }
}
