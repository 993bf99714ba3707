//! Two sides take turns, through the race that everything shares (`headroom_record::turns`).

use std::time::{Duration, Instant};

use anyhow::Result;
use headroom_record::turns::{self, Patience, Turn, Work, watched};

use super::contestant::{Answer, Contestant};

/// A turn of the slower side takes about this long: enough steps to average out, short enough that both sides see the
/// same machine load.
const TURN_MILLISECONDS: f64 = 1500.0;
const MOST_STEPS: usize = 500;

/// The number of rounds ends a race, and no clock.
const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

pub struct Rounds {
    pub steps: usize,
    /// Answers of each side, those of turns that were taken again included.
    pub ours: Vec<Answer>,
    pub peer: Vec<Answer>,
    /// Ours is the first contestant.
    pub raced: turns::Rounds,
}

/// Warms both sides up, picks the number of steps, then races; `progress` is told every turn of ours or, if `false`, of
/// the peer.
pub fn race<'a>(
    rounds: usize,
    ours: &'a mut dyn Contestant,
    peer: &'a mut dyn Contestant,
    progress: &'a dyn Fn(bool, &Answer, &Turn),
) -> Result<Rounds> {
    let slower = ours.turn(2)?.ms_per_step.max(peer.turn(2)?.ms_per_step);
    let steps = steps_in_a_turn(slower);
    let mut raced = turns::Rounds::new(1);
    let mut sides = [(true, ours), (false, peer)]
        .map(|(is_ours, side)| (raced.join(), Side { is_ours, side, steps, answers: vec![], progress }));
    let patience = Patience { rounds, most_rounds: rounds, time: A_YEAR };
    turns::race(&mut raced, &mut sides, &patience, Instant::now() + A_YEAR, &mut |_| false)?;
    let [ours, peer] = sides.map(|(_, side)| side.answers);
    Ok(Rounds { steps, ours, peer, raced })
}

/// A side as a contestant. It is another process, so disturbances are read off the whole machine.
struct Side<'a> {
    is_ours: bool,
    side: &'a mut dyn Contestant,
    steps: usize,
    answers: Vec<Answer>,
    progress: &'a dyn Fn(bool, &Answer, &Turn),
}

impl turns::Contestant for Side<'_> {
    type Error = anyhow::Error;

    fn turn(&mut self) -> Result<Turn> {
        let turn = watched(Work::Elsewhere, || -> Result<f64> {
            let answer = self.side.turn(self.steps)?;
            let seconds = answer.ms_per_step / 1e3;
            self.answers.push(answer);
            Ok(seconds)
        })?;
        if let Some(answer) = self.answers.last() {
            (self.progress)(self.is_ours, answer, &turn);
        }
        Ok(turn)
    }
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
        let (log, heard) = (RefCell::default(), RefCell::new(vec![]));
        let mut ours = Fake { name: "ours", ms_per_step: 100.0, log: &log };
        let mut peer = Fake { name: "peer", ms_per_step: 150.0, log: &log };
        let result = race(4, &mut ours, &mut peer, &|is_ours, answer, _| {
            heard.borrow_mut().push((is_ours, answer.ms_per_step));
        });
        let rounds = result.expect("the race ends");
        // A fake's turn ends at once, so whatever the machine counts meanwhile may be a large share of it. A turn that is
        // taken again follows itself.
        let mut order = log.into_inner();
        order.dedup();
        assert_eq!(order[..2], ["ours 2", "peer 2"]);
        // Ours, peer; peer, ours; peer, ours; ours, peer: who ends a round and begins the next one appears once here.
        assert_eq!(order[2..], ["ours 10", "peer 10", "ours 10", "peer 10", "ours 10", "peer 10"]);
        assert_eq!((rounds.steps, rounds.raced.count()), (10, 4));
        assert!(rounds.ours.len() >= 4 && rounds.peer.len() >= 4);
        assert!(rounds.ours.iter().all(|answer| answer.ms_per_step == 100.0), "sides are mixed up");
        let found = rounds.raced.speedup(0, 1);
        assert!((found.ratio - 1.5).abs() < 1e-9 && found.half_width() < 1e-9, "{found:?}");
        assert!(heard.borrow().iter().all(|(is_ours, ms)| *ms == if *is_ours { 100.0 } else { 150.0 }));
    }

    #[test]
    fn a_turn_has_as_many_steps_as_fit() {
        for (ms_per_step, steps) in [(0.01, MOST_STEPS), (150.0, 10), (1717.0, 1), (60_000.0, 1)] {
            assert_eq!(steps_in_a_turn(ms_per_step), steps, "{ms_per_step} ms");
        }
    }
}
