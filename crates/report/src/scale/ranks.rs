//! Scaling over ranks as text.

use crate::numbers::{grouped, seconds};
use crate::page::{self, Page};
use crate::plots::{Series, lines};
use crate::table::{Table, columns, markdown_list, markdown_table};
use headroom_record::race::disturbance_of;
use headroom_record::rank_scaling::{Figure, RankPoint, RankScalingRecord};

pub fn terminal(record: &RankScalingRecord) -> String {
    let mut out = format!("{}\n{}\n", title(record), subtitle(record));
    let mut section = |title: &str, text: String| out += &format!("\n{title}\n{text}");
    section(&weak_title(record), columns(&weak(&record.points)));
    section(&strong_title(record), columns(&strong(&record.points)));
    section("Limits", said(record).iter().map(|line| format!("  {line}\n")).collect());
    out
}

pub fn markdown(record: &RankScalingRecord) -> String {
    let mut out = format!("# {}\n\n{}\n", title(record), subtitle(record));
    let mut section = |title: &str, text: String| out += &format!("\n## {title}\n\n{text}");
    section(&weak_title(record), markdown_table(&weak(&record.points)));
    section(&strong_title(record), markdown_table(&strong(&record.points)));
    section("Limits", markdown_list(&said(record)));
    out + &format!("\n{NOTE}\n")
}

pub fn html(record: &RankScalingRecord) -> String {
    let mut page = Page::new(&title(record), &subtitle(record));
    page.section("Limits", &page::list(&said(record)));
    let line = |name: &str, of: fn(&RankPoint) -> Option<f64>| Series {
        name: name.into(),
        points: record
            .points
            .iter()
            .filter_map(|point| {
                let time = of(point)?;
                Some((point.ranks as f64, 1e3 * time, format!("{name}\n{} ranks: {}", point.ranks, seconds(time))))
            })
            .collect(),
    };
    let series = [
        line("weak: each rank keeps its batch", |point| Some(point.weak_seconds?.value)),
        line("predicted from one and two ranks", |point| point.predicted_seconds),
        line("strong: the ranks divide the batch", |point| Some(point.strong_seconds?.value)),
    ];
    let series: Vec<Series> = series.into_iter().filter(|series| series.points.len() > 1).collect();
    let plot = lines("Time per step over ranks", "ranks", "ms per step", &series);
    page.section(&weak_title(record), &(page::table(&weak(&record.points), "dense") + &plot));
    page.section(&strong_title(record), &page::table(&strong(&record.points), "dense"));
    page.section("How it was measured", &page::note(NOTE));
    page.finish()
}

const NOTE: &str = "Runs alternate; each figure is the mean over rounds of the median step, with its 95% interval. \
    Runs with several micro-batches per exchange separate compute from communication. Predictions use only the steps \
    of one and two ranks: exchanges grow as in a ring all-reduce, and the slowdown of compute and of data movement on \
    a shared machine follows from its peaks on as many threads (on GPUs: the cost of sharing, once per doubling).";

fn title(record: &RankScalingRecord) -> String {
    format!("{} under {} on several ranks", record.size, record.version)
}

fn subtitle(record: &RankScalingRecord) -> String {
    format!(
        "{} parameters · {} · {} threads per rank · {} · {} rounds of {} steps · {}",
        grouped(record.parameters),
        record.machine,
        record.threads,
        record.launcher,
        record.rounds,
        record.steps,
        record.timestamp
    )
}

fn weak_title(record: &RankScalingRecord) -> String {
    format!("Weak scaling: {} sequences of {} tokens on each rank", record.batch_size, record.seq_len)
}

fn strong_title(record: &RankScalingRecord) -> String {
    format!("Strong scaling: {} sequences divided among the ranks", record.batch_size)
}

