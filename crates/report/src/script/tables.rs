//! The tables of a script's optimisation, shared by all formats of the report.

use crate::numbers::seconds;
use crate::optimize::times;
use crate::table::Table;
use headroom_record::script::{RemedyRow, ScriptRecord};

pub fn title(record: &ScriptRecord) -> String {
    format!("Optimisation of {}", record.command.join(" "))
}

pub fn subtitle(record: &ScriptRecord) -> String {
    format!("{} · PyTorch {} · {}", record.device, record.torch, record.timestamp)
}

pub fn summary(record: &ScriptRecord) -> Vec<String> {
    let now = seconds(record.baseline_step_seconds);
    if record.dry_run {
        return vec![format!("The unchanged script takes {now} per step. Nothing was tried: this was a dry run.")];
    }
    let mut lines = vec![];
    match record.ended.as_str() {
        "failed" => {
            lines.push(format!("The search failed: {}", record.failure.as_deref().unwrap_or("no reason is known")));
            lines.push(format!("The script takes {now} per step. The findings of the recording stand."));
            return lines;
        }
        "interrupted" if record.kept.is_empty() => {
            lines.push(format!("Interrupted after {:.0} s, before anything was proved.", record.seconds));
            lines.push(format!("The script takes {now} per step. The findings of the recording stand."));
            return lines;
        }
        "interrupted" => lines.push(format!(
            "Interrupted after {:.0} s: what was kept by then is proved, and the other remedies are not decided.",
            record.seconds
        )),
        _ => {}
    }
    let is_for_memory = |row: &&RemedyRow| row.kept && row.outcome.contains("in less memory");
    let for_memory = record.remedies.iter().filter(is_for_memory).count();
    lines.push(match record.kept.is_empty() {
        true => nothing_kept(record, &now),
        false if for_memory == record.kept.len() => format!(
            "As fast, in less memory of the device: {} ({:.2} to {:.2}, 95%, {} of each), by {}.",
            times(record.speedup),
            record.ci95_low,
            record.ci95_high,
            processes(record.rounds),
            listed(&record.kept)
        ),
        false => format!(
            "{} as fast ({:.2} to {:.2}, 95%, {} of each{}): {now} → {} per step, by {}.",
            times(record.speedup),
            record.ci95_low,
            record.ci95_high,
            processes(record.rounds),
            if is_of_patch(record) { ", patched and unchanged in turns" } else { "" },
            seconds(record.kept_step_seconds()),
            listed(&record.kept)
        ),
    });
    let losses = record.gates.get("losses");
    if let Some(gate) = losses.filter(|gate| gate.result == "pass") {
        lines.push(format!(
            "Its losses match the script's: they differ by at most {:.1e} of a loss, where {:.1e} is allowed (`{}`). \
             Runs of the unchanged script differ by {:.1e}.",
            gate.figure, gate.limit, record.class, record.own_loss_spread
        ));
    }
    if !record.own_loss_sources.is_empty() {
        lines.push(format!(
            "Seeded runs of the unchanged script differ by {:.1e} of a loss: {}.",
            record.own_loss_spread,
            record.own_loss_sources.join("; ")
        ));
    }
    if let Some(prediction) = &record.prediction {
        lines.push(format!(
            "Predictions were off by a median of {:.0}% of the saving, over {} that saved more than 5% of the step.",
            prediction.median_error_percent_of_saving,
            match prediction.remedies {
                1 => "one remedy".to_string(),
                count => format!("{count} remedies"),
            }
        ));
    }
    lines.push(format!("{} processes in {:.0} s.", record.processes, record.seconds));
    lines
}

/// Whether the headline is the speed of the patched script.
fn is_of_patch(record: &ScriptRecord) -> bool {
    record.proved_as.as_deref() == Some("patch")
}

fn processes(count: u64) -> String {
    if count == 1 { "one process".into() } else { format!("{count} processes") }
}

fn nothing_kept(record: &ScriptRecord, now: &str) -> String {
    let open = record.remedies.iter().filter(|row| row.is_open()).count();
    match open {
        0 => format!(
            "Nothing to gain: the unchanged script takes {now} per step, and no remedy that was tried made it faster beyond the \
             noise{}.",
            hidden_by_noise(record)
        ),
        open => format!(
            "Nothing was kept: the unchanged script takes {now} per step. {} not decided or not tried: an idle \
             machine, or a longer --time-limit, would tell.",
            if open == 1 { "One remedy was".to_string() } else { format!("{open} remedies were") }
        ),
    }
}

/// The largest gain that the intervals of the tried remedies do not exclude, if it is worth mentioning.
fn hidden_by_noise(record: &ScriptRecord) -> String {
    let most = record.remedies.iter().filter_map(|row| row.ci95_high).fold(1.0, f64::max);
    if most > 1.05 { format!(", which may hide up to {most:.2}×") } else { String::new() }
}

fn listed(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => "nothing".into(),
    }
}

