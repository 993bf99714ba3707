//! The tables of an optimisation, shared by all formats of the report.

use super::phase_3;
use crate::numbers::{metric, mfu, mfu_cell, seconds};
use crate::table::Table;
use headroom_record::flops::is_possible_mfu;
use headroom_record::race::disturbance_of;
use headroom_record::validation::{ValidationRecord, ValidationRow};

pub use crate::numbers::times;

pub fn title(record: &ValidationRecord) -> String {
    format!("Optimisation of LLaMA {}", record.size)
}

pub fn subtitle(record: &ValidationRecord) -> String {
    let threads = if record.threads > 0 { format!(", {} threads", record.threads) } else { String::new() };
    format!(
        "batch {} × {} tokens · {}{threads} · {}",
        record.batch_size, record.seq_len, record.device, record.timestamp
    )
}

/// The command to type, how much faster it is, and how sure that is. The first line is a command.
pub fn verdict(record: &ValidationRecord) -> Vec<String> {
    let Some(kept) = record.versions.last().filter(|_| !record.kept.is_empty()) else {
        let mut lines =
            vec!["Nothing is recommended: no list of passes is proved faster than Version 1, the naive graph.".into()];
        if let Some(looked) = &record.unproved {
            lines.push(format!(
                "`{}` looked faster, {} ({:.2} to {:.2}), without proof. An idle machine or a longer `--time-limit` may decide it.",
                looked.passes.join(","),
                times(looked.relative_speed),
                looked.ci95_low,
                looked.ci95_high
            ));
        }
        return lines;
    };
    let failed: Vec<String> =
        record.gates.iter().filter(|(_, gate)| gate.result != "pass").map(|(name, _)| name.replace('_', " ")).collect();
    let gates = match failed.as_slice() {
        [] => "Every gate passes.".into(),
        failed => format!("Not every gate passes: {}.", failed.join(", ")),
    };
    vec![
        format!("Recommended: `headroom train --size {} --passes {}`", record.size, kept_flag(record)),
        format!(
            "{} as fast as Version 1, the naive graph (95%: {:.2} to {:.2}, {} rounds), in {:.0} MiB instead of {:.0} and {} kernels \
             instead of {}. {gates}",
            times(kept.measured_speedup),
            kept.measured_ci95_low,
            kept.measured_ci95_high,
            kept.rounds,
            kept.memory_after_mb,
            kept.memory_before_mb,
            kept.kernels_after,
            kept.kernels_before,
        ),
    ]
}

/// Further results of the measurement, in a few sentences.
pub fn remarks(record: &ValidationRecord) -> Vec<String> {
    let mut lines: Vec<String> = phase_3::summary(record).into_iter().collect();
    if let Some(best) = record.as_good.first() {
        let others = match record.as_good.len() {
            1 => String::new(),
            2 => ", and one more list".into(),
            count => format!(", and {} more lists", count - 1),
        };
        lines.push(format!(
            "As fast within the noise: {} ({:.2} of its speed, 95% between {:.2} and {:.2}){others}. Another run may \
             recommend one of these.",
            against_kept(record, &best.passes),
            best.relative_speed,
            best.ci95_low,
            best.ci95_high
        ));
    }
    lines.extend(noise(record));
    if let Some(prediction) = &record.prediction {
        let signs = match prediction.large_savings {
            0 => "no pass moved the step by more than 5% beyond the noise".into(),
            large => {
                format!("of {large} that moved the step by more than 5%, {} had the right sign", prediction.right_sign)
            }
        };
        lines.push(format!(
            "Predicted savings were off by a median of {:.1}% of the step over {} passes; {} lie within 3% of the step or 35% \
             of the saving, and {signs}.",
            prediction.median_error_percent_of_step, prediction.passes, prediction.within_limit
        ));
    }
    let at = &record.targets;
    if let Some(percent) = [at.mfu_percent_before, at.mfu_percent_after].into_iter().find(|at| !is_possible_mfu(*at)) {
        lines.push(format!("MFU is {}.", mfu(percent, 1)));
    }
    lines
}

/// The result in a few sentences, for reports.
pub fn summary(record: &ValidationRecord) -> Vec<String> {
    [verdict(record), remarks(record)].concat()
}

