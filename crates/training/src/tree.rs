//! The model as a tree: the model, its layers, attention and feed-forward of each, and their projections; norms,
//! embedding and head are nodes of their own. A leaf is one parameter. If the blocks themselves form a tree, that tree
//! is used, and a block is one node.

use headroom_graph::Among;
use headroom_graph::role::block_of;
use std::ops::Range;

/// Nodes in model order, each before its children; the root is first.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    pub nodes: Vec<TreeNode>,
    /// The node of each parameter: its own leaf, or the block that it is chosen with.
    pub leaves: Vec<usize>,
    /// Path and size of each parameter.
    parameters: Vec<(String, u64)>,
    /// The parent of each block, if blocks are nodes.
    parents: Vec<Option<usize>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TreeNode {
    /// Full module path: `layers.3.self_attn.q_proj`.
    pub name: String,
    /// `None` for the root.
    pub parent: Option<usize>,
    pub parameters: u64,
}

/// Parameters that a step updates together or not at all.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    pub node: usize,
    pub name: String,
    pub parameters: u64,
    /// Indices into the model's parameters.
    pub members: Range<usize>,
}

impl Tree {
    /// Builds the tree from the paths and sizes of the parameters, in model order, and the parent of each block
    /// ([`Family::parents`](crate::models::Family)).
    pub fn of(parameters: impl IntoIterator<Item = (impl AsRef<str>, usize)>, parents: Vec<Option<usize>>) -> Tree {
        let root = TreeNode { name: "model".into(), parent: None, parameters: 0 };
        let mut tree = Tree { nodes: vec![root], leaves: vec![], parameters: vec![], parents };
        for (parameter, elements) in parameters {
            let (parameter, elements) = (parameter.as_ref(), elements as u64);
            let path = tree.path(parameter);
            let mut at = 0;
            tree.nodes[at].parameters += elements;
            for (depth, name) in path.iter().enumerate() {
                let is_leaf = tree.parents.is_empty() && depth + 1 == path.len();
                let known = |node: &TreeNode| !is_leaf && node.parent == Some(at) && node.name == *name;
                at = tree.nodes.iter().rposition(known).unwrap_or_else(|| {
                    tree.nodes.push(TreeNode { name: name.clone(), parent: Some(at), parameters: 0 });
                    tree.nodes.len() - 1
                });
                tree.nodes[at].parameters += elements;
            }
            tree.leaves.push(at);
            tree.parameters.push((parameter.into(), elements));
        }
        tree
    }

    pub fn among(&self) -> Among {
        if self.parents.is_empty() { Among::Parameters } else { Among::Blocks }
    }

    /// Number of nodes that a rule chooses from.
    pub fn choices(&self) -> usize {
        match self.among() {
            Among::Parameters => self.leaves.len(),
            Among::Blocks => self.parents.len(),
        }
    }

    /// Paths of the parameters.
    pub fn leaf_names(&self) -> Vec<String> {
        self.parameters.iter().map(|(path, _)| path.clone()).collect()
    }

    /// Groups of parameters that are updated together or not at all, in model order.
    pub fn units(&self) -> Vec<Unit> {
        let mut units: Vec<Unit> = vec![];
        for (parameter, (&leaf, (_, elements))) in self.leaves.iter().zip(&self.parameters).enumerate() {
            match units.last_mut() {
                Some(last) if last.node == leaf => {
                    last.parameters += elements;
                    last.members.end = parameter + 1;
                }
                _ => units.push(Unit {
                    node: leaf,
                    name: self.nodes[leaf].name.clone(),
                    parameters: *elements,
                    members: parameter..parameter + 1,
                }),
            }
        }
        units
    }

    /// The tree as the choice kernel reads it: `[leaves, 3]`, one row per parameter. A row is branch, part and parent
    /// of a leaf, or block, parent and level if blocks are nodes.
    pub fn places(&self) -> Vec<i32> {
        match self.among() {
            Among::Parameters => self.leaves.iter().flat_map(|&leaf| self.place_of_leaf(leaf)).collect(),
            Among::Blocks => self.parameters.iter().flat_map(|(path, _)| self.place_of_block(path)).collect(),
        }
    }

    fn place_of_leaf(&self, leaf: usize) -> [i32; 3] {
        let mut up: Vec<usize> = std::iter::successors(Some(leaf), |&node| self.nodes[node].parent).collect();
        up.reverse(); // the root first
        let (branch, part) = (up[1], up[2.min(up.len() - 1)]);
        [branch, part, self.nodes[leaf].parent.unwrap_or(0)].map(|node| node as i32)
    }

    /// Blocks are counted from 1 here: 0 means no block, or no parent.
    fn place_of_block(&self, path: &str) -> [i32; 3] {
        let Some(block) = block_of(path) else { return [0; 3] };
        let parent = self.parents[block].map_or(0, |parent| parent + 1);
        [block + 1, parent, self.above(block).count()].map(|number| number as i32)
    }

