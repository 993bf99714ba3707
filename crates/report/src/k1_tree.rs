//! The experiment on K-1's own tree as text: a line per run, answers, tables, and the same as Markdown.

use crate::k1::{interval, with_half};
use crate::numbers::{grouped, rate, seconds};
use crate::table::{Table, columns, markdown_list, markdown_table};
use headroom_record::k1_tree::{Equal, K1TreeComparison, K1TreeMean, K1TreeRecord, K1TreeRun};

/// Printed when a run is done.
pub fn run_line(run: &K1TreeRun) -> String {
    format!(
        "{} on {}, seed {}: 3 × {} steps in {}, loss {:.3}, forgetting {:.3}, {:.1}% of the parameters per step",
        run.arm,
        run.task,
        run.seed,
        grouped(run.steps_per_phase),
        seconds(run.seconds),
        run.loss,
        run.forgetting,
        100.0 * run.updated_share
    )
}

pub fn terminal(record: &K1TreeRecord) -> String {
    let mut out = format!("{}\n{}\n\n", title(record), subtitle(record));
    record.answers.iter().for_each(|line| out += &format!("{line}\n"));
    for task in &record.design.tasks {
        for equal in Equal::ALL {
            let table = columns(&means(record, &task.name, equal));
            out += &format!("\n{} at {}\n{table}", capital(&task.name), equal.words());
        }
    }
    out += &format!("\n{READING}\n\nDifferences beyond the noise\n");
    record.statements.iter().for_each(|line| out += &format!("  {line}\n"));
    out
}

pub fn markdown(record: &K1TreeRecord) -> String {
    let mut out = format!("# {}\n\n{}\n\n{}\n", title(record), subtitle(record), how(record));
    out += &format!("\n## Answers\n\n{}", markdown_list(&record.answers));
    for task in &record.design.tasks {
        let floor = task.loss_floor.map_or(String::new(), |floor| format!(" No model's loss goes below {floor:.3}."));
        out += &format!("\n## {}: {}\n\n", capital(&task.name), task.sources.join(", then "));
        out += &format!("Then the first source again.{floor}\n");
        for equal in Equal::ALL {
            let table = markdown_table(&means(record, &task.name, equal));
            out += &format!("\n### {} at {}\n\n{table}", capital(&task.name), equal.words());
        }
    }
    out += &format!("\n{READING}\n");
    out += &format!("\n## Differences beyond the noise\n\n{}", markdown_list(&record.statements));
    out += &format!("\n## Every comparison\n\n{}", markdown_table(&comparisons(record)));
    out += &format!("\n## Losses of every run\n\n{}", markdown_table(&runs(record)));
    out + "\nEvery figure with its provenance: `k1-tree.json`.\n"
}

const READING: &str = "Means over the seeds, with the half-width of their 95% intervals. Loss: on the current source, \
    right after its first phase, averaged over both. Forgetting: how much the loss on the first source rises while the \
    second is trained on. Back: the loss on the first source after coming back to it, minus its loss after the first \
    phase. Last: the loss at the end, averaged over both. Lower is better for all four, but an arm that learns little \
    has little to forget: read forgetting beside loss. A parameter counts as updated whatever its share of the step.";

fn title(record: &K1TreeRecord) -> String {
    let branching: Vec<String> = record.design.branching.iter().map(u64::to_string).collect();
    format!("K-1's tree ({}) under every rule, and against a LLaMA", branching.join("-"))
}

fn subtitle(record: &K1TreeRecord) -> String {
    format!(
        "{} parameters in {} nodes, {} in the LLaMA · {} · {}, {} threads · {} · {} in total",
        grouped(record.design.parameters),
        record.design.nodes,
        grouped(record.design.llama_parameters),
        record.version,
        record.machine,
        record.threads,
        record.timestamp,
        seconds(record.total_seconds)
    )
}

fn how(record: &K1TreeRecord) -> String {
    let design = &record.design;
    let widths = |widths: &[u64]| match widths {
        [hidden, heads, kv, inner] => format!("width {hidden}, {heads} heads, {kv} key-value, feed-forward {inner}"),
        _ => String::new(),
    };
    format!(
        "Nodes: {}. The LLaMA: {} layers, {}. {} seeds, the same weights for every rule on the tree. Three phases: the \
         first source, the second, the first again. Batches of {} × {} tokens of a vocabulary of {}, AdamW with \
         learning rate {} (the same for all), weight decay {}, clip {}. On a CPU, as many runs go side by side as \
         there are threads, one thread each. Losses are on {} held-out batches; a model that knows nothing scores \
         {:.3}.",
        widths(&design.widths),
        design.llama_layers,
        widths(&design.llama_widths),
        design.seeds.len(),
        design.batch_size,
        design.seq_len,
        design.vocabulary,
        design.learning_rate,
        design.weight_decay,
        design.clip,
        design.eval_batches,
        design.loss_of_no_knowledge
    )
}

fn means(record: &K1TreeRecord, task: &str, equal: Equal) -> Table {
    let own = record.arms.iter().filter(|arm| arm.task == task && arm.equal == equal);
    let row = |arm: &K1TreeMean| {
        vec![
            arm.arm.clone(),
            grouped(3 * arm.steps_per_phase),
            rate(arm.steps_per_sec.mean),
            format!("{:.1}%", 100.0 * arm.updated_share.mean),
            with_half(&arm.loss),
            with_half(&arm.forgetting),
            with_half(&arm.back),
            with_half(&arm.final_loss),
        ]
    };
    Table {
        head: vec!["arm", "steps", "steps/s", "updated", "loss", "forgetting", "back", "last"],
        rows: own.map(row).collect(),
    }
}

fn comparisons(record: &K1TreeRecord) -> Table {
    let row = |one: &K1TreeComparison| {
        let interval = interval(&one.difference);
        vec![
            one.task.clone(),
            one.equal.words().into(),
            one.figure.clone(),
            one.arm.clone(),
            one.against.clone(),
            format!("{:+.3}", one.difference.mean),
            interval,
            one.adjusted_p_value.map_or(String::new(), |value| format!("{value:.4}")),
            if one.beyond_noise { "beyond noise".into() } else { "within noise".into() },
        ]
    };
    Table {
        head: vec!["task", "at", "figure", "arm", "against", "difference", "95%", "adjusted p", ""],
        rows: record.comparisons.iter().map(row).collect(),
    }
}

fn runs(record: &K1TreeRecord) -> Table {
    let row = |run: &K1TreeRun| {
        let phase = |losses: &Vec<f64>| losses.iter().map(|loss| format!("{loss:.3}")).collect::<Vec<_>>().join(", ");
        vec![
            run.task.clone(),
            run.arm.clone(),
            run.seed.to_string(),
            grouped(run.steps_per_phase),
            run.losses.iter().map(phase).collect::<Vec<_>>().join(" → "),
        ]
    };
    Table {
        head: vec!["task", "arm", "seed", "steps of a phase", "losses on both sources after each phase"],
        rows: record.runs.iter().map(row).collect(),
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
