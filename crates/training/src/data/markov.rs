//! A seeded Markov source with four successors per state, whose entropy rate is known: the floor of any model's loss.
//!
//! Each state is a token. There are at most 256, spread evenly over the vocabulary: few enough for a small model to see
//! each one often within a few hundred steps. Four random permutations give a state's successors, so every state also
//! has four predecessors; where two permutations agree, one successor takes both shares. The shares are 8 : 4 : 2 : 1,
//! each scaled by a random number between ½ and 1½: uneven enough to be worth learning, none too rare to be seen.

use super::synthetic::{check_room, small_vocabulary};
use super::{Batch, BatchShape, DataError, SourceSettings, place_token};
use crate::rng::Stream;

const SUCCESSORS: usize = 4;
/// States to use when the vocabulary is larger.
const MOST_STATES: u32 = 256;
const SHARES: [f64; SUCCESSORS] = [8.0, 4.0, 2.0, 1.0];

#[derive(Debug)]
pub struct Markov {
    shape: BatchShape,
    seed: u64,
    vocab_size: u32,
    /// `[states][4]`: successors and their cumulative probabilities. Merged successors leave empty slots at the end.
    rows: Vec<Row>,
    /// Cumulative stationary probability of the states; the first token of a sequence is drawn from it.
    stationary_sums: Vec<f64>,
    floor_nats: f64,
    steps: Stream,
    starts: Stream,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    successors: [u32; SUCCESSORS],
    probabilities: [f64; SUCCESSORS],
}

impl Markov {
    /// The chain depends only on the seed and the number of states, so training and evaluation share it.
    pub fn new(settings: &SourceSettings) -> Result<Markov, DataError> {
        let vocab_size = small_vocabulary("the Markov source", 1, settings.vocab_size)?;
        let rows = draw_chain(settings.seed, vocab_size.min(MOST_STATES));
        let stationary = stationary_distribution(&rows)?;
        let floor_nats = entropy_rate(&rows, &stationary);
        let mut sum = 0.0;
        let stationary_sums = stationary
            .iter()
            .map(|probability| {
                sum += probability;
                sum
            })
            .collect();
        let stream = |part: &str| Stream::new(settings.seed, &format!("data.markov.{part}.{}", settings.split.name()));
        Ok(Markov {
            shape: settings.shape,
            seed: settings.seed,
            vocab_size,
            rows,
            stationary_sums,
            floor_nats,
            steps: stream("steps"),
            starts: stream("starts"),
        })
    }

    pub fn fill_from(&self, first: u64, batch: &mut Batch) -> Result<(), DataError> {
        check_room(self.shape, batch)?;
        let BatchShape { batch_size, seq_len } = self.shape;
        for row in 0..batch_size {
            let sample = first.wrapping_add(row as u64);
            let mut state = self.start(sample);
            place_token(batch, seq_len, row, 0, self.token(state));
            for t in 1..=seq_len {
                state = self
                    .successor(state, self.steps.unit(sample.wrapping_mul(seq_len as u64).wrapping_add(t as u64 - 1)));
                place_token(batch, seq_len, row, t, self.token(state));
            }
        }
        Ok(())
    }

    pub fn shape(&self) -> BatchShape {
        self.shape
    }

    /// The entropy rate. A sequence begins in the stationary distribution and its first token is never a target, so
    /// every target carries exactly this much surprise on average, given the token before it. This is the expected loss
    /// of a perfect model, with no correction for the first token.
    pub fn floor_nats(&self) -> f64 {
        self.floor_nats
    }

    pub fn description(&self) -> String {
        format!("markov, {} states, vocabulary {}, seed {}", self.rows.len(), self.vocab_size, self.seed)
    }

    /// The token that stands for a state.
    fn token(&self, state: u32) -> i32 {
        (u64::from(state) * u64::from(self.vocab_size) / self.rows.len() as u64) as i32
    }

    fn start(&self, sample: u64) -> u32 {
        // 53 bits, so that rare states are not rounded away.
        let unit = (self.starts.word_u64(sample) >> 11) as f64 / (1u64 << 53) as f64;
        let state = self.stationary_sums.partition_point(|sum| *sum <= unit);
        state.min(self.rows.len() - 1) as u32 // the sums may end a rounding error below 1
    }

    fn successor(&self, state: u32, unit: f64) -> u32 {
        let row = &self.rows[state as usize];
        let mut sum = 0.0;
        for (successor, probability) in row.successors.iter().zip(row.probabilities) {
            sum += probability;
            if unit < sum {
                return *successor;
            }
        }
        row.successors[0] // the shares may add up to a rounding error below 1
    }
}