/// Says once that the machine was noisy, and what was done about it.
fn noise(record: &ValidationRecord) -> Option<String> {
    let busy = disturbance_of(record.race.as_slice());
    let wide = record.noise_percent > NOISY;
    match (busy, wide) {
        (None, false) => None,
        (Some(busy), _) => Some(busy),
        (None, true) => Some(format!(
            "The machine was not quiet: the median interval reaches {:.0}% to either side. A pass called `undecided` may be decided \
             on an idle machine, or with a longer `--time-limit`.",
            record.noise_percent
        )),
    }
}

/// The kept passes, as `--passes` takes them. Files of before have no flag.
fn kept_flag(record: &ValidationRecord) -> String {
    if record.kept_flag.is_empty() { record.kept.join(",") } else { record.kept_flag.clone() }
}

/// The passes that a list lacks or adds compared with the kept one.
fn against_kept(record: &ValidationRecord, list: &[String]) -> String {
    let missing = |from: &[String], of: &[String]| -> Vec<String> {
        of.iter().filter(|name| !from.contains(name)).map(|name| format!("`{name}`")).collect()
    };
    let (less, more) = (missing(list, &record.kept), missing(&record.kept, list));
    let part = |word: &str, names: &[String]| match names {
        [] => None,
        names => Some(format!("{word} {}", names.join(", "))),
    };
    let parts: Vec<String> = [part("without", &less), part("with", &more)].into_iter().flatten().collect();
    if list.is_empty() { "Version 1".into() } else { format!("the list {}", parts.join(" and ")) }
}

/// Explains how the speed figures were measured together.
pub fn one_race(record: &ValidationRecord) -> String {
    let rounds = record.versions.last().map_or(0, |row| row.rounds);
    format!(
        "All speeds come from one race, in which every list is compared with Version 1 in the same round: a few rounds of all lists, \
         then {rounds} of those that could be the best, which count alone for them. The kept rows multiply to the kept list's \
         speed-up. Intervals are of 95%."
    )
}

/// Says which step the times of operators and findings refer to.
pub fn one_step(record: &ValidationRecord) -> String {
    format!(
        "Times and shares are of one step, the median of {} recorded ones, {}: the rows add up to it.",
        record.baseline_steps,
        seconds(record.baseline_step_seconds)
    )
}

/// Half-width of an interval, in percent, above which a quieter machine is recommended.
const NOISY: f64 = 4.0;

/// Number of the baseline's operators shown.
const OPERATORS: usize = 8;

pub fn operators(record: &ValidationRecord) -> Table {
    let total = record.baseline_step_seconds.max(f64::MIN_POSITIVE);
    let row = |name: &str, time: f64| vec![name.to_string(), seconds(time), format!("{:.1}%", 100.0 * time / total)];
    let shown = record.baseline_by_op.iter().take(OPERATORS);
    let mut rows: Vec<Vec<String>> = shown.clone().map(|op| row(&op.op, op.seconds)).collect();
    let rest = record.baseline_step_seconds - shown.map(|op| op.seconds).sum::<f64>();
    if record.baseline_by_op.len() > OPERATORS {
        rows.push(row("all others, and between operators", rest));
    }
    rows.push(row("the step", record.baseline_step_seconds));
    Table { head: vec!["operator", "time per step", "share"], rows }
}

pub fn findings(record: &ValidationRecord) -> Table {
    let rows = record.findings.iter().map(|row| {
        let asks = if row.asks_for.is_empty() { "every fusion".into() } else { row.asks_for.join(", ") };
        vec![
            row.rank.to_string(),
            row.finding.clone(),
            row.percent_of_step.map_or(String::new(), |share| format!("{share:.1}%")),
            row.speedup_at_most.map_or(String::new(), |speedup| format!("{speedup:.2}×")),
            asks,
            row.evidence.clone(),
        ]
    });
    let head = vec!["rank", "finding", "share of step", "at most", "remedy", "evidence"];
    Table { head, rows: rows.collect() }
}

pub fn passes(record: &ValidationRecord) -> Table {
    rungs("pass", &record.passes)
}

pub fn versions(record: &ValidationRecord) -> Table {
    rungs("list", &record.versions)
}

pub fn ablation(record: &ValidationRecord) -> Table {
    rungs("without", &record.ablation)
}