fn weak(points: &[RankPoint]) -> Table {
    Table {
        head: vec![
            "ranks",
            "step",
            "efficiency",
            "predicted",
            "error",
            "shared machine",
            "exposed communication",
            "without overlap",
        ],
        rows: points
            .iter()
            .map(|point| {
                vec![
                    point.ranks.to_string(),
                    time(point.weak_seconds),
                    with(point.efficiency_percent, |percent| format!("{percent:.0}%")),
                    point.predicted_seconds.map(seconds).unwrap_or_default(),
                    point.predicted_off_percent.map(|off| format!("{off:+.0}%")).unwrap_or_default(),
                    time(point.shared_seconds),
                    time(point.exposed_seconds),
                    time(point.exposed_without_overlap_seconds),
                ]
            })
            .collect(),
    }
}

fn strong(points: &[RankPoint]) -> Table {
    Table {
        head: vec!["ranks", "batch per rank", "step", "speed-up", "one rank alone with that batch"],
        rows: points
            .iter()
            .filter(|point| point.strong_seconds.is_some())
            .map(|point| {
                vec![
                    point.ranks.to_string(),
                    point.strong_batch_size.map(|size| size.to_string()).unwrap_or_default(),
                    time(point.strong_seconds),
                    with(point.speedup, |times| format!("{times:.2}×")),
                    time(point.divided_alone_seconds),
                ]
            })
            .collect(),
    }
}

fn said(record: &RankScalingRecord) -> Vec<String> {
    let of = |point: &RankPoint| {
        let words = [&point.limited_by, &point.note].into_iter().flatten();
        words.map(|words| format!("{} ranks: {words}", point.ranks)).collect::<Vec<_>>()
    };
    let mut said: Vec<String> = record.points.iter().flat_map(of).collect();
    if said.is_empty() {
        said.push("One rank alone was measured: there is nothing to compare it with.".into());
    }
    said.extend(disturbance_of(record.race.as_slice()));
    said
}

/// Milliseconds with half the interval's width.
fn time(figure: Option<Figure>) -> String {
    let Some(Figure { value, low, high }) = figure else { return String::new() };
    match low.zip(high) {
        Some((low, high)) => format!("{:.1} ± {:.1} ms", 1e3 * value, 1e3 * (high - low) / 2.0),
        None => format!("{:.1} ms", 1e3 * value),
    }
}

fn with(figure: Option<Figure>, words: impl Fn(f64) -> String) -> String {
    let Some(Figure { value, low, high }) = figure else { return String::new() };
    match low.zip(high) {
        Some((low, high)) => format!("{} ({} to {})", words(value), words(low), words(high)),
        None => words(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_record::provenance::Provenance;

    fn record() -> RankScalingRecord {
        let figure = |value: f64| Some(Figure { value, low: Some(0.9 * value), high: Some(1.1 * value) });
        let one =
            RankPoint { ranks: 1, weak_seconds: figure(0.1), strong_seconds: figure(0.1), ..RankPoint::default() };
        let four = RankPoint {
            ranks: 4,
            weak_seconds: figure(0.125),
            efficiency_percent: figure(80.0),
            predicted_seconds: Some(0.12),
            predicted_off_percent: Some(-4.0),
            exposed_seconds: figure(0.02),
            limited_by: Some("communication: the step waits 20.0 ms for it".into()),
            ..RankPoint::default()
        };
        RankScalingRecord {
            schema_version: headroom_record::SCHEMA_VERSION,
            timestamp: "2026-11-17T00:00:00Z".into(),
            size: "tiny".into(),
            version: "v2".into(),
            parameters: 5_700_000,
            device: "cpu".into(),
            machine: "a machine".into(),
            threads: 2,
            launcher: "mpirun -n {ranks}".into(),
            rounds: 3,
            steps: 8,
            batch_size: 8,
            seq_len: 128,
            points: vec![one, four],
            race: None,
            provenance: Provenance::default(),
        }
    }

    #[test]
    fn every_form_has_the_step_its_prediction_and_its_limit() {
        for text in [terminal(&record()), markdown(&record()), html(&record())] {
            for words in
                ["125.0 ± 12.5 ms", "80% (72% to 88%)", "-4%", "4 ranks: communication: the step waits 20.0 ms"]
            {
                assert!(text.contains(words), "{words} is missing:\n{text}");
            }
        }
    }

    #[test]
    fn a_row_without_strong_scaling_is_left_out_of_its_table() {
        assert_eq!(strong(&record().points).rows.len(), 1);
    }
}
