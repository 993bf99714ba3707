//! A study as text: progress lines, the table, the answers, Markdown and a page.

mod answers;
mod next_steps;
mod tables;

use crate::numbers::{bytes, mfu, mfu_cell, rate, seconds};
use crate::page::{self, Page};
use crate::plots::{Bar, COMPONENTS, Full, Series, bars, lines};
use crate::table::{columns, markdown_list, markdown_table};
use headroom_record::flops::is_possible_mfu;
use headroom_record::race::disturbance_of;
use headroom_record::study::{PlannedFigures, StudyRecord, StudyRequest, StudyRow, StudyStatus};
use next_steps::{BASELINE, next_steps};

/// The first line of a study: the versions that run, and how to run the course's baseline if it is not among them.
pub fn first_line(request: &StudyRequest) -> String {
    let name = |version: &String| match version.as_str() {
        BASELINE => format!("Version 1 ({BASELINE}, the naive graph and the course's baseline)"),
        "v2" => "Version 2 (v2)".into(),
        "all" => "all passes (all)".into(),
        list => list.to_string(),
    };
    let versions: Vec<String> = request.versions.iter().map(name).collect();
    let baseline = match request.versions.iter().any(|version| version == BASELINE) {
        true => String::new(),
        false => format!("; --passes {BASELINE} runs Version 1, the course's baseline"),
    };
    format!("{}: {}{baseline}", request.sizes.join(", "), versions.join(", "))
}

/// Printed before a run: its planned figures.
pub fn before_run(planned: &PlannedFigures) -> String {
    let total = planned.predicted_step_seconds * planned.num_steps as f64;
    let later = match planned.steps_per_turn {
        0 => String::new(),
        steps => format!(" and later turns of {steps}"),
    };
    format!(
        "batch {} × seq {}, {} planned, {} steps{later}, at least {} by the machine's roofs",
        planned.batch_size,
        planned.seq_len,
        mebibytes(planned.planned_memory_mb),
        planned.num_steps,
        seconds(total)
    )
}

/// Printed after a run.
pub fn after_run(row: &StudyRow) -> String {
    let measured = &row.measured;
    let parts = [
        measured.samples_per_sec.map(|speed| format!("{} samples/s", rate(speed))),
        measured.step_seconds.map(|time| format!("{} per step", seconds(time))),
        measured.peak_memory_mb.map(mebibytes),
        measured.mfu_percent.map(|percent| format!("MFU {}", mfu(percent, 1))),
    ];
    let said: Vec<String> = parts.into_iter().flatten().collect();
    format!("done in {}: {}", row.wall_seconds.map_or("?".into(), seconds), said.join(", "))
}

pub fn terminal(record: &StudyRecord) -> String {
    let about = subtitle(record).replace('`', "");
    let mut out = format!("{}\n{about}\n\n{}", title(record), columns(&tables::runs(record)));
    out += "\n";
    for (question, said) in answers::answers(record) {
        out += &format!("{question}\n");
        said.iter().for_each(|line| out += &format!("  {}\n", line.replace('`', "")));
    }
    let refused = not_finished(record);
    if !refused.is_empty() {
        out += "\nNot run to the end:\n";
        refused.iter().for_each(|line| out += &format!("  {line}\n"));
    }
    if let Some(disturbed) = disturbance_of(&record.race) {
        out += &format!("\n{disturbed}\n");
    }
    let next = next_steps(record);
    if !next.is_empty() {
        out += "\nNext steps:\n";
        next.iter().zip(1..).for_each(|(step, number)| out += &format!("  {number}. {}\n", step.replace('`', "")));
    }
    out
}

pub fn markdown(record: &StudyRecord) -> String {
    let mut out = format!("# {}\n\n{}\n\n{}", title(record), subtitle(record), markdown_table(&tables::runs(record)));
    out += &format!("\n## Memory at the peak\n\n{}", markdown_table(&tables::memory(record)));
    out += "\n## Conclusions\n";
    for (question, said) in answers::answers(record) {
        out += &format!("\n**{question}**\n\n{}", markdown_list(&said));
    }
    let refused = not_finished(record);
    if !refused.is_empty() {
        out += &format!("\n## Not run to the end\n\n{}", markdown_list(&refused));
    }
    if let Some(disturbed) = disturbance_of(&record.race) {
        out += &format!("\n{disturbed}\n");
    }
    let next = next_steps(record);
    if !next.is_empty() {
        out += &format!("\n## Next steps\n\n{}", markdown_list(&next));
    }
    out + "\nPlots: `study.html`. Every figure with its provenance: `study.json`.\n"
}

