//! The choice of parameters that a step updates: the rules, and the numbers that all devices have to agree on.

use std::fmt;
use std::str::FromStr;

/// How the nodes that a step updates are chosen in the model's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// As many with the largest gradient norm.
    TopK(usize),
    /// Every one: the same bytes as without a choice.
    All,
    /// From the root to the child with the largest norm, down to a leaf; those near it take a part of the step.
    Path,
    /// As many by lot: the control.
    Random(usize),
}

/// The units that a rule chooses among.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Among {
    /// Every parameter is a leaf of the tree that the modules make.
    #[default]
    Parameters,
    /// Blocks that are nodes of a tree of their own. A block is chosen whole, and everything outside of the blocks is always updated.
    Blocks,
}

impl fmt::Display for Among {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(match self {
            Among::Parameters => "parameters",
            Among::Blocks => "blocks",
        })
    }
}

impl FromStr for Among {
    type Err = String;

    fn from_str(text: &str) -> Result<Among, String> {
        let found = [Among::Parameters, Among::Blocks].into_iter().find(|among| among.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is neither parameters nor blocks"))
    }
}

/// Shares of the step: the leaf at the end of the path, units under the same parent, and others of its layer.
pub const FULL: f32 = 1.0;
pub const SIBLING: f32 = 0.15;
pub const SAME_LAYER: f32 = 0.05;

impl Rule {
    /// How many it chooses, where that is known beforehand.
    pub fn count(self) -> Option<usize> {
        match self {
            Rule::TopK(count) | Rule::Random(count) => Some(count),
            Rule::All | Rule::Path => None,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Rule::TopK(count) => write!(out, "topk:{count}"),
            Rule::All => out.write_str("topk:all"),
            Rule::Path => out.write_str("path"),
            Rule::Random(count) => write!(out, "random:{count}"),
        }
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Rule, String> {
        let count = |digits: &str| match digits.parse::<usize>() {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(format!("`{digits}` in `{text}` is not a number of nodes from 1 up")),
        };
        match text.split_once(':') {
            None if text == "path" => Ok(Rule::Path),
            Some(("topk", "all")) => Ok(Rule::All),
            Some(("topk", digits)) => Ok(Rule::TopK(count(digits)?)),
            Some(("random", digits)) => Ok(Rule::Random(count(digits)?)),
            _ => Err(format!("`{text}` is not one of topk:K, topk:all, path, random:K")),
        }
    }
}

/// `1 - beta1^t` and `sqrt(1 - beta2^t)` of a parameter's own step count `t`, from 1 up: what corrects the bias of moments
/// that start at zero. Powers by squaring, so that every device gets the same bits.
pub fn bias_corrections(beta1: f64, beta2: f64, t: u64) -> [f32; 2] {
    [(1.0 - power(beta1, t)) as f32, (1.0 - power(beta2, t)).sqrt() as f32]
}

fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    loop {
        if exponent & 1 == 1 {
            result *= base;
        }
        exponent >>= 1;
        if exponent == 0 {
            return result;
        }
        base *= base;
    }
}

/// A leaf's lot at a step: a mix of seed, step and leaf alone, so that a resumed run draws what it would have drawn.
pub fn leaf_draw(seed: u64, step: u32, leaf: u32) -> u32 {
    let mut word = seed ^ (u64::from(step) << 32 | u64::from(leaf)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
        word = (word ^ word >> 31).wrapping_mul(factor);
    }
    (word ^ word >> 29) as u32 ^ (word >> 32) as u32
}

/// A squared norm as a number to rank by: larger norms have larger ones, and what is not a number has the largest, so that
/// it shows instead of hiding among those that stand still.
pub fn rank_of_norm(squared: f32) -> u32 {
    squared.to_bits() & 0x7fff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_print_as_they_are_written_and_others_are_refused() {
        for text in ["topk:3", "topk:all", "path", "random:12"] {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
        }
        for text in ["topk", "topk:0", "topk:-1", "random:all", "path:2", ""] {
            assert!(text.parse::<Rule>().is_err(), "{text}");
        }
    }

    #[test]
    fn units_print_as_they_are_written_and_others_are_refused() {
        for among in [Among::Parameters, Among::Blocks] {
            assert_eq!(among.to_string().parse(), Ok(among));
        }
        assert!("layers".parse::<Among>().is_err());
    }

    #[test]
    fn lots_are_spread_evenly_over_the_leaves() {
        let leaves = 21;
        let mut won = vec![0; leaves as usize];
        for step in 1..=4200 {
            let best = (0..leaves).max_by_key(|leaf| leaf_draw(42, step, *leaf)).unwrap();
            won[best as usize] += 1;
        }
        // 200 each on average; five standard deviations are 69.
        assert!(won.iter().all(|times| (131..270).contains(times)), "{won:?}");
        assert_ne!(leaf_draw(42, 1, 0), leaf_draw(43, 1, 0));
    }

    #[test]
    fn what_is_not_a_number_ranks_above_every_norm() {
        let ranks = [0.0, 1e-30, 1.0, f32::MAX, f32::INFINITY, f32::NAN].map(rank_of_norm);
        assert!(ranks.is_sorted() && ranks[4] < ranks[5]);
        assert_eq!(rank_of_norm(-f32::NAN), rank_of_norm(f32::NAN));
    }
}
