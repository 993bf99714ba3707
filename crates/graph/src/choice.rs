//! Rules that choose which parameters a step updates, and the arithmetic on which all devices must agree.

use std::fmt;
use std::str::FromStr;

/// How the nodes that a step updates are chosen in the model's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The given number of units with the largest gradient norms.
    TopK(usize),
    /// Every unit: gives the same bytes as no choice at all.
    All,
    /// Descends from the root to the child with the largest norm until it reaches a leaf; units near that leaf take a
    /// fraction of the step.
    Path,
    /// The given number of units at random: the control.
    Random(usize),
}

/// The units that a rule chooses among.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Among {
    /// Every parameter is a leaf of the tree formed by the modules.
    #[default]
    Parameters,
    /// Blocks are nodes of a tree of their own. A block is chosen as a whole, and everything outside the blocks is
    /// always updated.
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

/// Fractions of the step taken by the leaf at the end of the path, by units under the same parent, and by others of its
/// layer.
pub const FULL: f32 = 1.0;
pub const SIBLING: f32 = 0.15;
pub const SAME_LAYER: f32 = 0.05;

impl Rule {
    /// The number of units it chooses, if that is known in advance.
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

/// `1 - beta1^t` and `sqrt(1 - beta2^t)` for a parameter's own step count `t`, starting at 1. They correct the bias of
/// moments that start at zero. Powers are computed by squaring, so that every device gets the same bits.
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

/// A leaf's random draw at a step. It depends on seed, step and leaf only, so a resumed run draws the same numbers.
pub fn leaf_draw(seed: u64, step: u32, leaf: u32) -> u32 {
    let mut word = seed ^ (u64::from(step) << 32 | u64::from(leaf)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
        word = (word ^ word >> 31).wrapping_mul(factor);
    }
    (word ^ word >> 29) as u32 ^ (word >> 32) as u32
}

/// An integer that ranks a squared norm: larger norms rank higher, and NaN ranks highest, so that it shows up instead
/// of hiding among the parameters that are not updated.
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
        // The mean is 200 each; five standard deviations are 69.
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
