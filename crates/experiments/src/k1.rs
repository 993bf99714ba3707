//! K-1 against its controls: selective, random and dense updates from the same weights, on changing sources.

mod student;
pub mod tree;
mod trial;

pub use student::estimate;
pub use trial::{Sources, run};

use headroom_engine::{DeviceSpec, Opening};
use headroom_record::k1::{Budget, Estimate, K1Arm, K1Comparison, K1Run};
use headroom_training::optimizer::Update;
use headroom_training::program::StepConfig;

/// Settings that all runs of the experiment share.
#[derive(Clone, Debug)]
pub struct Design {
    /// Its update rule is ignored.
    pub step: StepConfig,
    pub device: DeviceSpec,
    pub opening: Opening,
    /// Number of Markov sources, trained on one after the other.
    pub sources: usize,
    /// Steps per phase when steps are held equal.
    pub steps: u64,
    /// Parameter updates per phase when those are held equal.
    pub updates: u64,
    pub eval_batches: usize,
}

/// The control that the other rules are compared with.
pub const CONTROL: Update = Update::Dense;

/// The figures that rules are compared by: name and accessor.
pub const FIGURES: [(&str, fn(&K1Run) -> f64); 3] =
    [("loss", |run| run.loss), ("forgetting", |run| run.forgetting), ("final_loss", |run| run.final_loss)];

/// Probability of any false claim among all comparisons together.
const LEVEL: f64 = 0.05;

/// Means over seeds, per rule.
pub fn arms(runs: &[K1Run], updates: &[Update]) -> Vec<K1Arm> {
    let mut arms = vec![];
    for budget in Budget::ALL {
        for update in updates.iter().map(Update::to_string) {
            let own: Vec<&K1Run> = runs.iter().filter(|run| run.budget == budget && run.update == update).collect();
            if own.is_empty() {
                continue;
            }
            let over = |figure: fn(&K1Run) -> f64| -> Estimate {
                estimate(&own.iter().map(|run| figure(run)).collect::<Vec<f64>>())
            };
            arms.push(K1Arm {
                update,
                budget,
                steps: over(|run| run.steps as f64),
                steps_per_sec: over(|run| run.steps_per_sec),
                tokens_per_sec: over(|run| run.tokens_per_sec),
                updated_share: over(|run| run.updated_share),
                loss: over(|run| run.loss),
                forgetting: over(|run| run.forgetting),
                final_loss: over(|run| run.final_loss),
            });
        }
    }
    arms
}

/// Every rule against the dense one, and every gradient-based rule against the random one, paired by seed.
pub fn comparisons(runs: &[K1Run], updates: &[Update]) -> Vec<K1Comparison> {
    let is_random = |update: &Update| update.to_string().starts_with("random");
    let lots = updates.iter().find(|update| is_random(update));
    let mut pairs: Vec<(Update, Update)> = vec![];
    for &update in updates.iter().filter(|update| **update != CONTROL) {
        pairs.push((update, CONTROL));
        pairs.extend(lots.filter(|lots| **lots != update).map(|&lots| (update, lots)));
    }
    let mut found = vec![];
    for budget in Budget::ALL {
        for (figure, read) in FIGURES {
            for (update, against) in &pairs {
                let differences = differences(runs, budget, &update.to_string(), &against.to_string(), read);
                if differences.is_empty() {
                    continue;
                }
                found.push(K1Comparison {
                    budget,
                    figure: figure.into(),
                    update: update.to_string(),
                    against: against.to_string(),
                    difference: estimate(&differences),
                    p_value: student::p_value(&differences),
                    adjusted_p_value: None,
                    beyond_noise: false,
                });
            }
        }
    }
    let p_values: Vec<Option<f64>> = found.iter().map(|one| one.p_value).collect();
    for (one, adjusted) in found.iter_mut().zip(student::adjusted(&p_values)) {
        one.adjusted_p_value = adjusted;
        one.beyond_noise = adjusted.is_some_and(|value| value < LEVEL);
    }
    found
}

/// Differences by seed, over the seeds that both have.
fn differences(runs: &[K1Run], budget: Budget, update: &str, against: &str, read: fn(&K1Run) -> f64) -> Vec<f64> {
    let of = |update: &str, seed: u64| {
        runs.iter().find(|run| run.budget == budget && run.update == update && run.seed == seed)
    };
    let mut seeds: Vec<u64> = runs.iter().map(|run| run.seed).collect();
    seeds.sort();
    seeds.dedup();
    let pair = |seed: u64| Some(read(of(update, seed)?) - read(of(against, seed)?));
    seeds.into_iter().filter_map(pair).collect()
}

/// States what the comparisons show, one sentence per pair of rules and budget, and how sure that is.
pub fn statements(runs: &[K1Run], comparisons: &[K1Comparison], seeds: usize) -> Vec<String> {
    let mut said = vec![];
    for budget in Budget::ALL {
        let mut pairs: Vec<(&str, &str)> = vec![];
        for one in comparisons.iter().filter(|one| one.budget == budget) {
            if !pairs.contains(&(one.update.as_str(), one.against.as_str())) {
                pairs.push((&one.update, &one.against));
            }
        }
        for (update, against) in pairs {
            let own =
                comparisons.iter().filter(|one| one.budget == budget && one.update == update && one.against == against);
            let (beyond, within): (Vec<&K1Comparison>, Vec<&K1Comparison>) = own.partition(|one| one.beyond_noise);
            let mut parts: Vec<String> = beyond.iter().map(|one| difference(one)).collect();
            let names: Vec<&str> = within.iter().map(|one| words(&one.figure)).collect();
            if !names.is_empty() {
                parts.push(format!("{} within noise", listed(&names)));
            }
            said.push(format!("At {}, {update} against {against}: {}.", budget.words(), parts.join("; ")));
        }
    }
    if seeds < 2 {
        said.push(
            "One seed shows no noise to compare a difference with, so nothing can be concluded: use more --seeds."
                .into(),
        );
    } else {
        said.push(format!(
            "Beyond noise means: less than 5% chance that any of these {} comparisons over {seeds} seeds claims a \
             difference that is not real (paired by seed, Student's t, Holm's method).",
            comparisons.len()
        ));
    }
    let short = runs.iter().filter(|run| !run.complete).count();
    if short > 0 {
        said.push(format!("{short} runs ended before they had updated as many parameters as the others."));
    }
    said
}

/// `a`, `a and b`, `a, b and c`.
fn listed(names: &[&str]) -> String {
    match names {
        [others @ .., last] if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    }
}

fn difference(one: &K1Comparison) -> String {
    let Estimate { mean, ci95_low, ci95_high } = one.difference;
    let direction = if mean < 0.0 { "lower" } else { "higher" };
    let interval = match (ci95_low, ci95_high) {
        (Some(low), Some(high)) => format!(" (95%: {low:+.3} to {high:+.3})"),
        _ => String::new(),
    };
    format!("{} {direction} by {:.3}{interval}", words(&one.figure), mean.abs())
}

fn words(figure: &str) -> &'static str {
    match figure {
        "loss" => "loss on the current source",
        "forgetting" => "forgetting",
        _ => "loss on all sources at the end",
    }
}

#[cfg(test)]
mod tests;
