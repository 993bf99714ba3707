//! The texts of a study, on a made-up record.

use super::*;
use headroom_record::race::RaceRecord;
use headroom_record::study::{Components, MeasuredFigures, SizeAnalysis, StudyMachine, StudyRequest, VersionAnalysis};

fn row(size: &str, parameters: u64, speed: f64) -> StudyRow {
    let finished = speed > 0.0;
    StudyRow {
        size: size.into(),
        version: "v1".into(),
        status: if finished { StudyStatus::Finished } else { StudyStatus::DoesNotFit },
        folder: None,
        process_id: None,
        starts: 1,
        wall_seconds: Some(8.0),
        note: (!finished).then(|| "size large needs 43.8 GiB on the CPU\n  help: <none>".into()),
        planned: PlannedFigures {
            parameters,
            planned_memory_mb: 100.0,
            memory_by_component: Components { attention: 50.0, parameters: 50.0, ..Components::default() },
            predicted_step_seconds: 2.5,
            ..PlannedFigures::default()
        },
        measured: MeasuredFigures {
            samples_per_sec: finished.then_some(speed),
            tokens_per_sec: finished.then_some(128.0 * speed),
            step_seconds: finished.then_some(8.0 / speed),
            mfu_percent: finished.then_some(50.0),
            ..MeasuredFigures::default()
        },
    }
}

fn record() -> StudyRecord {
    let mut record = StudyRecord::new(
        "2026-11-15T00:00:00Z".into(),
        StudyRequest {
            sizes: vec!["tiny".into(), "small".into(), "large".into()],
            versions: vec!["v1".into()],
            enable_profilers: false,
            num_steps: None,
            device: "cpu".into(),
            precision: None,
            threads: 2,
            memory_limit: None,
            batch_size: None,
            seq_len: None,
        },
        StudyMachine {
            name: "a <machine>".into(),
            memory_total_mb: 1.0,
            peak_flops: 3e11,
            peak_bandwidth: 2e10,
            peak_source: "kept".into(),
            peak_measured: true,
        },
        vec![row("tiny", 1_000, 80.0), row("small", 10_000, 8.0), row("large", 100_000, 0.0)],
    );
    let analysis = VersionAnalysis {
        version: "v1".into(),
        throughput_exponent: Some(-1.0),
        token_exponent: Some(-1.0),
        saturates_at: Some("tiny".into()),
        best_mfu_percent: Some(50.0),
        memory_exponent: Some(0.9),
        sizes: vec![SizeAnalysis {
            size: "tiny".into(),
            memory_over_parameters: 9.5,
            attention_share_percent: 12.0,
            attention_takes_over_at: Some(845),
            best_batch: Some(4),
            largest_batch_that_fits: Some(600),
        }],
        ..VersionAnalysis::default()
    };
    record.conclude(vec![analysis], |_, _| None);
    record
}

#[test]
fn every_form_answers_the_workshops_questions_and_names_what_did_not_fit() {
    let record = record();
    for text in [terminal(&record), markdown(&record), html(&record)] {
        for words in [
            "yes, proportionally: from tiny to small, parameters grow 10.0×, samples/s fall 10.0×",
            "from tiny on (nine tenths of the best MFU, 50.0%)",
            "tiny: 12% of its memory, half from seq 845 on",
            "tiny 9.5×",
            "tiny 4 (up to 600 fit)",
            "size large needs 43.8 GiB on the CPU",
            "a step would take at least 2.50 s",
        ] {
            assert!(text.contains(words), "`{words}` is not in\n{text}");
        }
    }
}

#[test]
fn a_ratio_of_versions_says_when_it_is_noise() {
    let mut record = record();
    record.request.versions.push("v2".into());
    let mut new = record.runs[0].clone();
    new.version = "v2".into();
    for (row, middle) in [(&mut record.runs[0], 0.10), (&mut new, 0.15)] {
        let measured = &mut row.measured;
        (measured.step_seconds, measured.step_seconds_low) = (Some(middle), Some(0.08));
        measured.step_seconds_high = Some(0.2);
    }
    record.runs.push(new);
    record.conclude(record.analysis.clone(), |_, _| None);
    for text in [terminal(&record), markdown(&record), html(&record)] {
        assert!(
            text.contains("v2 takes 1.50× the time per step of v1, which is within the noise (95% between "),
            "{text}"
        );
        assert!(text.contains("80.00 ms to 200.00 ms"), "{text}");
    }
}

#[test]
fn the_page_needs_nothing_from_elsewhere_and_shows_names_as_text() {
    let page = html(&record());
    assert!(page.contains("a &lt;machine&gt;") && !page.contains("a <machine>"));
    assert!(page.contains("help: &lt;none&gt;"));
    for elsewhere in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
    assert_eq!(page.matches("<svg").count(), 3);
}

#[test]
fn verdicts_are_said_with_intervals_and_disturbed_rounds_are_counted() {
    let mut record = record();
    let analysis = &mut record.analysis[0];
    (analysis.throughput_exponent_low, analysis.throughput_exponent_high) = (Some(-1.02), Some(-0.97));
    (analysis.saturates_at_low, analysis.saturates_at_high) = (Some("tiny".into()), Some("small".into()));
    (record.runs[0].measured.mfu_percent_low, record.runs[0].measured.mfu_percent_high) = (Some(48.0), Some(52.0));
    record.race = vec![RaceRecord { rounds: 7, disturbed_rounds: 2, dropped_rounds: vec![1, 4], ..Default::default() }];
    for text in [terminal(&record), markdown(&record), html(&record)] {
        for words in [
            "yes, proportionally: from tiny to small",
            "(as parameters^-1.00 [95% between -1.02 and -0.97]",
            "not before tiny and from small on at the latest",
            "tiny 50.0% [48.0 to 52.0], small 50.0%",
            "Turns taken again: 0. Rounds that do not count: 2 of 7",
        ] {
            assert!(text.contains(words), "`{words}` is not in\n{text}");
        }
        assert!(!text.contains("runs followed one another"), "{text}");
    }
    record.analysis[0].throughput_exponent_high = Some(-0.8);
    let text = terminal(&record);
    assert!(
        text.contains("not decided between \"yes, less than proportionally\" and \"yes, proportionally\""),
        "{text}"
    );
}

#[test]
fn next_steps_are_commands_and_the_first_line_names_the_baseline() {
    let mut record = record();
    let last = |record: &StudyRecord| terminal(record).split("Next steps:\n").nth(1).unwrap_or_default().to_string();
    assert!(last(&record).contains("headroom optimize --size small."), "{}", last(&record));
    assert!(last(&record).contains("headroom study small --passes v1 --enable-profilers."), "{}", last(&record));
    assert!(!last(&record).contains("course's baseline"));
    assert!(markdown(&record).contains("- Measure which optimisations pay: `headroom optimize --size small`."));
    assert_eq!(
        first_line(&record.request),
        "tiny, small, large: Version 1 (v1, the naive graph and the course's baseline)"
    );
    record.request.versions = vec!["v2".into()];
    assert!(last(&record).contains("headroom study tiny small large --passes v1,v2."), "{}", last(&record));
    record.request.sizes = vec!["tiny".into()];
    let line = first_line(&record.request);
    assert_eq!(line, "tiny: Version 2 (v2); --passes v1 runs Version 1, the course's baseline");
    assert!(last(&record).contains("headroom study tiny small --passes v2."), "{}", last(&record));
    record.runs.iter_mut().for_each(|row| row.status = StudyStatus::Failed);
    assert!(!terminal(&record).contains("Next steps"));
}
