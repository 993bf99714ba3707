//! A sweep as text: progress lines, tables, Markdown and a page.

pub mod ranks;
mod tables;

use crate::numbers::{bytes, grouped, seconds};
use crate::page::{self, Page};
use crate::plots::{Bar, COMPONENTS, Full, Series, bars, lines};
use crate::table::{columns, markdown_list, markdown_table};
use headroom_record::race::disturbance_of;
use headroom_record::scaling::{Growth, ScalingPoint, ScalingRecord};

/// Printed before a point is run.
pub fn before_point(point: &ScalingPoint) -> String {
    format!(
        "batch {} × seq {}: {} planned, at least {} per step by the machine's roofs",
        point.batch_size,
        point.seq_len,
        mebibytes(point.peak_memory_mb),
        seconds(point.predicted_step_seconds)
    )
}

pub fn terminal(record: &ScalingRecord) -> String {
    let mut out = format!("{}\n{}\n", title(record), subtitle(record));
    let mut section = |title: &str, text: String| out += &format!("\n{title}\n{text}");
    section("Batches", columns(&tables::points(&record.batch_points)));
    section("Sequences", columns(&tables::points(&record.sequence_points)));
    section("Growth", columns(&tables::growth(record)));
    let said = answers(record).iter().map(|line| format!("  {}\n", line.replace('`', ""))).collect();
    section("Conclusions", said);
    section(&saving_title(record), columns(&tables::optimizations(record)));
    out
}

pub fn markdown(record: &ScalingRecord) -> String {
    let mut out = format!("# {}\n\n{}\n", title(record), subtitle(record));
    let mut section = |title: &str, text: String| out += &format!("\n## {title}\n\n{text}");
    section("Batches", markdown_table(&tables::points(&record.batch_points)));
    section("Sequences", markdown_table(&tables::points(&record.sequence_points)));
    section("Growth", format!("{}\n{}", markdown_table(&tables::growth(record)), markdown_list(&answers(record))));
    section(&saving_title(record), markdown_table(&tables::optimizations(record)));
    out + "\nPlots: `scaling.html`. Every figure with its provenance: `scaling.json`.\n"
}

pub fn html(record: &ScalingRecord) -> String {
    let mut page = Page::new(&title(record), &subtitle(record));
    page.section("Conclusions", &page::list(&answers(record)));
    let memory = |points: &[ScalingPoint], axis: fn(&ScalingPoint) -> u64, name: &str| {
        let line = |part: fn(&ScalingPoint) -> f64, title: &str| Series {
            name: title.into(),
            points: points
                .iter()
                .filter(|point| part(point) > 0.0)
                .map(|point| {
                    let size = part(point);
                    (axis(point) as f64, size, format!("{title}\n{name} {}: {size:.1} MiB", axis(point)))
                })
                .collect(),
        };
        let series = [
            line(|point| point.peak_memory_mb, "peak"),
            line(|point| point.memory_by_component.fixed(), "parameters, gradients, optimizer state"),
            line(|point| point.largest_by_component.activations, "activations"),
            line(|point| point.largest_by_component.attention, "attention's squares"),
        ];
        let series: Vec<Series> = series.into_iter().filter(|series| !series.points.is_empty()).collect();
        lines(&format!("Memory over {name}"), name, "MiB at the peak", &series)
    };
    let over_batch = memory(&record.batch_points, |point| point.batch_size, "batch size");
    page.section("Batches", &(page::table(&tables::points(&record.batch_points), "dense") + &over_batch));
    let over_length = memory(&record.sequence_points, |point| point.seq_len, "sequence length");
    let parts = parts_plot(&record.sequence_points);
    page.section(
        "Sequences",
        &(page::table(&tables::points(&record.sequence_points), "dense") + &over_length + &parts),
    );
    page.section("Growth", &(page::table(&tables::growth(record), "narrow") + &page::note(GROWTH_NOTE)));
    page.section(&saving_title(record), &page::table(&tables::optimizations(record), "dense"));
    page.finish()
}

const GROWTH_NOTE: &str = "Exponents are slopes of log-log fits: 1 doubles when the axis doubles, 2 quadruples. Each \
    component is taken at its own peak.";

