//! What the runs on a tree say: means, differences seed by seed, and a plain sentence for each question.

use super::super::LEVEL;
use super::super::student::{adjusted, estimate, p_value};
use headroom_record::k1::Estimate;
use headroom_record::k1_tree::{Equal, K1TreeComparison, K1TreeMean, K1TreeRecord, K1TreeRun, LLAMA, NO_NODE};

type Figure = fn(&K1TreeRun) -> f64;

/// Figures that arms are compared by.
const FIGURES: [(&str, Figure); 3] =
    [("loss", |run| run.loss), ("forgetting", |run| run.forgetting), ("back", |run| run.back)];

/// Means over seeds, for each task, budget and arm.
pub fn means(record: &K1TreeRecord) -> Vec<K1TreeMean> {
    let mut means = vec![];
    for task in &record.design.tasks {
        for budget in &record.design.budgets {
            let runs: Vec<&K1TreeRun> = (record.design.seeds.iter())
                .filter_map(|&seed| record.run(&task.name, &budget.arm, budget.equal, seed))
                .collect();
            if runs.is_empty() {
                continue;
            }
            let over = |figure: Figure| estimate(&runs.iter().map(|run| figure(run)).collect::<Vec<f64>>());
            means.push(K1TreeMean {
                arm: budget.arm.clone(),
                task: task.name.clone(),
                equal: budget.equal,
                steps_per_phase: budget.steps_per_phase,
                steps_per_sec: over(|run| run.steps_per_sec),
                updated_share: over(|run| run.updated_share),
                loss: over(|run| run.loss),
                forgetting: over(|run| run.forgetting),
                back: over(|run| run.back),
                final_loss: over(|run| run.final_loss),
            });
        }
    }
    means
}

/// Every rule against dense updates, those that look at norms against lots, and the dense tree against the LLaMA. Runs that two budgets
/// share are compared once.
pub fn comparisons(record: &K1TreeRecord) -> Vec<K1TreeComparison> {
    let design = &record.design;
    let mut found = vec![];
    for task in &design.tasks {
        for equal in Equal::ALL {
            for (arm, against) in pairs(record) {
                let steps = |equal: Equal| (design.steps(&arm, equal), design.steps(&against, equal));
                let is_new = equal == Equal::Steps || steps(equal) != steps(Equal::Steps);
                let (Some(_), Some(_), true) = (steps(equal).0, steps(equal).1, is_new) else { continue };
                for (figure, read) in FIGURES {
                    let of = |arm: &str, seed: u64| record.run(&task.name, arm, equal, seed).map(read);
                    let difference = |&seed: &u64| Some(of(&arm, seed)? - of(&against, seed)?);
                    let differences: Vec<f64> = design.seeds.iter().filter_map(difference).collect();
                    found.push(K1TreeComparison {
                        task: task.name.clone(),
                        equal,
                        figure: figure.into(),
                        arm: arm.clone(),
                        against: against.clone(),
                        difference: estimate(&differences),
                        p_value: p_value(&differences),
                        adjusted_p_value: None,
                        beyond_noise: false,
                    });
                }
            }
        }
    }
    let p_values: Vec<Option<f64>> = found.iter().map(|one| one.p_value).collect();
    for (one, adjusted) in found.iter_mut().zip(adjusted(&p_values)) {
        one.adjusted_p_value = adjusted;
        one.beyond_noise = adjusted.is_some_and(|value| value < LEVEL);
    }
    found
}

fn pairs(record: &K1TreeRecord) -> Vec<(String, String)> {
    let Names { topk, random } = names(record);
    let pair = |arm: &str, against: &str| (arm.to_string(), against.to_string());
    vec![
        pair("dense", LLAMA),
        pair(&topk, &random),
        pair("path", &random),
        pair(&topk, "dense"),
        pair("path", "dense"),
        pair(&random, "dense"),
        pair("dense", NO_NODE),
        pair(&topk, NO_NODE),
    ]
}

/// Arms whose names hold a number.
struct Names {
    topk: String,
    random: String,
}

fn names(record: &K1TreeRecord) -> Names {
    let first = |start: &str| {
        let own = record.design.budgets.iter().find(|budget| budget.arm.starts_with(start));
        own.map_or(String::new(), |budget| budget.arm.clone())
    };
    Names { topk: first("topk"), random: first("random") }
}

