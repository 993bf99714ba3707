//! Counters that the profiler sampled during the steps: utilisation, memory, traffic, or anything else with a name.

use std::collections::BTreeMap;

use serde::Serialize;

use super::view::View;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CounterRow {
    pub name: String,
    pub samples: usize,
    /// Smallest, mean and largest of the samples inside the steps.
    pub least: f64,
    pub mean: f64,
    pub most: f64,
    /// Seconds from the first step's start and the mean value of each interval that has samples.
    pub curve: Vec<[f64; 2]>,
}

const POINTS: i64 = 240;

/// Series with at least two samples inside the steps, those with the most samples first.
pub fn counters(view: &View) -> Vec<CounterRow> {
    let range = view.steps.range();
    let mut series: BTreeMap<&str, Vec<(i64, f64)>> = BTreeMap::new();
    for sample in &view.trace.counters {
        if (range.start..range.end).contains(&sample.time) {
            series.entry(view.name(sample.series)).or_default().push((sample.time - range.start, sample.value));
        }
    }
    let enough = series.into_iter().filter(|(_, samples)| samples.len() >= 2);
    let mut rows: Vec<CounterRow> = enough.map(|(name, samples)| row(name, &samples, range.nanos())).collect();
    rows.sort_by(|left, right| right.samples.cmp(&left.samples).then(left.name.cmp(&right.name)));
    rows
}

fn row(name: &str, samples: &[(i64, f64)], nanos: i64) -> CounterRow {
    let values = || samples.iter().map(|(_, value)| *value);
    let mut curve: Vec<[f64; 2]> = Vec::new();
    let stretch = |time: i64| time * POINTS / nanos.max(1);
    for alike in samples.chunk_by(|one, two| stretch(one.0) == stretch(two.0)) {
        let mean = alike.iter().map(|(_, value)| value).sum::<f64>() / alike.len() as f64;
        curve.push([alike[0].0 as f64 / 1e9, mean]);
    }
    CounterRow {
        name: name.to_string(),
        samples: samples.len(),
        least: values().fold(f64::INFINITY, f64::min),
        mean: values().sum::<f64>() / samples.len() as f64,
        most: values().fold(f64::NEG_INFINITY, f64::max),
        curve,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_trace::read_bytes;

    #[test]
    fn samples_inside_the_steps_make_a_curve_for_each_series() {
        let mut text = String::from(
            r#"[{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":1000,"dur":1000},
                {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1000,"dur":1000}"#,
        );
        for (time, busy) in [(500, 99), (1_000, 20), (1_001, 40), (1_500, 90), (2_500, 7)] {
            text += &format!(r#",{{"ph":"C","name":"GPU 0","pid":0,"ts":{time},"args":{{"busy %":{busy}}}}}"#);
        }
        text += r#",{"ph":"C","name":"once","pid":0,"ts":1200,"args":{"value":1}}]"#;
        let trace = read_bytes(text.as_bytes()).expect("is a trace");
        assert_eq!(trace.reading.damaged_events, 0);
        let rows = counters(&View::new(&trace));
        let wanted = CounterRow {
            name: "GPU 0: busy %".into(),
            samples: 3,
            least: 20.0,
            mean: 50.0,
            most: 90.0,
            curve: vec![[0.0, 30.0], [500e-6, 90.0]],
        };
        assert_eq!(rows, [wanted], "one sample is not a curve");
    }
}