pub fn findings(record: &ScriptRecord) -> Table {
    let rows = record.findings.iter().map(|finding| {
        vec![
            finding.code.clone(),
            finding.name.clone(),
            finding.percent_of_step.map_or("-".into(), |share| format!("{share:.1}%")),
            format!("{:.1}%", finding.expected_saving_percent),
            finding.message.clone(),
        ]
    });
    Table { head: vec!["code", "finding", "share of step", "expected saving", "evidence"], rows: rows.collect() }
}

pub fn remedies(record: &ScriptRecord) -> Table {
    let predicted = |row: &RemedyRow| row.predicted_saving_percent.map_or("-".into(), |share| format!("{share:.1}%"));
    let answers = |row: &RemedyRow| if row.answers.is_empty() { "-".into() } else { row.answers.join(", ") };
    let tried = record.remedies.iter().filter(|row| row.applies);
    if record.dry_run {
        let rows =
            tried.map(|row| vec![row.name.clone(), row.class.clone(), answers(row), predicted(row), row.about.clone()]);
        return Table { head: vec!["remedy", "class", "answers", "predicted", "effect"], rows: rows.collect() };
    }
    let rows = tried.map(|row| {
        vec![
            row.name.clone(),
            row.class.clone(),
            predicted(row),
            row.saving_percent.map_or("-".into(), |share| format!("{share:.1}%")),
            speedup(row),
            memory(row),
            row.outcome.clone(),
        ]
    });
    let head = vec!["remedy", "class", "predicted", "measured", "speed-up (95%)", "memory", "outcome"];
    Table { head, rows: rows.collect() }
}

fn speedup(row: &RemedyRow) -> String {
    match (row.speedup, row.ci95_low, row.ci95_high) {
        (Some(ratio), Some(low), Some(high)) => format!("{} ({low:.2} to {high:.2})", times(ratio)),
        _ => "-".into(),
    }
}

fn memory(row: &RemedyRow) -> String {
    match row.memory_before_mb.zip(row.memory_after_mb) {
        Some((before, after)) if before > 0.0 => format!("{:+.0}%", 100.0 * (after / before - 1.0)),
        _ => "-".into(),
    }
}

/// The changes made by the kept remedies, and the time for compilation besides the steps.
pub fn below_remedies(record: &ScriptRecord) -> Vec<String> {
    let kept = record.remedies.iter().filter(|row| row.kept);
    let mut lines: Vec<String> = kept
        .filter(|row| !row.did.is_empty())
        .map(|row| {
            let compiling = row
                .compile_seconds
                .map_or(String::new(), |seconds| format!(" ({seconds:.0} s of compiling, which is not step time)"));
            format!("`{}`: {}{compiling}", row.name, row.did.join("; "))
        })
        .collect();
    if !record.dry_run && record.remedies.iter().any(|row| row.was_tried) {
        lines.push(
            "Savings are shares of the unchanged script's step; speed-ups are over the remedies kept before.".into(),
        );
    }
    lines
}

pub fn not_tried(record: &ScriptRecord) -> Table {
    let rows = record.remedies.iter().filter(|row| !row.applies);
    let why = |row: &RemedyRow| row.outcome.trim_start_matches("not tried: ").to_string();
    let rows = rows.map(|row| vec![row.name.clone(), row.class.clone(), why(row)]);
    Table { head: vec!["remedy", "class", "reason"], rows: rows.collect() }
}

pub fn gates(record: &ScriptRecord) -> Table {
    let rows = record.gates.iter().map(|(name, gate)| {
        vec![
            name.clone(),
            gate.result.clone(),
            gate_figure(name, gate.figure),
            gate_figure(name, gate.limit),
            gate.about.clone(),
        ]
    });
    Table { head: vec!["gate", "result", "figure", "limit", "meaning"], rows: rows.collect() }
}

/// A gate's figure or limit.
pub fn gate_figure(gate: &str, figure: f64) -> String {
    match gate.trim_start_matches("patch_") {
        "speed" => times(figure),
        "memory" => format!("{figure:.2}"),
        "finite" | "batches" | "samples" | "steps" | "loading" => format!("{figure:.0}"),
        _ => format!("{figure:.1e}"),
    }
}

pub fn patch(record: &ScriptRecord) -> Vec<String> {
    let Some(patch) = &record.patch else { return vec![] };
    let mut lines = vec![];
    if !patch.files.is_empty() {
        let does = if patch.applied { "is written to" } else { "changes" };
        lines.push(format!("The patch, optimize.patch, {does} {}.", patch.files.join(", ")));
    }
    // Else the headline has its figure.
    if !is_of_patch(record)
        && let (Some(ratio), Some(low), Some(high)) = (patch.speedup, patch.ci95_low, patch.ci95_high)
    {
        lines.push(format!(
            "Applied to a copy and run without the hook's remedies, it is {} as fast as the unchanged script ({low:.2} to {high:.2}, {}).",
            times(ratio),
            processes(patch.rounds)
        ));
    }
    if !patch.options.is_empty() {
        lines.push(format!("Options that do the same: `{}`", patch.options.join(" ")));
    }
    lines.extend(patch.by_hand.iter().map(|line| format!("By hand: {line}")));
    lines.extend(patch.note.clone());
    lines
}