/// One sentence for each question.
pub fn answers(record: &K1TreeRecord) -> Vec<String> {
    let Names { topk, random } = names(record);
    let ask = |equal: Equal, figure: &str, arm: &str, against: &str| Asked::of(record, equal, figure, arm, against);
    let hierarchy = ask(Equal::Steps, "loss", "dense", LLAMA);
    let chance = ask(Equal::Steps, "loss", &topk, &random);
    let (nodes, chosen) = (ask(Equal::Steps, "loss", "dense", NO_NODE), ask(Equal::Steps, "loss", &topk, NO_NODE));
    let path = ask(Equal::Updates, "loss", "path", &random);
    let rules = [topk.as_str(), "path", random.as_str()];
    let kept: Vec<Asked> = rules.iter().map(|rule| ask(Equal::Steps, "forgetting", rule, "dense")).collect();
    let learned: Vec<Asked> = rules.iter().map(|rule| ask(Equal::Steps, "loss", rule, "dense")).collect();
    let at_equal: Vec<Asked> = rules.iter().map(|rule| ask(Equal::Updates, "forgetting", rule, "dense")).collect();
    let each = |asked: &[Asked]| {
        rules.iter().zip(asked).map(|(rule, asked)| format!("{rule} {}", asked.words())).collect::<Vec<_>>().join(", ")
    };
    vec![
        format!(
            "Does the hierarchy help? {}: at equal steps the dense tree's loss against that of a LLaMA of equal parameters is {}.",
            hierarchy.verdict(),
            hierarchy.words()
        ),
        format!(
            "Does credit by norm choose better than chance? {}: at equal steps the loss of {topk} against that of {random} is {}; at equal \
             updated parameters that of path is {}; against steps that update no node at all, embedding and head alone, that of {topk} is {} and \
             that of dense updates {}.",
            chance.verdict(),
            chance.words(),
            path.words(),
            chosen.words(),
            nodes.words()
        ),
        format!(
            "Does standing still prevent forgetting? {}: at equal steps forgetting against dense updates is, for {}; but the loss is, for {}; at \
             equal updated parameters forgetting is, for {}.",
            joint(&kept),
            each(&kept),
            each(&learned),
            each(&at_equal)
        ),
    ]
}

/// One comparison on all tasks.
struct Asked<'a> {
    found: Vec<&'a K1TreeComparison>,
}

impl Asked<'_> {
    fn of<'a>(record: &'a K1TreeRecord, equal: Equal, figure: &str, arm: &str, against: &str) -> Asked<'a> {
        let is = |one: &&K1TreeComparison| {
            one.equal == equal && one.figure == figure && one.arm == arm && one.against == against
        };
        Asked { found: record.comparisons.iter().filter(is).collect() }
    }

    /// Lower is better for every figure.
    fn verdict(&self) -> &'static str {
        let count = |holds: fn(f64) -> bool| {
            self.found.iter().filter(|one| one.beyond_noise && holds(one.difference.mean)).count()
        };
        match (count(|mean| mean < 0.0), count(|mean| mean > 0.0), self.found.len()) {
            (lower, 0, all) if lower == all && all > 0 => "Yes",
            (0, higher, all) if higher == all && all > 0 => "No",
            (0, 0, _) => "These runs cannot tell",
            (_, 0, _) => "On some data",
            (0, _, _) => "No, as far as these runs can tell",
            _ => "It depends on the data",
        }
    }

    fn words(&self) -> String {
        let one = |one: &&K1TreeComparison| {
            let mean = one.difference.mean;
            let direction = if mean < 0.0 { "lower" } else { "higher" };
            let noise = if one.beyond_noise { "" } else { " (within noise)" };
            format!("{direction} by {:.3} on {}{noise}", mean.abs(), one.task)
        };
        self.found.iter().map(one).collect::<Vec<_>>().join(" and ")
    }
}

/// Of several rules together.
fn joint(asked: &[Asked]) -> &'static str {
    let all: Vec<&K1TreeComparison> = asked.iter().flat_map(|asked| asked.found.iter().copied()).collect();
    Asked { found: all }.verdict()
}

/// How sure the comparisons are.
pub fn statements(record: &K1TreeRecord) -> Vec<String> {
    let seeds = record.design.seeds.len();
    let beyond = record.comparisons.iter().filter(|one| one.beyond_noise);
    let mut said: Vec<String> = beyond.map(difference).collect();
    said.push(if seeds < 2 {
        "One seed has no noise to hold a difference against: nothing can be said. More --seeds can.".into()
    } else {
        format!(
            "All others of {} comparisons over {seeds} seeds are within noise: these have less than 5% chance that any of them claims a \
             difference that is none (paired by seed, Student's t, Holm's method).",
            record.comparisons.len()
        )
    });
    let shared = record.design.budgets.iter().filter(|budget| {
        budget.equal == Equal::Flops && Some(budget.steps_per_phase) == record.design.steps(&budget.arm, Equal::Steps)
    });
    let shared: Vec<&str> = shared.map(|budget| budget.arm.as_str()).collect();
    if !shared.is_empty() {
        said.push(format!(
            "At equal FLOPs {} have the steps that they have at equal steps: norms are known only after a whole backward pass, so a \
             choice saves the update and nothing else.",
            shared.join(", ")
        ));
    }
    said
}

fn difference(one: &K1TreeComparison) -> String {
    let Estimate { mean, ci95_low, ci95_high } = one.difference;
    let direction = if mean < 0.0 { "lower" } else { "higher" };
    let interval = match (ci95_low, ci95_high) {
        (Some(low), Some(high)) => format!(" (95%: {low:+.3} to {high:+.3})"),
        _ => String::new(),
    };
    let figure = match one.figure.as_str() {
        "loss" => "loss",
        "forgetting" => "forgetting",
        _ => "loss after coming back",
    };
    let (task, equal, arm, against) = (&one.task, one.equal.words(), &one.arm, &one.against);
    format!("On {task} at {equal}, {arm} against {against}: {figure} {direction} by {:.3}{interval}.", mean.abs())
}
