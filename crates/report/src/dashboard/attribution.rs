//! Which nodes selective training updated at which steps, from a run's `attribution.json`.

use serde::{Deserialize, Serialize};

pub const ATTRIBUTION_FILE: &str = "attribution.json";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attribution {
    pub nodes: Vec<String>,
    pub steps: Vec<u64>,
    /// For each step the nodes that were updated, by their place in `nodes`.
    pub chosen: Vec<Vec<usize>>,
    /// For each node how often it was updated, and how far it moved (norm of the difference).
    pub updates: Vec<u64>,
    pub moved: Vec<f64>,
}

impl Attribution {
    /// From the file's text, or a sentence that says what is wrong with it.
    pub fn read(text: &str) -> Result<Attribution, String> {
        let read: Attribution = serde_json::from_str(text).map_err(|error| format!("{ATTRIBUTION_FILE}: {error}"))?;
        let nodes = read.nodes.len();
        if read.chosen.len() != read.steps.len() {
            return Err(format!(
                "{ATTRIBUTION_FILE}: {} steps, but choices for {}",
                read.steps.len(),
                read.chosen.len()
            ));
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
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_whose_parts_do_not_fit_together_is_refused_with_the_figures() {
        let text = |steps: &str, chosen: &str, updates: &str| {
            format!(r#"{{"nodes":["a","b"],"steps":{steps},"chosen":{chosen},"updates":{updates},"moved":[0.5,1]}}"#)
        };
        let read = |steps: &str, chosen: &str, updates: &str| Attribution::read(&text(steps, chosen, updates));
        assert_eq!(read("[1,2]", "[[0],[0,1]]", "[2,1]").map(|read| read.chosen), Ok(vec![vec![0], vec![0, 1]]));
        assert_eq!(read("[1]", "[[0],[1]]", "[1,1]"), Err("attribution.json: 1 steps, but choices for 2".into()));
        assert_eq!(read("[1]", "[[2]]", "[1,1]"), Err("attribution.json: node 2 was chosen, but there are 2".into()));
        assert_eq!(read("[1]", "[[0]]", "[1]"), Err("attribution.json: 2 nodes, but 1 counts and 2 norms".into()));
        assert!(Attribution::read("{").is_err());
    }
}