pub fn html(record: &StudyRecord) -> String {
    let mut page = Page::new(&title(record), &subtitle(record).replace('`', ""));
    let mut notes = page::note(if record.race.is_empty() { RUNS_NOTE } else { RACE_NOTE });
    if let Some(disturbed) = disturbance_of(&record.race) {
        notes += &page::note(&disturbed);
    }
    page.section("Runs", &(page::table(&tables::runs(record), "dense") + &notes));
    let said: String = answers::answers(record)
        .iter()
        .map(|(question, said)| format!("<h3>{}</h3>{}", page::code(question), page::list(said)))
        .collect();
    page.section("Conclusions", &said);
    if record.request.sizes.len() > 1 {
        page.section("Speed over size", &speed_plot(record));
    }
    page.section("Utilisation", &utilisation_plot(record));
    page.section("Memory at the peak", &(memory_plot(record) + &page::table(&tables::memory(record), "dense")));
    let refused = not_finished(record);
    if !refused.is_empty() {
        page.section("Not run to the end", &page::list(&refused));
    }
    let next = next_steps(record);
    if !next.is_empty() {
        page.section("Next steps", &page::list(&next));
    }
    page.finish()
}

const RUNS_NOTE: &str = "Step times are medians after the warm-up. Memory is the amount that the plan reserves, which \
    a run then uses. MFU counts the FLOPs that the model needs, whatever the passes, against the machine's peak.";

const RACE_NOTE: &str = "Step times were taken in turns after the runs: sizes and versions alternate, disturbed turns are \
    taken again, and a time is the trimmed mean over the rounds that count, with its 95% interval. Memory is the amount \
    that the plan reserves, which a run then uses. MFU counts the FLOPs that the model needs, whatever the passes, against \
    the machine's peak.";

fn title(record: &StudyRecord) -> String {
    format!("Study of {} under {}", record.request.sizes.join(", "), record.request.versions.join(", "))
}

fn subtitle(record: &StudyRecord) -> String {
    let machine = &record.machine;
    let nothing = if record.request.device == "null" { " · nothing was computed: times are predicted" } else { "" };
    format!(
        "{} · {} threads · {} · peak {} ({}){nothing}",
        machine.name,
        record.request.threads,
        record.timestamp,
        crate::numbers::metric(machine.peak_flops, "FLOP/s"),
        machine.peak_source
    )
}

/// Sizes that cannot fit, with the memory they would need, and runs that failed.
fn not_finished(record: &StudyRecord) -> Vec<String> {
    let broken = record.runs.iter().filter(|row| row.status != StudyStatus::Finished);
    broken
        .map(|row| {
            let note = row.note.as_deref().unwrap_or("not started");
            let lines: Vec<&str> = note.lines().map(|line| line.trim().trim_start_matches("error: ")).collect();
            let predicted = match row.status {
                StudyStatus::DoesNotFit => {
                    format!("; a step would take at least {}", seconds(row.planned.predicted_step_seconds))
                }
                _ => String::new(),
            };
            format!("{} {}: {}: {}{predicted}", row.size, row.version, row.status.name(), lines.join("; "))
        })
        .collect()
}

fn mebibytes(size: f64) -> String {
    bytes((size * 1024.0 * 1024.0) as u64)
}

fn speed_plot(record: &StudyRecord) -> String {
    let series = record.request.versions.iter().map(|version| {
        let rows = record.runs.iter().filter(|row| row.version == *version);
        let points = rows.filter_map(|row| {
            let tokens = row.measured.tokens_per_sec?;
            let tip = format!("{} {version}\n{} tokens/s", row.size, rate(tokens));
            Some((row.planned.parameters as f64, tokens, tip))
        });
        Series { name: version.clone(), points: points.collect() }
    });
    let series: Vec<Series> = series.collect();
    lines("Tokens per second over parameters", "parameters", "tokens per second", &series)
}

fn utilisation_plot(record: &StudyRecord) -> String {
    let rows = record.runs.iter().filter_map(|row| {
        let percent = row.measured.mfu_percent?;
        // The bar of an impossible value would be the longest of all.
        let length = if is_possible_mfu(percent) { percent } else { 0.0 };
        Some(Bar { name: format!("{} {}", row.size, row.version), sizes: vec![length], label: mfu_cell(percent) })
    });
    bars("MFU of every run", "%", &[("of the machine's peak", "part0")], Full::Value(100.0), &rows.collect::<Vec<_>>())
}

fn memory_plot(record: &StudyRecord) -> String {
    let rows = record.runs.iter().map(|row| Bar {
        name: format!("{} {}", row.size, row.version),
        sizes: row.planned.memory_by_component.entries().map(|(_, size)| size).to_vec(),
        label: mebibytes(row.planned.planned_memory_mb),
    });
    bars("Planned memory by component", "MiB", &COMPONENTS, Full::Longest, &rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;
