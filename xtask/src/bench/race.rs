//! Two sides alternate, round after round.

use anyhow::Result;

use super::contestant::{Answer, Contestant};

/// A turn of the slower side takes about this long: enough steps to average out, short enough that both sides see the
/// same machine load.
const TURN_MILLISECONDS: f64 = 1500.0;
const MOST_STEPS: usize = 500;

/// Answers of each side, one entry per round.
pub struct Rounds {
    pub steps: usize,
    pub ours: Vec<Answer>,
    pub peer: Vec<Answer>,
}

/// Warms both sides up, picks the number of steps, then races; `progress` is called after every round.
pub fn race(
    rounds: usize,
    ours: &mut dyn Contestant,
    peer: &mut dyn Contestant,
    mut progress: impl FnMut(usize, &Answer, &Answer),
) -> Result<Rounds> {
    let slower = ours.turn(2)?.ms_per_step.max(peer.turn(2)?.ms_per_step);
    let steps = steps_in_a_turn(slower);
    let mut result = Rounds { steps, ours: Vec::new(), peer: Vec::new() };
    for round in 0..rounds {
        // The second side finds caches and clocks as the first left them, so the order alternates too.
        let (ours_now, peer_now) = if round % 2 == 0 {
            let ours_now = ours.turn(steps)?;
            (ours_now, peer.turn(steps)?)
        } else {
            let peer_now = peer.turn(steps)?;
            (ours.turn(steps)?, peer_now)
        };
        progress(round + 1, &ours_now, &peer_now);
        result.ours.push(ours_now);
        result.peer.push(peer_now);
    }
    Ok(result)
}

fn steps_in_a_turn(ms_per_step: f64) -> usize {
    ((TURN_MILLISECONDS / ms_per_step).round() as usize).clamp(1, MOST_STEPS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    struct Fake<'a> {
        name: &'static str,
        ms_per_step: f64,
        log: &'a RefCell<Vec<String>>,
    }

    impl Contestant for Fake<'_> {
        fn turn(&mut self, steps: usize) -> Result<Answer> {
            self.log.borrow_mut().push(format!("{} {steps}", self.name));
            Ok(Answer { ms_per_step: self.ms_per_step, peak_mb: 1.0, loss: 1.0, all: serde_json::Value::Null })
        }
    }

    #[test]
    fn sides_alternate_and_the_order_flips_every_round() {
        let log = RefCell::default();
        let mut ours = Fake { name: "ours", ms_per_step: 100.0, log: &log };
        let mut peer = Fake { name: "peer", ms_per_step: 150.0, log: &log };
        let mut heard = Vec::new();
        let result = race(3, &mut ours, &mut peer, |round, ours, peer| {
            heard.push((round, ours.ms_per_step, peer.ms_per_step));
        });
        let rounds = result.expect("the race ends");
        let want = ["ours 2", "peer 2", "ours 10", "peer 10", "peer 10", "ours 10", "ours 10", "peer 10"];
        assert_eq!(*log.borrow(), want);
        assert_eq!(heard, [(1, 100.0, 150.0), (2, 100.0, 150.0), (3, 100.0, 150.0)]);
        assert_eq!((rounds.steps, rounds.ours.len(), rounds.peer.len()), (10, 3, 3));
        assert!(rounds.ours.iter().all(|answer| answer.ms_per_step == 100.0), "sides are mixed up");
    }

    #[test]
    fn a_turn_has_as_many_steps_as_fit() {
        for (ms_per_step, steps) in [(0.01, MOST_STEPS), (150.0, 10), (1717.0, 1), (60_000.0, 1)] {
            assert_eq!(steps_in_a_turn(ms_per_step), steps, "{ms_per_step} ms");
        }
    }
}
