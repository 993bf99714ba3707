//! The texts of a sweep, on a made-up record.

use super::*;
use headroom_record::SCHEMA_VERSION;
use headroom_record::provenance::Provenance;
use headroom_record::scaling::{ComponentGrowth, Limits, Optimization};
use headroom_record::study::Components;

fn point(seq_len: u64, peak: f64) -> ScalingPoint {
    ScalingPoint {
        batch_size: 8,
        seq_len,
        peak_memory_mb: peak,
        avg_memory_mb: peak / 2.0,
        peak_to_average: 2.0,
        memory_per_token_kb: 1.0,
        scaling_factor: peak / 10.0,
        memory_by_component: Components { attention: peak / 8.0, activations: peak / 2.0, ..Components::default() },
        largest_by_component: Components { attention: peak / 2.0, activations: peak / 2.0, ..Components::default() },
        predicted_step_seconds: 0.01,
        step_seconds: Some(0.02),
        step_seconds_low: Some(0.019),
        step_seconds_high: Some(0.021),
        samples_per_sec: Some(400.0),
        tokens_per_sec: None,
        process_peak_memory_mb: Some(peak + 5.0),
        note: None,
    }
}

fn record() -> ScalingRecord {
    let growth = |exponent: f64, class: &str| Growth {
        exponent: Some(exponent),
        class: class.into(),
        peak_exponent: Some(1.2),
        speed_exponent: Some(-1.1),
        speed_exponent_low: Some(-1.2),
        speed_exponent_high: Some(-1.0),
        components: vec![ComponentGrowth {
            component: "attention".into(),
            exponent: Some(2.0),
            class: "quadratic".into(),
            first_mb: 5.0,
            last_mb: 20.0,
        }],
    };
    let optimization = |name: &str, flags: Option<&str>, note: Option<&str>| Optimization {
        name: name.into(),
        flags: flags.map(String::from),
        predicted_memory_mb: 22.0,
        saved_mb: 18.0,
        saved_percent: 45.0,
        measured_before_mb: Some(45.0),
        measured_after_mb: flags.map(|_| 27.0),
        measured_saved_mb: None,
        step_ratio: flags.map(|_| 0.8),
        step_ratio_low: flags.map(|_| 0.7),
        step_ratio_high: flags.map(|_| 1.1),
        note: note.map(String::from),
    };
    ScalingRecord {
        schema_version: SCHEMA_VERSION,
        timestamp: "2026-11-15T00:00:00Z".into(),
        size: "tiny".into(),
        version: "v1_baseline".into(),
        parameters: 2_873_600,
        device: "cpu".into(),
        machine: "a <machine>".into(),
        threads: 2,
        batch_points: vec![point(64, 10.0)],
        sequence_points: vec![point(64, 10.0), point(128, 40.0)],
        batch_scaling: growth(1.0, "linear"),
        sequence_scaling: growth(1.6, "between"),
        limits: Limits {
            available_mb: 2048.0,
            largest_batch: Some(77),
            at_seq_len: 64,
            longest_sequence: Some(1 << 17),
            at_batch_size: 8,
            batch_searched_to: 1 << 14,
            sequence_searched_to: 1 << 17,
        },
        optimizations: vec![
            optimization("flash attention", Some("--passes v1,+flash-attention"), None),
            optimization("bf16", None, Some("planned for a GPU")),
        ],
        race: vec![],
        provenance: Provenance::default(),
    }
    .with_provenance()
}

/// The figure is attention's own maximum, to which growth is fitted, not its part of the overall peak.
#[test]
fn both_tables_have_one_figure_for_attentions_memory() {
    let record = record();
    let points = tables::points(&record.sequence_points);
    let growth = tables::growth(&record);
    let column = points.head.iter().position(|name| name.starts_with("attention")).unwrap();
    let row = growth.rows.iter().find(|row| row[0] == "sequence" && row[1] == "attention").unwrap();
    let [first, last] = [&points.rows[0], &points.rows[1]].map(|row| &row[column]);
    assert_eq!((first, last), (&row[2], &row[3]));
}

#[test]
fn every_form_says_how_memory_grows_what_fits_and_what_saves() {
    let record = record();
    for text in [terminal(&record), markdown(&record), html(&record)] {
        for words in [
            "memory over sequence length: between (the part that is not fixed grows as sequence length^1.60; the total 4.00×",
            "attention grows steepest, as sequence length^2.00; samples/s as sequence length^-1.10 [95% between -1.20 and -1.00]",
            "2.0 GiB holds 77 sequences of 64 tokens",
            "at batch 8, sequences of at least 131072 tokens fit",
            "--passes v1,+flash-attention",
            "Memory savings at batch 8 × seq 128",
            "45 → 27",
            "0.80×, within the noise (0.70 to 1.10)",
            "planned for a GPU",
        ] {
            assert!(text.contains(words), "`{words}` is not in\n{text}");
        }
    }
}

#[test]
fn the_page_needs_nothing_from_elsewhere_and_shows_names_as_text() {
    let page = html(&record());
    assert!(page.contains("a &lt;machine&gt;") && !page.contains("a <machine>"));
    for elsewhere in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
}