fn draw_chain(seed: u64, vocab_size: u32) -> Vec<Row> {
    let permutations: Vec<Vec<u32>> =
        (0..SUCCESSORS as u32).map(|which| draw_permutation(seed, which, vocab_size)).collect();
    let scales = Stream::new(seed, "data.markov.scales");
    (0..vocab_size as usize)
        .map(|state| {
            let shares: [f64; SUCCESSORS] =
                std::array::from_fn(|which| SHARES[which] * (0.5 + scales.unit((state * SUCCESSORS + which) as u64)));
            let total: f64 = shares.iter().sum();
            let mut row = Row {
                successors: std::array::from_fn(|which| permutations[which][state]),
                probabilities: shares.map(|share| share / total),
            };
            merge_duplicates(&mut row);
            row
        })
        .collect()
}

/// The first permutation is a single cycle through all states (Sattolo's shuffle), so that every state can be reached
/// from every other. The rest are arbitrary permutations (Fisher-Yates).
fn draw_permutation(seed: u64, which: u32, vocab_size: u32) -> Vec<u32> {
    let stream = Stream::new(seed, &format!("data.markov.permutation.{which}"));
    let mut order: Vec<u32> = (0..vocab_size).collect();
    for last in (1..vocab_size).rev() {
        let choices = if which == 0 { last } else { last + 1 };
        let other = stream.uniform_u32_below(u64::from(last), choices);
        order.swap(last as usize, other as usize);
    }
    order
}

fn merge_duplicates(row: &mut Row) {
    for later in 1..SUCCESSORS {
        for earlier in 0..later {
            if row.successors[earlier] == row.successors[later] {
                row.probabilities[earlier] += row.probabilities[later];
                row.probabilities[later] = 0.0;
                break;
            }
        }
    }
}

/// Power iteration on the lazy chain, which stays put half of the time: it has the same stationary distribution and
/// converges even if the chain itself is periodic.
fn stationary_distribution(rows: &[Row]) -> Result<Vec<f64>, DataError> {
    const SETTLED: f64 = 1e-13;
    const MOST_ROUNDS: usize = 100_000;
    let mut now = vec![1.0 / rows.len() as f64; rows.len()];
    let mut next = vec![0.0; rows.len()];
    let mut change = f64::INFINITY;
    for _ in 0..MOST_ROUNDS {
        for (next, now) in next.iter_mut().zip(&now) {
            *next = 0.5 * now;
        }
        for (row, now) in rows.iter().zip(&now) {
            for (successor, probability) in row.successors.iter().zip(row.probabilities) {
                next[*successor as usize] += 0.5 * now * probability;
            }
        }
        change = now.iter().zip(&next).map(|(a, b)| (a - b).abs()).sum();
        std::mem::swap(&mut now, &mut next);
        if change < SETTLED {
            return Ok(now);
        }
    }
    Err(DataError::NotSettled { change })
}

