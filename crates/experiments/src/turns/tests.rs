//! Ratios of contestants whose true speed is known, under noise like that of a shared machine.

use super::*;

/// Takes its own time, now and then much more, drawn by a counter: the same in every run of the test.
struct Noisy {
    seconds: f64,
    state: u64,
    /// Deviation of a step, and how often something else gets in its way.
    spread: f64,
    disturbed: f64,
}

impl Noisy {
    fn new(seconds: f64, seed: u64, spread: f64, disturbed: f64) -> Noisy {
        Noisy { seconds, state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), spread, disturbed }
    }

    fn draw(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as f64 / u64::MAX as f64
    }
}

impl Contestant for Noisy {
    fn seconds(&mut self) -> Result<f64, ExperimentError> {
        let even = (0..6).map(|_| self.draw()).sum::<f64>() - 3.0; // deviation 0.7
        let hit = if self.draw() < self.disturbed { 1.0 + 3.0 * self.draw() } else { 1.0 };
        Ok(self.seconds * (1.0 + self.spread * even) * hit)
    }
}

const PATIENCE: Patience = Patience { rounds: 8, most_rounds: 64, time: Duration::from_secs(3600) };

fn compared(seed: u64, seconds: (f64, f64), spread: f64, disturbed: f64) -> Speedup {
    let mut first = Noisy::new(seconds.0, seed, spread, disturbed);
    let mut second = Noisy::new(seconds.1, seed + 7_000_000, spread, disturbed);
    Clock::start(PATIENCE, 1).compare(&mut first, &mut second).unwrap()
}

#[test]
fn an_interval_holds_the_truth_however_often_it_is_looked_at() {
    // Two that are equal: who stops at the first look that seems decided would often be wrong.
    const TRIALS: u64 = 400;
    let wrong = (0..TRIALS).filter(|&seed| !compared(seed, (1.0, 1.0), 0.05, 0.2).is_within_noise()).count();
    assert!(wrong as f64 <= 0.05 * TRIALS as f64, "{wrong} of {TRIALS} call equals different");
    let missed = (0..TRIALS)
        .map(|seed| compared(seed, (1.25, 1.0), 0.05, 0.2))
        .filter(|found| found.low > 1.25 || found.high < 1.25)
        .count();
    assert!(missed as f64 <= 0.05 * TRIALS as f64, "{missed} of {TRIALS} intervals miss the truth");
}

#[test]
fn rounds_are_added_until_the_verdict_stands() {
    let quiet = compared(1, (1.3, 1.0), 0.002, 0.0);
    assert_eq!((quiet.rounds, quiet.stands()), (8, true), "{quiet:?}");
    let noisy = compared(1, (1.3, 1.0), 0.03, 0.05);
    assert!(noisy.rounds > 8 && noisy.low > 1.0, "{noisy:?}");
    let hopeless = compared(3, (1.01, 1.0), 0.25, 0.3);
    assert!(hopeless.rounds == 64 && !hopeless.stands(), "{hopeless:?}");
}

#[test]
fn the_clock_ends_what_noise_would_not() {
    let patience = Patience { time: Duration::ZERO, ..PATIENCE };
    let (mut first, mut second) = (Noisy::new(1.0, 1, 0.3, 0.3), Noisy::new(1.0, 2, 0.3, 0.3));
    let found = Clock::start(patience, 3).compare(&mut first, &mut second).unwrap();
    assert_eq!(found.rounds, LEAST_ROUNDS);
    assert!(!found.stands());
}

#[test]
fn ratios_of_ratios_agree_whoever_joined_when() {
    let mut rounds = Rounds::new(5);
    let mut all: Vec<(usize, Noisy)> =
        (0..3).map(|at| (rounds.join(), Noisy::new(1.0 / (at + 1) as f64, at, 0.1, 0.2))).collect();
    let until = Instant::now() + Duration::from_secs(3600);
    let patience = Patience { rounds: 8, most_rounds: 8, ..PATIENCE };
    race(&mut rounds, &mut all, &patience, until, &mut |_| true).unwrap();
    let late = (rounds.join(), Noisy::new(0.25, 9, 0.1, 0.2));
    let mut some = vec![all.remove(0), all.remove(1), late];
    race(&mut rounds, &mut some, &patience, until, &mut |_| true).unwrap();
    for (over, by, of) in [(0, 1, 2), (1, 2, 3), (0, 3, 1), (2, 1, 3)] {
        let ratio = |of, over| rounds.speedup(of, over).ratio;
        assert!((ratio(by, over) * ratio(of, by) / ratio(of, over) - 1.0).abs() < 1e-12);
    }
    let unmet = rounds.speedup(3, 1);
    assert!(unmet.low < unmet.ratio && unmet.ratio < unmet.high && unmet.rounds == 8, "{unmet:?}");
    assert_eq!(rounds.speedup(2, 2), Speedup::none(16));
}

#[test]
fn what_slows_everybody_does_not_count() {
    let mut rounds = Rounds::new(1);
    let (first, second) = (rounds.join(), rounds.join());
    for round in 0..20 {
        let load = 1.0 + f64::from(round % 7);
        rounds.push(&[(first, 1.2 * load), (second, load)]);
    }
    let found = rounds.speedup(second, first);
    assert!((found.ratio - 1.2).abs() < 1e-9 && found.half_width() < 1e-9, "{found:?}");
}