fn parts_plot(points: &[ScalingPoint]) -> String {
    let rows = points.iter().map(|point| Bar {
        name: format!("seq {}", point.seq_len),
        sizes: point.memory_by_component.entries().map(|(_, size)| size).to_vec(),
        label: mebibytes(point.peak_memory_mb),
    });
    bars("Memory by component over sequence length", "MiB", &COMPONENTS, Full::Longest, &rows.collect::<Vec<_>>())
}

fn title(record: &ScalingRecord) -> String {
    format!("Scaling of {} under {}", record.size, record.version)
}

fn subtitle(record: &ScalingRecord) -> String {
    let nothing = if record.device == "null" { " · nothing was computed: times are predicted" } else { "" };
    format!(
        "{} parameters · {} · {} threads · {}{nothing}",
        grouped(record.parameters),
        record.machine,
        record.threads,
        record.timestamp
    )
}

/// The title names the point at which savings are planned and run: the longest sequence that fits.
fn saving_title(record: &ScalingRecord) -> String {
    let Some(first) = record.optimizations.first() else { return "Memory savings: nothing was swept".into() };
    let before = first.predicted_memory_mb + first.saved_mb;
    let at = record.sequence_points.iter().rev().find(|point| (point.peak_memory_mb - before).abs() < 1e-3);
    at.map_or("Memory savings".into(), |point| {
        format!("Memory savings at batch {} × seq {}", point.batch_size, point.seq_len)
    })
}

/// Answers to exercise 2's questions.
fn answers(record: &ScalingRecord) -> Vec<String> {
    let mut said = vec![];
    for (axis, growth, points) in [
        ("batch", &record.batch_scaling, &record.batch_points),
        ("sequence length", &record.sequence_scaling, &record.sequence_points),
    ] {
        said.extend(grows(axis, growth, points));
    }
    let limits = &record.limits;
    let at_least = |value: u64, searched: u64| if value == searched { "at least " } else { "" };
    let available = mebibytes(limits.available_mb);
    said.push(match limits.largest_batch {
        Some(batch) => format!(
            "{available} holds {}{batch} sequences of {} tokens",
            at_least(batch, limits.batch_searched_to),
            limits.at_seq_len
        ),
        None => format!("{available} holds no batch of sequences of {} tokens", limits.at_seq_len),
    });
    said.push(match limits.longest_sequence {
        Some(length) => format!(
            "at batch {}, sequences of {}{length} tokens fit",
            limits.at_batch_size,
            at_least(length, limits.sequence_searched_to)
        ),
        None => format!("at batch {}, no sequence fits", limits.at_batch_size),
    });
    said.extend(disturbance_of(&record.race));
    said
}

fn grows(axis: &str, growth: &Growth, points: &[ScalingPoint]) -> Option<String> {
    let (exponent, first, last) = (growth.exponent?, points.first()?, points.last()?);
    let steepest = growth
        .components
        .iter()
        .filter_map(|part| part.exponent.map(|exponent| (exponent, part.component.as_str())))
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .filter(|(exponent, _)| *exponent > 1.5)
        .map_or(String::new(), |(exponent, name)| format!("; {name} grows steepest, as {axis}^{exponent:.2}"));
    let ends = growth.speed_exponent_low.zip(growth.speed_exponent_high);
    let ends = ends.map_or(String::new(), |(low, high)| format!(" [95% between {low:.2} and {high:.2}]"));
    let speed =
        growth.speed_exponent.map_or(String::new(), |exponent| format!("; samples/s as {axis}^{exponent:.2}{ends}"));
    Some(format!(
        "memory over {axis}: {} (the part that is not fixed grows as {axis}^{exponent:.2}; the total {:.2}×, from \
         {:.0} to {:.0} MiB){steepest}{speed}",
        growth.class,
        last.peak_memory_mb / first.peak_memory_mb,
        first.peak_memory_mb,
        last.peak_memory_mb
    ))
}

fn mebibytes(size: f64) -> String {
    bytes((size * 1024.0 * 1024.0) as u64)
}

#[cfg(test)]
mod tests;
