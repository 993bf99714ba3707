//! Sampling of the next token.

use crate::rng::Stream;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 takes the most likely token.
    pub temperature: f64,
    /// Number of most likely tokens to draw from; 0 is all.
    pub top_k: usize,
    /// Draws from the most likely tokens that together reach this probability.
    pub top_p: f64,
    pub seed: u64,
}

impl Sampling {
    /// Always takes the most likely token.
    pub const GREEDY: Sampling = Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, seed: 0 };

    /// Chooses token number `index`. Depends only on the logits, the seed and the index.
    pub fn choose(&self, logits: &[f32], index: u64) -> i32 {
        if self.temperature == 0.0 {
            // The first one wins a tie.
            let most = (0..logits.len()).reduce(|best, other| if logits[other] > logits[best] { other } else { best });
            return most.unwrap_or(0) as i32;
        }
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
        if self.top_k > 0 {
            order.truncate(self.top_k);
        }
        let top = f64::from(order.first().map_or(0.0, |first| logits[*first]));
        let weight = |token: &usize| ((f64::from(logits[*token]) - top) / self.temperature).exp();
        let weights: Vec<f64> = order.iter().map(weight).collect();
        let all: f64 = weights.iter().sum();
        let mut sum = 0.0;
        let kept = weights.iter().position(|weight| {
            sum += weight;
            sum >= self.top_p * all
        });
        let kept = kept.map_or(weights.len(), |last| last + 1);
        let mut left = Stream::new(self.seed, "generate").unit(index) * weights[..kept].iter().sum::<f64>();
        for (token, weight) in order.iter().zip(&weights[..kept]) {
            left -= weight;
            if left < 0.0 {
                return *token as i32;
            }
        }
        order[kept - 1] as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 4] = [1.0, 3.0, 2.0, 3.0];

    fn shares(sampling: Sampling) -> [f64; 4] {
        const DRAWS: u64 = 40_000;
        let mut counts = [0.0; 4];
        (0..DRAWS).for_each(|index| counts[sampling.choose(&LOGITS, index) as usize] += 1.0 / DRAWS as f64);
        counts
    }

    #[test]
    fn tokens_are_drawn_by_their_odds() {
        let drawn = shares(Sampling { temperature: 2.0, ..Sampling::GREEDY });
        let weights = LOGITS.map(|x| (f64::from(x) / 2.0).exp());
        for (share, weight) in drawn.into_iter().zip(weights) {
            let want = weight / weights.iter().sum::<f64>();
            assert!((share - want).abs() < 0.01, "{share} of the draws, {want} of the odds");
        }
    }

    #[test]
    fn top_k_and_top_p_leave_out_what_is_unlikely() {
        let warm = Sampling { temperature: 1.0, ..Sampling::GREEDY };
        let one = shares(Sampling { top_k: 1, ..warm });
        assert!(one[0] + one[2] + one[3] == 0.0 && one[1] > 0.999, "{one:?}");
        let two = shares(Sampling { top_k: 2, ..warm });
        assert!(two[0] == 0.0 && two[2] == 0.0 && (two[1] - 0.5).abs() < 0.02, "{two:?}");
        // The two largest have 0.4 each, the third 0.15.
        let most = shares(Sampling { top_p: 0.5, ..warm });
        assert!(most[0] == 0.0 && most[2] == 0.0 && most[3] > 0.4, "{most:?}");
        let three = shares(Sampling { top_p: 0.9, ..warm });
        assert!(three[0] == 0.0 && three[2] > 0.1, "{three:?}");
    }

    #[test]
    fn the_first_of_the_largest_is_taken_without_chance() {
        assert_eq!(Sampling::GREEDY.choose(&LOGITS, 0), 1);
        let seeded = |seed: u64| {
            (0..20)
                .map(|index| Sampling { temperature: 1.0, seed, ..Sampling::GREEDY }.choose(&LOGITS, index))
                .collect::<Vec<_>>()
        };
        assert_eq!(seeded(7), seeded(7));
        assert_ne!(seeded(7), seeded(8));
    }
}