fn rungs(first: &'static str, rows: &[ValidationRow]) -> Table {
    let predicted = rows.iter().any(|row| row.predicted_speedup.is_some());
    let decided = rows.iter().any(|row| row.verdict != "measured");
    let cells = rows.iter().map(|row| {
        let mut cells = vec![row.name.clone()];
        if predicted {
            cells.push(row.predicted_speedup.map_or(String::new(), times));
        }
        cells.extend([
            times(row.measured_speedup),
            format!("{:.2} to {:.2}", row.measured_ci95_low, row.measured_ci95_high),
            row.rounds.to_string(),
            format!("{:.0} → {:.0}", row.memory_before_mb, row.memory_after_mb),
            format!("{} → {}", row.kernels_before, row.kernels_after),
            format!("{:.0e}", row.loss_difference.max(row.gradient_difference)),
        ]);
        if decided {
            cells.push(row.verdict.clone());
        }
        cells
    });
    let mut head = vec![first];
    head.extend(predicted.then_some("predicted"));
    head.extend(["measured", "95%", "rounds", "memory, MiB", "kernels", "difference"]);
    head.extend(decided.then_some("verdict"));
    Table { head, rows: cells.collect() }
}

/// Notes on predictions that were off.
pub fn notes(record: &ValidationRecord) -> Vec<String> {
    record.passes.iter().filter_map(|row| Some(format!("`{}`: {}", row.name, row.note.as_ref()?))).collect()
}

pub const MATRIX: &str = "Impact against effort by hand";
pub const MATRIX_NOTE: &str =
    "Effort is of writing the same by hand, in another trainer. Here every pass is one flag, whatever its field.";

