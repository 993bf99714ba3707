//! `attribution.json`: which nodes of the model were updated at which steps, how often, and how far each moved.

use crate::SCHEMA_VERSION;
use crate::provenance::{Origin, Provenance};
use serde::{Deserialize, Serialize};
use std::ops::Range;

pub const ATTRIBUTION_FILE: &str = "attribution.json";

/// Nodes are the leaves of the model's tree. Files from other writers may lack the keys after the first five.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AttributionRecord {
    #[serde(default)]
    pub schema_version: u32,
    pub nodes: Vec<String>,
    /// The steps listed individually: all steps of a short run, evenly spaced ones of a long run.
    pub steps: Vec<u64>,
    /// For each of these steps, the nodes that were updated, as indices into `nodes`.
    pub chosen: Vec<Vec<usize>>,
    /// For each node, the number of steps that updated it, out of all steps.
    pub updates: Vec<u64>,
    /// Distance that each node moved (norm of the difference from the start); `None` if it is not finite.
    pub moved: Vec<Option<f64>>,
    /// The update rule as flags name it, and the seed of its random draws.
    #[serde(default)]
    pub update: String,
    #[serde(default)]
    pub seed: u64,
    /// Parameters of each node.
    #[serde(default)]
    pub parameters: Vec<u64>,
    /// For each of the steps, the share of a full step that each chosen node took, in the order of `chosen`.
    #[serde(default)]
    pub shares: Vec<Vec<f32>>,
    /// For each of the steps, the gradient norm of every node; `None` if it is not finite.
    #[serde(default)]
    pub norms: Vec<Vec<Option<f32>>>,
    /// All steps of the run, listed individually or not.
    #[serde(default)]
    pub total_steps: u64,
    /// Number of parameter updates (a parameter updated at two steps counts twice), and that as a share of updating all
    /// parameters at every step.
    #[serde(default)]
    pub updated_parameters: u64,
    #[serde(default)]
    pub updated_share: f64,
    /// Nodes that the latest steps worked on, most first, and the same as a sentence.
    #[serde(default)]
    pub working_on: Vec<WorkedOn>,
    #[serde(default)]
    pub working_on_now: String,
    #[serde(default)]
    pub provenance: Provenance,
}

/// A node's part in a range of steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkedOn {
    pub node: String,
    /// Steps that updated it, out of `steps`.
    pub updated: u64,
    pub steps: u64,
    /// Share of the squared gradient that these steps followed: squared norm times the share of the step, over the sum
    /// for all updated nodes.
    pub share: f64,
}

/// One step's choice: for every node, the share of the step that it took (0: not updated) and its gradient norm.
#[derive(Clone, Debug, PartialEq)]
pub struct StepChoice {
    pub step: u64,
    pub shares: Vec<f32>,
    pub norms: Vec<f32>,
}

/// Number of latest steps that count as "now".
const NOW: usize = 20;

/// Most nodes that a sentence names, and the smallest share worth naming.
const MOST_NAMED: usize = 3;
const LEAST_NAMED: f64 = 0.05;

impl AttributionRecord {
    /// Adds the individual steps, the distance each node moved, everything derived from them, and the provenance.
    pub fn with_choices(mut self, choices: &[StepChoice], moved: &[f64]) -> AttributionRecord {
        let chosen = |choice: &StepChoice| -> Vec<usize> {
            (0..choice.shares.len()).filter(|&node| choice.shares[node] > 0.0).collect()
        };
        let shares = |choice: &StepChoice| choice.shares.iter().copied().filter(|share| *share > 0.0).collect();
        let all = self.parameters.iter().sum::<u64>() as f64 * self.total_steps as f64;
        let last = choices.len().saturating_sub(NOW)..choices.len();
        self.schema_version = SCHEMA_VERSION;
        self.steps = choices.iter().map(|choice| choice.step).collect();
        self.chosen = choices.iter().map(chosen).collect();
        self.shares = choices.iter().map(shares).collect();
        self.norms = choices.iter().map(|choice| choice.norms.iter().map(|norm| short(*norm)).collect()).collect();
        self.moved = moved.iter().map(|moved| moved.is_finite().then_some(*moved)).collect();
        self.updated_share = if all > 0.0 { self.updated_parameters as f64 / all } else { 0.0 };
        self.working_on = worked_on(&self.nodes, &choices[last.clone()]);
        self.working_on_now = sentence(&self.nodes, choices, last, &self.working_on);
        self.provenance = Provenance::of(&[
            ("steps", Origin::Measured),
            ("chosen", Origin::Measured),
            ("shares", Origin::Measured),
            ("norms", Origin::Measured),
            ("updates", Origin::Measured),
            ("moved", Origin::Measured),
            ("total_steps", Origin::Measured),
            ("updated_parameters", Origin::Measured),
            ("updated_share", Origin::Computed),
            ("working_on", Origin::Computed),
            ("parameters", Origin::Computed),
            ("seed", Origin::Assumed),
        ]);
        self
    }

