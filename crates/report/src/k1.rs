//! The experiment with selective updates: a line per run, tables, what differs, and the same as Markdown.

use crate::numbers::{grouped, rate, seconds};
use crate::table::{Table, columns, markdown_list, markdown_table};
use headroom_record::k1::{Budget, Estimate, K1Comparison, K1Record, K1Run};

/// Printed when a run is done.
pub fn run_line(run: &K1Run) -> String {
    format!(
        "{} at {}, seed {}: {} steps in {}, loss {:.3}, forgetting {:.3}, {:.1}% of the parameters per step",
        run.update,
        run.budget.words(),
        run.seed,
        grouped(run.steps),
        seconds(run.seconds),
        run.loss,
        run.forgetting,
        100.0 * run.updated_share
    )
}

pub fn terminal(record: &K1Record) -> String {
    let mut out = format!("{}\n{}\n", title(record), subtitle(record));
    for budget in Budget::ALL {
        out += &format!("\nAt {}\n{}", budget_words(record, budget), columns(&arms(record, budget)));
    }
    out += &format!("\n{READING}\n");
    out += "\nDifferences beyond the noise\n";
    record.statements.iter().for_each(|line| out += &format!("  {line}\n"));
    out
}

pub fn markdown(record: &K1Record) -> String {
    let mut out = format!("# {}\n\n{}\n\n{}\n", title(record), subtitle(record), how(record));
    for budget in Budget::ALL {
        let (title, table) = (budget_words(record, budget), markdown_table(&arms(record, budget)));
        out += &format!("\n## At {title}\n\n{table}");
    }
    out += &format!("\n{READING}\n");
    out += &format!("\n## Differences beyond the noise\n\n{}", markdown_list(&record.statements));
    out += &format!("\n## Every comparison\n\n{}", markdown_table(&comparisons(record)));
    out += &format!("\n## Losses of every run\n\n{}", markdown_table(&runs(record)));
    out + "\nEvery figure with its provenance: `k1.json`.\n"
}

const READING: &str = "Means over the seeds, with the half-width of their 95% intervals. Loss: on the current source, \
    right after its phase, averaged over the phases. Forgetting: how much the loss on an earlier source has risen by \
    the end. Last: the loss at the end, averaged over all sources. Lower is better for all three, but a rule that \
    learns little has little to forget: read forgetting beside loss.";

fn title(record: &K1Record) -> String {
    format!("Selective updates of {} against their controls", record.size)
}

fn subtitle(record: &K1Record) -> String {
    format!(
        "{} parameters in {} nodes · {} · {}, {} threads · {} · {} in total",
        grouped(record.parameters),
        record.nodes,
        record.version,
        record.machine,
        record.threads,
        record.timestamp,
        seconds(record.total_seconds)
    )
}

fn how(record: &K1Record) -> String {
    let design = &record.design;
    format!(
        "{} Markov sources, one after the other, from the same weights for every rule; {} seeds. Batches of {} × {} \
         tokens, AdamW with learning rate {} (the same for every rule), weight decay {}, clip {}. Losses are on {} \
         held-out batches per source. Their floor, the sources' mean entropy, is {:.3}; a model that knows nothing \
         scores {:.3}.",
        design.sources,
        design.seeds.len(),
        design.batch_size,
        design.seq_len,
        design.learning_rate,
        design.weight_decay,
        design.clip,
        design.eval_batches,
        design.loss_floor,
        design.loss_of_no_knowledge
    )
}

fn budget_words(record: &K1Record, budget: Budget) -> String {
    let design = &record.design;
    match budget {
        Budget::EqualSteps => format!("equal steps: {} per source", grouped(design.steps_per_phase)),
        Budget::EqualUpdates => format!(
            "equal updated parameters: {} per source, as many as {:.0} dense steps update",
            grouped(design.updated_parameters_per_phase),
            design.dense_steps_per_phase
        ),
    }
}

fn arms(record: &K1Record, budget: Budget) -> Table {
    let rows = record.arms.iter().filter(|arm| arm.budget == budget).map(|arm| {
        vec![
            arm.update.clone(),
            format!("{:.0}", arm.steps.mean),
            rate(arm.steps_per_sec.mean),
            rate(arm.tokens_per_sec.mean),
            format!("{:.1}%", 100.0 * arm.updated_share.mean),
            with_half(&arm.loss),
            with_half(&arm.forgetting),
            with_half(&arm.final_loss),
        ]
    });
    Table {
        head: vec!["update", "steps", "steps/s", "tokens/s", "updated", "loss", "forgetting", "last"],
        rows: rows.collect(),
    }
}

pub(crate) fn with_half(estimate: &Estimate) -> String {
    match (estimate.ci95_low, estimate.ci95_high) {
        (Some(low), Some(high)) => format!("{:.3} ± {:.3}", estimate.mean, (high - low) / 2.0),
        _ => format!("{:.3}", estimate.mean),
    }
}

pub(crate) fn interval(difference: &Estimate) -> String {
    match (difference.ci95_low, difference.ci95_high) {
        (Some(low), Some(high)) => format!("{low:+.3} to {high:+.3}"),
        _ => String::new(),
    }
}

fn comparisons(record: &K1Record) -> Table {
    let row = |one: &K1Comparison| {
        let interval = interval(&one.difference);
        vec![
            one.budget.words().into(),
            one.figure.replace('_', " "),
            one.update.clone(),
            one.against.clone(),
            format!("{:+.3}", one.difference.mean),
            interval,
            one.adjusted_p_value.map_or(String::new(), |value| format!("{value:.4}")),
            if one.beyond_noise { "beyond noise".into() } else { "within noise".into() },
        ]
    };
    Table {
        head: vec!["at", "figure", "update", "against", "difference", "95%", "adjusted p", ""],
        rows: record.comparisons.iter().map(row).collect(),
    }
}

fn runs(record: &K1Record) -> Table {
    let row = |run: &K1Run| {
        let phase = |losses: &Vec<f64>| losses.iter().map(|loss| format!("{loss:.3}")).collect::<Vec<_>>().join(", ");
        vec![
            run.budget.words().into(),
            run.update.clone(),
            run.seed.to_string(),
            grouped(run.steps),
            run.losses.iter().map(phase).collect::<Vec<_>>().join(" → "),
        ]
    };
    Table {
        head: vec!["at", "update", "seed", "steps", "losses on all sources after each phase"],
        rows: record.runs.iter().map(row).collect(),
    }
}
