//! `--show-tree`: lists the nodes of a model's parameters, which a step can choose from.

use super::settings::{Settings, tree_of};
use crate::output;
use crate::shown::Stream as Format;
use headroom_graph::Among;
use headroom_report::training::{self as text, TreeLine};
use serde_json::json;
use std::process::ExitCode;

/// Prints the nodes that a step can choose from.
pub fn run(settings: &Settings, format: Format) -> anyhow::Result<ExitCode> {
    let tree = tree_of(&settings.model)?;
    let nodes: Vec<TreeLine> = (0..tree.nodes.len())
        .map(|node| TreeLine {
            name: tree.nodes[node].name.clone(),
            depth: tree.depth(node) as u64,
            parameters: tree.nodes[node].parameters,
        })
        .collect();
    let count = tree.choices();
    let choices = format!("{count} {}", if tree.among() == Among::Blocks { "nodes" } else { "leaves" });
    match format {
        Format::Text => output::text(&text::tree(&nodes, &choices))?,
        Format::Json => output::result(&format!("{}\n", json!({ "leaves": count, "nodes": nodes })))?,
    }
    Ok(ExitCode::SUCCESS)
}