    /// Parses the file's text; the error is a sentence that says what is wrong with it.
    pub fn read(text: &str) -> Result<AttributionRecord, String> {
        let read: AttributionRecord =
            serde_json::from_str(text).map_err(|error| format!("{ATTRIBUTION_FILE}: {error}"))?;
        let (nodes, steps) = (read.nodes.len(), read.steps.len());
        if read.chosen.len() != steps {
            return Err(format!("{ATTRIBUTION_FILE}: {steps} steps, but choices for {}", read.chosen.len()));
        }
        if read.updates.len() != nodes || read.moved.len() != nodes {
            return Err(format!(
                "{ATTRIBUTION_FILE}: {nodes} nodes, but {} counts and {} norms",
                read.updates.len(),
                read.moved.len()
            ));
        }
        if let Some(node) = read.chosen.iter().flatten().find(|node| **node >= nodes) {
            return Err(format!("{ATTRIBUTION_FILE}: node {node} was chosen, but there are {nodes}"));
        }
        let fits = |lengths: Vec<usize>, wanted: Vec<usize>| lengths.is_empty() || lengths == wanted;
        let chosen = read.chosen.iter().map(Vec::len).collect();
        if !fits(read.shares.iter().map(Vec::len).collect(), chosen)
            || !fits(read.norms.iter().map(Vec::len).collect(), vec![nodes; steps])
        {
            return Err(format!("{ATTRIBUTION_FILE}: shares or norms do not fit the steps and nodes"));
        }
        if !read.parameters.is_empty() && read.parameters.len() != nodes {
            return Err(format!("{ATTRIBUTION_FILE}: {nodes} nodes, but parameters of {}", read.parameters.len()));
        }
        Ok(read)
    }
}

/// Nodes that these steps worked on, most first; nodes that were never updated are left out.
pub fn worked_on(nodes: &[String], choices: &[StepChoice]) -> Vec<WorkedOn> {
    let followed = |choice: &StepChoice, node: usize| {
        f64::from(choice.shares[node]) * f64::from(choice.norms[node]) * f64::from(choice.norms[node])
    };
    let total: f64 = choices.iter().flat_map(|choice| (0..nodes.len()).map(|node| followed(choice, node))).sum();
    let mut parts: Vec<WorkedOn> = nodes
        .iter()
        .enumerate()
        .map(|(node, name)| WorkedOn {
            node: name.clone(),
            updated: choices.iter().filter(|choice| choice.shares[node] > 0.0).count() as u64,
            steps: choices.len() as u64,
            share: match total.is_finite() && total > 0.0 {
                true => choices.iter().map(|choice| followed(choice, node)).sum::<f64>() / total,
                false => 0.0,
            },
        })
        .filter(|part| part.updated > 0)
        .collect();
    parts.sort_by(|left, right| right.share.total_cmp(&left.share));
    parts
}

fn sentence(nodes: &[String], choices: &[StepChoice], last: Range<usize>, now: &[WorkedOn]) -> String {
    let Some(most) = now.first() else { return "Nothing was updated.".into() };
    let named = |part: &WorkedOn| {
        let percent = 100.0 * part.share;
        format!("{} (updated at {} of {} steps, {percent:.0}%)", part.node, part.updated, part.steps)
    };
    let others = now[1..].iter().take(MOST_NAMED - 1).filter(|part| part.share >= LEAST_NAMED);
    let others: Vec<String> = others.map(named).collect();
    let steps = |range: Range<usize>| match (choices.get(range.start), choices[range].last()) {
        (Some(first), Some(last)) if first.step == last.step => format!("Step {}", first.step),
        (Some(first), Some(last)) => format!("Steps {} to {}", first.step, last.step),
        _ => String::new(),
    };
    let mut text = format!("{} worked mostly on {}", steps(last.clone()), named(most));
    if !others.is_empty() {
        text += &format!(", then on {}", others.join(" and "));
    }
    text += "; percentages are of the squared gradient that was followed.";
    // Mention the first steps if they worked mostly on another node.
    let before = 0..last.start.min(NOW);
    let earlier = worked_on(nodes, &choices[before.clone()]);
    if let Some(first) = earlier.first().filter(|first| first.node != most.node) {
        text += &format!(" {} worked mostly on {}.", steps(before), first.node);
    }
    text
}

