//! Conclusions from the runs on a tree: means, differences paired by seed, and a plain sentence per question.

use super::super::LEVEL;
use super::super::student::{adjusted, estimate, p_value};
use headroom_record::k1::Estimate;
use headroom_record::k1_tree::{Equal, K1TreeComparison, K1TreeMean, K1TreeRecord, K1TreeRun, LLAMA, NO_NODE};

type Figure = fn(&K1TreeRun) -> f64;

/// The figures that arms are compared by.
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

/// Every rule against dense updates, the norm-based rules against random choice, and the dense tree against the LLaMA.
/// Runs shared by two budgets are compared once.
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

/// Names of the arms that contain a number.
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

/// One sentence per question.
pub fn answers(record: &K1TreeRecord) -> Vec<String> {
    let Names { topk, random } = names(record);
    let ask = |figure: &str, arm: &str, against: &str| Asked::of(record, Equal::Steps, figure, arm, against);
    let hierarchy = ask("loss", "dense", LLAMA);
    // Both update equally much per step, so what is held equal only decides how many steps they get.
    let chance = [Equal::Steps, Equal::Updates].map(|equal| Asked::of(record, equal, "loss", &topk, &random));
    let rules = [topk.as_str(), "path", random.as_str()];
    let kept: Vec<Asked> = rules.iter().map(|rule| ask("forgetting", rule, "dense")).collect();
    let each: Vec<String> =
        rules.iter().zip(&kept).map(|(rule, asked)| format!("for {rule} {}", asked.words())).collect();
    vec![
        format!(
            "Does the hierarchy help? {}: at equal steps the loss of the dense tree minus that of a LLaMA of equal size is {}.",
            hierarchy.verdict(),
            hierarchy.words()
        ),
        format!(
            "Does credit by norm choose better than chance? {}: at equal steps the loss of {topk} minus that of \
             {random} is {}, and at equal updated parameters {}.",
            joint(&chance),
            chance[0].words(),
            chance[1].words()
        ),
        format!(
            "Does standing still prevent forgetting? {}: at equal steps, forgetting minus that of dense updates is {}.",
            joint(&kept),
            each.join(", ")
        ),
    ]
}

/// One comparison over all tasks.
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
            let noise = if one.beyond_noise { "" } else { " (within noise)" };
            format!("{:+.3} on {}{noise}", one.difference.mean, one.task)
        };
        self.found.iter().map(one).collect::<Vec<_>>().join(" and ")
    }
}

/// The joint verdict of several comparisons.
fn joint(asked: &[Asked]) -> &'static str {
    let all: Vec<&K1TreeComparison> = asked.iter().flat_map(|asked| asked.found.iter().copied()).collect();
    Asked { found: all }.verdict()
}

/// States how certain the comparisons are.
pub fn statements(record: &K1TreeRecord) -> Vec<String> {
    let seeds = record.design.seeds.len();
    let beyond = record.comparisons.iter().filter(|one| one.beyond_noise);
    let mut said: Vec<String> = beyond.map(difference).collect();
    said.push(if seeds < 2 {
        "One seed shows no noise to compare a difference with, so nothing can be concluded: use more --seeds.".into()
    } else {
        format!(
            "All other comparisons, of {} over {seeds} seeds, are within noise: the chance that any difference listed \
             here is not real is below 5% (paired by seed, Student's t, Holm's method).",
            record.comparisons.len()
        )
    });
    let nodes = Asked::of(record, Equal::Steps, "loss", "dense", NO_NODE);
    said.push(format!(
        "Steps that update no node, only embedding, last norm and head: the loss of dense updates minus theirs is {}{}.",
        nodes.words(),
        if nodes.verdict() == "Yes" {
            ""
        } else {
            ", so a choice among the nodes can hardly show in the loss of runs this short"
        }
    ));
    let most = record.design.budgets.iter().filter(|budget| budget.equal == Equal::Flops && budget.arm != LLAMA);
    if let (Some(most), Some(steps)) =
        (most.map(|budget| budget.steps_per_phase).max(), record.design.steps("dense", Equal::Steps))
    {
        said.push(format!(
            "At equal FLOPs no rule has more than {most} steps where dense updates have {steps}: norms are known only \
             after a whole backward pass, so a choice saves only the update."
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
