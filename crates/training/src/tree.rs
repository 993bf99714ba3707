//! The model as a tree: the model, its layers, attention and feed-forward of each, and their projections; norms, embedding and
//! head are nodes of their own. A leaf is one parameter.

use headroom_graph::role::block_of;

/// Nodes in the order of the model, each before its children; the root is the first.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    pub nodes: Vec<TreeNode>,
    /// The node of each leaf, in the order of the parameters.
    pub leaves: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TreeNode {
    /// Whole path, as modules are named: `layers.3.self_attn.q_proj`.
    pub name: String,
    /// None for the root.
    pub parent: Option<usize>,
    pub parameters: u64,
}

impl Tree {
    /// From the paths of the leaves and their sizes, in the order of the model.
    pub fn of(parameters: impl IntoIterator<Item = (impl AsRef<str>, usize)>) -> Tree {
        let root = TreeNode { name: "model".into(), parent: None, parameters: 0 };
        let mut tree = Tree { nodes: vec![root], leaves: vec![] };
        for (leaf, elements) in parameters {
            let path = path(leaf.as_ref());
            let mut at = 0;
            tree.nodes[at].parameters += elements as u64;
            for (depth, name) in path.iter().enumerate() {
                let is_leaf = depth + 1 == path.len();
                let known = |node: &TreeNode| !is_leaf && node.parent == Some(at) && node.name == *name;
                at = tree.nodes.iter().rposition(known).unwrap_or_else(|| {
                    tree.nodes.push(TreeNode { name: name.clone(), parent: Some(at), parameters: 0 });
                    tree.nodes.len() - 1
                });
                tree.nodes[at].parameters += elements as u64;
            }
            tree.leaves.push(at);
        }
        tree
    }

    /// Names of the leaves, in the order of the parameters.
    pub fn leaf_names(&self) -> Vec<String> {
        self.leaves.iter().map(|&leaf| self.nodes[leaf].name.clone()).collect()
    }

    pub fn leaf_parameters(&self) -> Vec<u64> {
        self.leaves.iter().map(|&leaf| self.nodes[leaf].parameters).collect()
    }

    /// For each leaf its branch, part and parent: `[leaves, 3]`, as the choice on a device reads the tree.
    pub fn places(&self) -> Vec<i32> {
        let place = |&leaf: &usize| {
            let mut up: Vec<usize> = std::iter::successors(Some(leaf), |&node| self.nodes[node].parent).collect();
            up.reverse(); // the root first
            let (branch, part) = (up[1], up[2.min(up.len() - 1)]);
            [branch, part, self.nodes[leaf].parent.unwrap_or(0)].map(|node| node as i32)
        };
        self.leaves.iter().flat_map(place).collect()
    }

    /// How far below the root a node is.
    pub fn depth(&self, node: usize) -> usize {
        std::iter::successors(self.nodes[node].parent, |&node| self.nodes[node].parent).count()
    }
}

/// The nodes from below the root to a leaf, three at most.
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
        Tree::of([
            ("embed_tokens", 8),
            ("layers.0.input_layernorm", 2),
            ("layers.0.self_attn.q_proj", 4),
            ("layers.0.self_attn.o_proj", 4),
            ("layers.0.mlp.up_proj", 6),
            ("norm", 2),
        ])
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
}