/// Four digits are enough to look at, and make the file a third of the size.
fn short(norm: f32) -> Option<f32> {
    format!("{norm:.3e}").parse().ok().filter(|norm: &f32| norm.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provenance::check_provenance;

    fn choices(steps: u64) -> Vec<StepChoice> {
        let choice = |step: u64| StepChoice {
            step,
            shares: if step <= 25 { vec![1.0, 0.0, 0.15] } else { vec![0.0, 1.0, 0.15] },
            norms: vec![3.0, 4.0, 1.0],
        };
        (1..=steps).map(choice).collect()
    }

    fn of(choices: &[StepChoice]) -> AttributionRecord {
        AttributionRecord {
            update: "path".into(),
            seed: 42,
            nodes: ["embed_tokens", "lm_head", "norm"].map(String::from).to_vec(),
            parameters: vec![100, 100, 10],
            total_steps: choices.len() as u64,
            updates: vec![25, 15, 40],
            updated_parameters: 40 * 110,
            ..AttributionRecord::default()
        }
        .with_choices(choices, &[0.5, 0.25, f64::INFINITY])
    }

    #[test]
    fn what_is_not_a_number_is_left_out_and_the_file_still_reads() {
        let mut choices = choices(2);
        choices[0].norms[1] = f32::NAN;
        let record = of(&choices);
        assert_eq!((record.norms[0][1], record.moved[2]), (None, None));
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(AttributionRecord::read(&text).map(|read| read.norms), Ok(record.norms));
    }

    #[test]
    fn the_newest_steps_say_what_the_model_works_on() {
        let record = of(&choices(40));
        // Steps 21 to 40: five follow 9 of the embedding, fifteen follow 16 of the head, and each follows 0.15 of the
        // norm.
        let total = 5.0 * 9.0 + 15.0 * 16.0 + 20.0 * f64::from(0.15f32);
        assert_eq!(record.working_on[0].node, "lm_head");
        assert!((record.working_on[0].share - 240.0 / total).abs() < 1e-12);
        assert_eq!(
            record.working_on_now,
            "Steps 21 to 40 worked mostly on lm_head (updated at 15 of 20 steps, 83%), then on embed_tokens (updated at 5 \
             of 20 steps, 16%); percentages are of the squared gradient that was followed. Steps 1 to 20 worked mostly on \
             embed_tokens."
        );
        assert!((record.updated_share - 110.0 / 210.0).abs() < 1e-12);
    }

    #[test]
    fn every_figure_has_its_origin_and_the_file_reads_back() {
        let record = of(&choices(3));
        let value = serde_json::to_value(&record).unwrap();
        check_provenance(&value).unwrap();
        assert_eq!(AttributionRecord::read(&value.to_string()), Ok(record));
    }

    #[test]
    fn a_file_whose_parts_do_not_fit_together_is_refused_with_the_figures() {
        let text = |steps: &str, chosen: &str, updates: &str| {
            format!(r#"{{"nodes":["a","b"],"steps":{steps},"chosen":{chosen},"updates":{updates},"moved":[0.5,1]}}"#)
        };
        let read = |steps: &str, chosen: &str, updates: &str| AttributionRecord::read(&text(steps, chosen, updates));
        assert_eq!(read("[1,2]", "[[0],[0,1]]", "[2,1]").map(|read| read.chosen), Ok(vec![vec![0], vec![0, 1]]));
        assert_eq!(read("[1]", "[[0],[1]]", "[1,1]"), Err("attribution.json: 1 steps, but choices for 2".into()));
        assert_eq!(read("[1]", "[[2]]", "[1,1]"), Err("attribution.json: node 2 was chosen, but there are 2".into()));
        assert_eq!(read("[1]", "[[0]]", "[1]"), Err("attribution.json: 2 nodes, but 1 counts and 2 norms".into()));
        assert!(AttributionRecord::read("{").is_err());
    }
}