fn entropy_rate(rows: &[Row], stationary: &[f64]) -> f64 {
    let row_entropy = |row: &Row| -> f64 {
        let probable = row.probabilities.iter().filter(|probability| **probability > 0.0);
        probable.map(|probability| -probability * probability.ln()).sum()
    };
    rows.iter().zip(stationary).map(|(row, weight)| weight * row_entropy(row)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn markov(vocab_size: usize, shape: BatchShape) -> Markov {
        Markov::new(&SourceSettings::new(shape, vocab_size, 42)).unwrap()
    }

    #[test]
    fn a_long_sample_has_the_computed_entropy_rate() {
        let shape = BatchShape { batch_size: 64, seq_len: 1000 };
        let source = markov(100, shape);
        let mut batch = Batch::new(shape);
        let mut pairs: HashMap<(i32, i32), u64> = HashMap::new();
        let mut states: HashMap<i32, u64> = HashMap::new();
        for position in 0..20 {
            source.fill_from(position * 64, &mut batch).unwrap();
            for (input, target) in batch.input_ids.iter().zip(&batch.targets) {
                *pairs.entry((*input, *target)).or_default() += 1;
                *states.entry(*input).or_default() += 1;
            }
        }
        let total: u64 = states.values().sum();
        let empirical: f64 = pairs
            .iter()
            .map(|((state, _), count)| -(*count as f64 / total as f64) * (*count as f64 / states[state] as f64).ln())
            .sum();
        let floor = source.floor_nats();
        assert!((empirical / floor - 1.0).abs() < 0.01, "{empirical} against {floor}");
    }

    #[test]
    fn first_tokens_follow_the_stationary_distribution_as_later_ones_do() {
        let shape = BatchShape { batch_size: 50_000, seq_len: 5 };
        let source = markov(20, shape);
        let mut batch = Batch::new(shape);
        source.fill_from(0, &mut batch).unwrap();
        let share = |t: usize, state: i32| {
            let rows = batch.input_ids.chunks(5);
            rows.filter(|row| row[t] == state).count() as f64 / 50_000.0
        };
        for state in 0..20 {
            let first = share(0, state);
            assert!((first - share(4, state)).abs() < 0.01, "state {state}");
            let sums = &source.stationary_sums;
            let stated = sums[state as usize] - if state > 0 { sums[state as usize - 1] } else { 0.0 };
            assert!((first - stated).abs() < 0.01, "state {state}");
        }
    }

    #[test]
    fn every_state_has_four_ways_out_and_four_in_with_shares_that_add_up() {
        let source = markov(1000, BatchShape { batch_size: 1, seq_len: 1 });
        let mut ways_in = vec![0; MOST_STATES as usize];
        for row in &source.rows {
            assert!((row.probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            for successor in row.successors {
                ways_in[successor as usize] += 1;
            }
        }
        assert!(ways_in.iter().all(|count| *count == 4));
        let floor = source.floor_nats();
        assert!((0.9..1.3).contains(&floor), "{floor}");
    }

    #[test]
    fn shares_are_scaled_by_the_numbers_that_were_drawn_for_them() {
        let scales = Stream::new(7, "data.markov.scales");
        let chain = draw_chain(7, 97);
        let apart = |row: &&Row| row.probabilities.iter().all(|probability| *probability > 0.0);
        assert!(chain.iter().filter(apart).count() > 80);
        for (state, row) in chain.iter().enumerate().filter(|(_, row)| apart(row)) {
            let share = |which: usize| SHARES[which] * (0.5 + scales.unit((4 * state + which) as u64));
            for which in 1..SUCCESSORS {
                let (found, wanted) = (row.probabilities[which] / row.probabilities[0], share(which) / share(0));
                assert!((found / wanted - 1.0).abs() < 1e-12, "state {state}: {found} against {wanted}");
            }
        }
    }

    #[test]
    fn successors_that_agree_have_the_shares_of_both() {
        let mut row = Row { successors: [3, 1, 3, 1], probabilities: [0.5, 0.25, 0.125, 0.125] };
        merge_duplicates(&mut row);
        assert_eq!((row.successors, row.probabilities), ([3, 1, 3, 1], [0.625, 0.375, 0.0, 0.0]));
    }

    #[test]
    fn the_stationary_distribution_is_left_unchanged_by_a_step() {
        for vocab_size in [1, 2, 3, 5, 97, 1000] {
            let rows = draw_chain(7, vocab_size);
            let stationary = stationary_distribution(&rows).unwrap();
            let mut after = vec![0.0; rows.len()];
            for (row, weight) in rows.iter().zip(&stationary) {
                for (successor, probability) in row.successors.iter().zip(row.probabilities) {
                    after[*successor as usize] += weight * probability;
                }
            }
            let change: f64 = after.iter().zip(&stationary).map(|(a, b)| (a - b).abs()).sum();
            assert!(change < 1e-12, "vocabulary {vocab_size}: {change}");
            assert!(stationary.iter().all(|weight| *weight > 0.0), "vocabulary {vocab_size}");
        }
    }

    #[test]
    fn a_vocabulary_of_one_has_nothing_to_tell() {
        assert_eq!(markov(1, BatchShape { batch_size: 1, seq_len: 1 }).floor_nats(), 0.0);
    }

    #[test]
    fn the_entropy_rate_of_a_known_chain_is_its_textbook_value() {
        // Two states that stay put with 0.9 and 0.6: stationary 0.8 and 0.2.
        let row = |successors: [u32; 2], probabilities: [f64; 2]| Row {
            successors: [successors[0], successors[1], 0, 0],
            probabilities: [probabilities[0], probabilities[1], 0.0, 0.0],
        };
        let rows = [row([0, 1], [0.9, 0.1]), row([1, 0], [0.6, 0.4])];
        let stationary = stationary_distribution(&rows).unwrap();
        assert!((stationary[0] - 0.8).abs() < 1e-12);
        let entropy = |p: f64| -p * p.ln() - (1.0 - p) * (1.0 - p).ln();
        let want = 0.8 * entropy(0.9) + 0.2 * entropy(0.6);
        assert!((entropy_rate(&rows, &stationary) - want).abs() < 1e-12);
    }
}