/// Impact is measured: a saving of 5% of the step time or 10% of its memory is high.
pub fn matrix(record: &ValidationRecord) -> [(&'static str, Vec<String>); 4] {
    let high = |row: &&ValidationRow| {
        row.measured_ci95_low > 1.0 && row.measured_speedup >= 1.05 || row.memory_after_mb <= 0.9 * row.memory_before_mb
    };
    let cell = |impact: bool, low_effort: bool| -> Vec<String> {
        let chosen = record.passes.iter().filter(|row| high(row) == impact && (row.effort == "low") == low_effort);
        chosen
            .map(|row| {
                let memory = row.memory_after_mb - row.memory_before_mb;
                format!("`{}`: {}, {memory:+.0} MiB", row.name, times(row.measured_speedup))
            })
            .collect()
    };
    [
        ("High impact, low effort (priority 1)", cell(true, true)),
        ("High impact, high effort (priority 2)", cell(true, false)),
        ("Low impact, low effort (priority 3)", cell(false, true)),
        ("Low impact, high effort (priority 4: skip)", cell(false, false)),
    ]
}

/// The workshop's plan for Version 2: phases, expected and measured results.
pub fn roadmap(record: &ValidationRecord) -> Table {
    const PHASES: [&str; 3] = ["1 kernel fusion", "2 attention", "3 additional"];
    let phase_of = |row: &ValidationRow| row.phase.map_or(PHASES.len(), usize::from);
    let mut rows = vec![];
    for (number, phase) in (1..).zip(PHASES) {
        let of_phase: Vec<&ValidationRow> = record.passes.iter().filter(|row| phase_of(row) == number).collect();
        for row in &of_phase {
            let mark = if row.kept { "[x]" } else { "[ ]" };
            rows.push(vec![
                phase.to_string(),
                format!("{mark} {}", row.name),
                row.predicted_speedup.map_or(String::new(), times),
                times(row.measured_speedup),
                row.verdict.clone(),
            ]);
        }
        let (mut also_predicted, mut also_measured) = (1.0, 1.0);
        if number == PHASES.len() {
            (also_predicted, also_measured) = phase_3::kept_speedup(record);
            rows.extend(
                phase_3::roadmap(record).into_iter().map(|cells| [vec![phase.to_string()], cells.to_vec()].concat()),
            );
        }
        let kept = of_phase.iter().filter(|row| row.kept);
        let product = |of: fn(&ValidationRow) -> f64| kept.clone().map(|row| of(row)).product::<f64>();
        rows.push(vec![
            phase.to_string(),
            "kept passes together".into(),
            times(also_predicted * product(|row| row.predicted_speedup.unwrap_or(1.0))),
            times(also_measured * product(|row| row.measured_speedup)),
            String::new(),
        ]);
    }
    if let Some(kept) = record.versions.last() {
        let predicted = kept.predicted_speedup.map_or(String::new(), times);
        let measured = times(kept.measured_speedup);
        rows.push(vec!["overall".into(), "measured against Version 1".into(), predicted, measured, String::new()]);
        if phase_3::summary(record).is_some() {
            let (predicted, measured) = phase_3::kept_speedup(record);
            let predicted = kept.predicted_speedup.map_or(String::new(), |own| times(own * predicted));
            let measured = times(kept.measured_speedup * measured);
            let label = "computed: the kept list times Phase 3".into();
            rows.push(vec!["overall".into(), label, predicted, measured, String::new()]);
        }
    }
    Table { head: vec!["phase", "pass", "predicted", "measured", "verdict"], rows }
}

/// The workshop's success metrics, filled in.
pub fn targets(record: &ValidationRecord) -> Table {
    let at = &record.targets;
    let row = |name: &str, before: String, after: String| vec![name.to_string(), before, after];
    Table {
        head: vec!["metric", "Version 1", "kept"],
        rows: vec![
            row(
                "training throughput",
                metric(at.samples_per_sec_before, "samples/s"),
                metric(at.samples_per_sec_after, "samples/s"),
            ),
            row("MFU", mfu_cell(at.mfu_percent_before), mfu_cell(at.mfu_percent_after)),
            row("peak memory", format!("{:.1} MiB", at.memory_mb_before), format!("{:.1} MiB", at.memory_mb_after)),
            row("kernels per step", at.kernels_before.to_string(), at.kernels_after.to_string()),
        ],
    }
}

pub fn lengths(record: &ValidationRecord) -> Table {
    let rows = record.memory_by_length.iter().map(|row| {
        vec![
            row.seq_len.to_string(),
            format!("{:.0} MiB", row.baseline_mb),
            format!("{:.0} MiB", row.kept_mb),
            format!("{:.2}", row.kept_mb / row.baseline_mb.max(f64::MIN_POSITIVE)),
        ]
    });
    Table { head: vec!["sequence", "Version 1", "kept", "ratio"], rows: rows.collect() }
}

pub fn growth(record: &ValidationRecord) -> Option<String> {
    let growth = record.memory_growth;
    Some(format!(
        "Without weights and optimizer state, memory grows with the sequence to the power of {:.2} in Version 1 and of \
         {:.2} with the kept list (1 is linear). Planned, not run.",
        growth.baseline_exponent?, growth.kept_exponent?
    ))
}

pub fn gates(record: &ValidationRecord) -> Table {
    let rows = record.gates.iter().map(|(name, gate)| {
        vec![
            name.replace('_', " "),
            gate.result.clone(),
            gate_figure(name, gate.figure),
            gate_figure(name, gate.limit),
            gate.about.clone(),
        ]
    });
    Table { head: vec!["gate", "result", "figure", "limit", "meaning"], rows: rows.collect() }
}

/// The kept list on several ranks, if that was requested.
pub fn among_ranks(record: &ValidationRecord) -> Table {
    let rows = record.among_ranks.iter().map(|row| {
        vec![
            row.ranks.to_string(),
            row.way.clone(),
            seconds(row.step_seconds),
            seconds(row.exposed_seconds),
            format!("{:.0}%", row.efficiency_percent),
            format!("{:.1} MiB", row.memory_per_rank_mb),
        ]
    });
    let head = vec!["ranks", "passes", "step", "exposed communication", "scaling efficiency", "memory per rank"];
    Table { head, rows: rows.collect() }
}

pub const AMONG_RANKS: &str = "On several ranks, each with the whole batch (predicted, not run)";

/// The source of that table's figures.
pub fn messages(record: &ValidationRecord) -> Option<String> {
    let first = record.among_ranks.first()?;
    Some(format!("from the kept list's measured step and the plan's exchanges, by {}", first.messages))
}

pub fn interval(row: &ValidationRow) -> String {
    format!("{} ({:.2} to {:.2})", times(row.measured_speedup), row.measured_ci95_low, row.measured_ci95_high)
}

/// A gate's figure or limit.
pub fn gate_figure(gate: &str, figure: f64) -> String {
    match gate {
        "throughput" => times(figure),
        "memory" => format!("{figure:.3}"),
        "determinism" | "every_parameter_has_a_gradient" => format!("{figure:.0}"),
        _ => format!("{figure:.1e}"),
    }
}