    /// The ancestors of a block, nearest first.
    fn above(&self, block: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.parents[block], |&block| self.parents[block])
    }

    /// The nodes on the path from below the root to a parameter's node.
    fn path(&self, parameter: &str) -> Vec<String> {
        match block_of(parameter) {
            Some(block) if !self.parents.is_empty() => {
                let mut up: Vec<usize> = [block].into_iter().chain(self.above(block)).collect();
                up.reverse();
                up.into_iter().map(|block| format!("layers.{block}")).collect()
            }
            _ => path(parameter),
        }
    }

    /// Distance of a node from the root.
    pub fn depth(&self, node: usize) -> usize {
        std::iter::successors(self.nodes[node].parent, |&node| self.nodes[node].parent).count()
    }
}

/// Names on the path to a parameter's own leaf, at most three levels.
fn path(leaf: &str) -> Vec<String> {
    let words: Vec<&str> = leaf.split('.').collect();
    let ends = match (block_of(leaf), words.len()) {
        (Some(_), all) if all > 3 => vec![2, 3, all],
        (Some(_), 3) => vec![2, 3],
        (_, all) => vec![all],
    };
    ends.into_iter().map(|end| words[..end].join(".")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Tree {
        let parameters = [
            ("embed_tokens", 8),
            ("layers.0.input_layernorm", 2),
            ("layers.0.self_attn.q_proj", 4),
            ("layers.0.self_attn.o_proj", 4),
            ("layers.0.mlp.up_proj", 6),
            ("norm", 2),
        ];
        Tree::of(parameters, vec![])
    }

    #[test]
    fn a_node_has_the_parameters_of_all_below_it() {
        let shown: Vec<(String, u64)> = small().nodes.iter().map(|node| (node.name.clone(), node.parameters)).collect();
        let wanted = [
            ("model", 26),
            ("embed_tokens", 8),
            ("layers.0", 16),
            ("layers.0.input_layernorm", 2),
            ("layers.0.self_attn", 8),
            ("layers.0.self_attn.q_proj", 4),
            ("layers.0.self_attn.o_proj", 4),
            ("layers.0.mlp", 6),
            ("layers.0.mlp.up_proj", 6),
            ("norm", 2),
        ];
        assert_eq!(shown, wanted.map(|(name, count)| (name.to_string(), count)));
    }

    #[test]
    fn a_leaf_knows_its_branch_its_part_and_its_parent() {
        let places = small().places();
        let rows: Vec<&[i32]> = places.chunks_exact(3).collect();
        // Embedding, norm of a layer, q, o, up, last norm.
        assert_eq!(rows, [[1, 1, 0], [2, 3, 2], [2, 4, 4], [2, 4, 4], [2, 7, 7], [9, 9, 0]]);
        assert_eq!([0, 1, 2, 4, 5].map(|node| small().depth(node)), [0, 1, 1, 2, 3]);
    }

    /// A root with two children, each with parameters of their own, the second with a child.
    fn of_blocks() -> Tree {
        let parameters = [
            ("embed_tokens", 8),
            ("layers.0.norm", 1),
            ("layers.0.mlp.up_proj", 2),
            ("layers.1.norm", 3),
            ("layers.1.mlp.up_proj", 4),
            ("layers.2.norm", 5),
            ("layers.3.norm", 6),
            ("norm", 7),
        ];
        Tree::of(parameters, vec![None, Some(0), Some(0), Some(2)])
    }

    #[test]
    fn blocks_are_nodes_below_their_parents_and_chosen_whole() {
        let tree = of_blocks();
        let shown: Vec<(&str, usize, u64)> = (0..tree.nodes.len())
            .map(|node| (&*tree.nodes[node].name, tree.depth(node), tree.nodes[node].parameters))
            .collect();
        let wanted = [
            ("model", 0, 36),
            ("embed_tokens", 1, 8),
            ("layers.0", 1, 21),
            ("layers.1", 2, 7),
            ("layers.2", 2, 11),
            ("layers.3", 3, 6),
            ("norm", 1, 7),
        ];
        assert_eq!(shown, wanted);
        let units: Vec<(String, u64, Range<usize>)> =
            tree.units().into_iter().map(|unit| (unit.name, unit.parameters, unit.members)).collect();
        let wanted = [("embed_tokens", 8, 0..1), ("layers.0", 3, 1..3), ("layers.1", 7, 3..5), ("layers.2", 5, 5..6)];
        assert_eq!(units[..4], wanted.map(|(name, own, members)| (name.to_string(), own, members)));
        assert_eq!((tree.choices(), tree.units().len(), tree.among()), (4, 6, Among::Blocks));
    }

    #[test]
    fn a_parameter_knows_its_block_the_parent_and_the_level() {
        let places = of_blocks().places();
        let rows: Vec<&[i32]> = places.chunks_exact(3).collect();
        assert_eq!(rows, [[0, 0, 0], [1, 0, 0], [1, 0, 0], [2, 1, 1], [2, 1, 1], [3, 1, 1], [4, 3, 2], [0, 0, 0]]);
    }
}
