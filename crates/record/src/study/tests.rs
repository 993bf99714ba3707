//! Comparisons, speeds from a race, and the provenance of a study.

use super::*;
use crate::provenance::check_provenance;

fn timed(version: &str, (median, low, high): (f64, Option<f64>, Option<f64>)) -> StudyRow {
    StudyRow {
        size: "tiny".into(),
        version: version.into(),
        status: StudyStatus::Finished,
        folder: None,
        process_id: None,
        starts: 1,
        wall_seconds: None,
        note: None,
        planned: PlannedFigures::default(),
        measured: MeasuredFigures {
            step_seconds: Some(median),
            step_seconds_low: low,
            step_seconds_high: high,
            ..MeasuredFigures::default()
        },
    }
}

#[test]
fn components_add_up_and_three_of_them_are_fixed() {
    let components = Components {
        parameters: 1.0,
        gradients: 2.0,
        optimizer_state: 4.0,
        activations: 8.0,
        attention: 16.0,
        temporaries: 32.0,
        overhead: 64.0,
    };
    assert_eq!((components.total(), components.fixed()), (127.0, 7.0));
    // The names are those in the file.
    let written = serde_json::to_value(components).unwrap();
    for (name, size) in components.entries() {
        assert_eq!(written[name], size, "{name}");
    }
}

#[test]
fn versions_are_compared_with_an_interval_that_says_when_it_is_noise() {
    let compare = |first, other| VersionComparison::of(&timed("v1", first), &timed("v2", other), None).unwrap();
    // Eight steps between 1 and 2 seconds: 1.51 times as long is noise.
    let noise = compare((1.0, Some(0.8), Some(1.9)), (1.51, Some(0.9), Some(2.0)));
    assert_eq!((noise.step_ratio, noise.verdict.as_str()), (1.51, "within the noise"));
    assert!(noise.ci95_low.unwrap() < 1.0 && noise.ci95_high.unwrap() > 1.51);
    let faster = compare((1.0, Some(0.99), Some(1.01)), (0.8, Some(0.79), Some(0.82)));
    assert_eq!(faster.verdict, "faster");
    assert!(faster.ci95_low.unwrap() > 0.78 && faster.ci95_high.unwrap() < 0.83);
    assert_eq!(compare((1.0, None, None), (2.0, Some(1.9), Some(2.1))).verdict, "no interval");
}

#[test]
fn a_race_gives_the_ratio_and_its_interval() {
    let (first, other) = (timed("v1", (1.0, Some(0.5), Some(2.0))), timed("v2", (0.9, Some(0.4), Some(2.1))));
    let paired = Interval { value: 0.88, low: 0.86, high: 0.9 };
    let found = VersionComparison::of(&first, &other, Some(paired)).unwrap();
    assert_eq!((found.step_ratio, found.verdict.as_str()), (0.88, "faster"));
    assert_eq!(VersionComparison::of(&first, &other, None).unwrap().verdict, "within the noise");
}

#[test]
fn speeds_from_a_race_are_lowest_where_the_step_is_slowest() {
    let mut measured = MeasuredFigures::default();
    measured.set_step(Interval { value: 0.5, low: 0.4, high: 0.8 }, 8.0, 100.0, 20.0);
    assert_eq!((measured.samples_per_sec_low, measured.samples_per_sec), (Some(10.0), Some(16.0)));
    assert_eq!((measured.samples_per_sec_high, measured.tokens_per_sec), (Some(20.0), Some(1600.0)));
    assert_eq!((measured.mfu_percent_low, measured.mfu_percent), (Some(25.0), Some(40.0)));
    measured.set_step(Interval { value: 0.5, low: 0.0, high: f64::INFINITY }, 8.0, 100.0, 20.0);
    assert_eq!((measured.samples_per_sec_low, measured.samples_per_sec_high), (None, None));
    assert_eq!(measured.step_seconds_high, None);
}

#[test]
fn every_figure_has_its_origin_before_and_after_the_analysis() {
    let row = StudyRow {
        size: "tiny".into(),
        version: "v1".into(),
        status: StudyStatus::Finished,
        folder: Some("performance_results_tiny".into()),
        process_id: Some(1),
        starts: 1,
        wall_seconds: Some(1.0),
        note: None,
        planned: PlannedFigures::default(),
        measured: MeasuredFigures { mfu_percent: Some(50.0), step_seconds: Some(1.0), ..MeasuredFigures::default() },
    };
    let mut record = StudyRecord::new(
        "2026-11-15T00:00:00Z".into(),
        StudyRequest {
            sizes: vec!["tiny".into()],
            versions: vec!["v1".into(), "v2".into()],
            enable_profilers: false,
            num_steps: Some(5),
            device: "cpu".into(),
            precision: None,
            threads: 2,
            memory_limit: None,
            batch_size: None,
            seq_len: None,
        },
        StudyMachine {
            name: "m".into(),
            memory_total_mb: 1.0,
            peak_flops: 1.0,
            peak_bandwidth: 1.0,
            peak_source: "s".into(),
            peak_measured: true,
        },
        vec![row, timed("v1", (1.0, Some(0.9), Some(1.1))), timed("v2", (1.5, Some(1.4), Some(1.6)))],
    );
    check_provenance(&serde_json::to_value(&record).unwrap()).unwrap();
    record.race = vec![RaceRecord { members: vec!["tiny v1".into()], rounds: 5, ..RaceRecord::default() }];
    let analysis = VersionAnalysis {
        version: "v1".into(),
        throughput_exponent: Some(-1.0),
        throughput_exponent_low: Some(-1.1),
        ..VersionAnalysis::default()
    };
    record.conclude(vec![analysis], |_, _| None);
    let value = serde_json::to_value(&record).unwrap();
    check_provenance(&value).unwrap();
    assert_eq!(record.comparisons.len(), 1);
    assert_eq!(record.provenance.origin_of("runs.mfu_percent"), Some(Origin::Computed));
    assert_eq!(record.provenance.origin_of("runs.step_seconds"), Some(Origin::Measured));
    assert_eq!(serde_json::from_value::<StudyRecord>(value).unwrap(), record);
}
