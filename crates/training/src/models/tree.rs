//! K-1's tree, top to bottom: every node is a LLaMA block that passes its result to all of its children, and returns
//! the average of what they return.
//!
//! Letters as in [`super::llama`]. Blocks are numbered in the order in which they run: depth first, a node before its
//! children. No two nodes share a weight. Embedding, last norm and head are outside the tree: every path goes through
//! them.

use super::build::{Build, Forward, Rotation};
use super::fields::{FieldError, Fields};
use super::{ConfigError, Family, ModelConfig, llama, rope};
use headroom_graph::ops::add::Add;
use headroom_graph::ops::scale::Scale;
use headroom_graph::{GraphError, Role, ValueId};
use serde_json::{Value, json};

pub static FAMILY: Family = Family {
    name: "tree",
    title: "K-1 tree",
    architecture: "TreeForCausalLM",
    prefix: "model.",
    hf_name: llama::hf_name,
    is_redundant: |_| false,
    sized: |row| branched(row, &BRANCHING),
    check,
    forward,
    parents,
    constants: rope::constants,
    read,
    write,
};

/// The experiment's tree: a root, 4 children, 3 children of each, 2 leaves of each.
const BRANCHING: [usize; 3] = [4, 3, 2];

/// Module of the averages: outside the blocks, whose backward pass ends before theirs.
const AVERAGE: &str = "average";

/// The same model with this number of children per node, level by level.
pub fn branched(model: ModelConfig, branching: &[usize]) -> ModelConfig {
    let n_layers = nodes(branching).unwrap_or(usize::MAX);
    ModelConfig { n_layers, branching: branching.to_vec(), ..model }
}

/// Number of nodes in the tree; `None` on overflow.
fn nodes(branching: &[usize]) -> Option<usize> {
    branching.iter().rev().try_fold(1usize, |below, &children| below.checked_mul(children)?.checked_add(1))
}

fn check(config: &ModelConfig) -> Result<(), ConfigError> {
    let refuse = |what: &'static str| Err(ConfigError::NotInFamily { family: FAMILY.title, what });
    if config.branching.contains(&0) {
        return refuse("every number of --branching is at least 1");
    }
    if nodes(&config.branching) != Some(config.n_layers) {
        return refuse("the number of its blocks follows from --branching, and --n-layers is left out");
    }
    Ok(())
}

/// The parent of each block; the root has none.
fn parents(config: &ModelConfig) -> Vec<Option<usize>> {
    fn below(parents: &mut Vec<Option<usize>>, parent: Option<usize>, branching: &[usize]) {
        let own = parents.len();
        parents.push(parent);
        if let [children, rest @ ..] = branching {
            (0..*children).for_each(|_| below(parents, Some(own), rest));
        }
    }
    let mut parents = vec![];
    below(&mut parents, None, &config.branching);
    parents
}

fn forward(build: &mut Build) -> Result<Forward, GraphError> {
    let (input_ids, targets) = build.inputs();
    let rotation = build.rotation();
    let (x, table) = build.embedding("embed_tokens", input_ids)?; // [t, d]
    let branching = build.config.branching.clone();
    let x = subtree(build, &mut 0, &branching, x, rotation)?; // [t, d]
    let normed = build.rms_norm("norm", Role::Norm, build.config.hidden_dim, x)?;
    build.head_and_loss(normed, table, targets)
}

/// Adds a node and everything below it: returns the block's result at a leaf, otherwise the average over the children.
fn subtree(
    build: &mut Build,
    next: &mut usize,
    branching: &[usize],
    x: ValueId,
    rotation: Rotation,
) -> Result<ValueId, GraphError> {
    let own = llama::block(build, *next, x, rotation)?; // [t, d]
    *next += 1;
    let Some((&children, below)) = branching.split_first() else { return Ok(own) };
    let mut sum = subtree(build, next, below, own, rotation)?;
    for _ in 1..children {
        let child = subtree(build, next, below, own, rotation)?;
        build.enter(AVERAGE, Role::Residual);
        sum = build.add(Add {}, &[sum, child])?;
    }
    if children == 1 {
        return Ok(sum);
    }
    build.enter(AVERAGE, Role::Residual);
    build.add(Scale { factor: 1.0 / children as f64 }, &[sum])
}

/// LLaMA's entries, with the branching in place of the number of layers.
fn read(fields: &Fields) -> Result<ModelConfig, FieldError> {
    let size = |value: &Value| value.as_u64().filter(|size| (1..=1000).contains(size)).map(|size| size as usize);
    let branching = fields.get(KEY).and_then(Value::as_array).and_then(|list| list.iter().map(size).collect());
    let branching: Vec<usize> =
        branching.ok_or_else(|| fields.refuse(KEY, "and it must be a list of numbers from 1 to 1000"))?;
    let model = ModelConfig { family: &FAMILY, ..llama::read(fields)? };
    let layers = model.n_layers;
    let model = branched(model, &branching);
    if model.n_layers != layers {
        return Err(fields.refuse("num_hidden_layers", "which is not the number of nodes of `branching`"));
    }
    Ok(model)
}

const KEY: &str = "branching";

fn write(config: &ModelConfig) -> Value {
    let mut entries = llama::write(config);
    entries[KEY] = json!(config.branching);
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::{Size, forward};
    use headroom_graph::Graph;

    fn tree_of(branching: &[usize]) -> ModelConfig {
        branched(Size::named("nano").unwrap().model_of(&FAMILY), branching)
    }

    #[test]
    fn nodes_run_before_their_children_and_know_their_parents() {
        assert_eq!(
            parents(&tree_of(&[2, 2])),
            [None, Some(0), Some(1), Some(1), Some(0), Some(4), Some(4)],
            "a root, two children, two leaves of each"
        );
        assert_eq!(tree_of(&BRANCHING).n_layers, 1 + 4 + 12 + 24);
        assert_eq!((tree_of(&[]).n_layers, parents(&tree_of(&[]))), (1, vec![None]));
    }

    #[test]
    fn a_tree_of_one_child_each_is_a_llama() {
        let graph = |model: &ModelConfig| {
            let mut graph = Graph::new();
            forward(&mut graph, model, 2, 8).unwrap();
            graph.to_string()
        };
        let chain = tree_of(&[1, 1, 1]);
        let llama = ModelConfig { n_layers: 4, ..Size::named("nano").unwrap().model() };
        assert_eq!(graph(&chain), graph(&llama));
    }

    #[test]
    fn a_tree_has_its_blocks_and_averages_and_nothing_else() {
        let mut graph = Graph::new();
        forward(&mut graph, &tree_of(&[2, 2]), 2, 8).unwrap();
        for block in 0..7 {
            assert_eq!(graph.nodes().iter().filter(|node| node.block() == Some(block)).count(), 18);
        }
        let averages = graph.nodes().iter().filter(|node| &*node.module == AVERAGE).count();
        assert_eq!((averages, graph.nodes().len()), (3 * 2, 7 * 18 + 6 + 4));
    }

    #[test]
    fn numbers_that_make_no_tree_are_refused() {
        let check = |change: fn(&mut ModelConfig), want: &str| {
            let mut config = tree_of(&[2, 2]);
            change(&mut config);
            let error = config.validate(2, 8).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        };
        check(|config| config.branching = vec![2, 0], "at least 1");
        check(|config| config.n_layers = 3, "--n-layers is left out");
        check(|config| *config = branched(config.clone(), &[1 << 40, 1 << 40]), "--branching");
        check(|config| *config = branched(config.clone(), &[40, 40]), "1000");
    }
}
