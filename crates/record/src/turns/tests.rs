//! Ratios between contestants with known speeds, under noise like that of a shared machine.

use super::*;
use std::convert::Infallible;

/// Takes its own time, and occasionally much more, drawn from a counter: the same in every run of the test.
struct Noisy {
    seconds: f64,
    state: u64,
    /// Deviation of a step, and how often it is disturbed.
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

impl Noisy {
    fn seconds(&mut self) -> f64 {
        let even = (0..6).map(|_| self.draw()).sum::<f64>() - 3.0; // deviation 0.7
        let hit = if self.draw() < self.disturbed { 1.0 + 3.0 * self.draw() } else { 1.0 };
        self.seconds * (1.0 + self.spread * even) * hit
    }
}

impl Contestant for Noisy {
    type Error = Infallible;

    fn turn(&mut self) -> Result<Turn, Infallible> {
        Ok(unwatched(self.seconds().min(self.seconds())))
    }
}

fn unwatched(seconds: f64) -> Turn {
    Turn { seconds, interference: None, is_disturbed: false }
}

const PATIENCE: Patience = Patience { rounds: 8, most_rounds: 64, time: Duration::from_secs(3600) };

fn compared(seed: u64, seconds: (f64, f64), spread: f64, disturbed: f64) -> Speedup {
    let mut first = Noisy::new(seconds.0, seed, spread, disturbed);
    let mut second = Noisy::new(seconds.1, seed + 7_000_000, spread, disturbed);
    Clock::start(PATIENCE, 1).compare(&mut first, &mut second).unwrap()
}

#[test]
fn an_interval_holds_the_truth_however_often_it_is_looked_at() {
    // Two equal contestants: stopping at the first look that seems decided would often be wrong.
    const TRIALS: u64 = 400;
    let wrong = (0..TRIALS).filter(|&seed| !compared(seed, (1.0, 1.0), 0.05, 0.2).is_within_noise()).count();
    assert!(wrong as f64 <= 0.07 * TRIALS as f64, "{wrong} of {TRIALS} call equals different");
    let missed = (0..TRIALS)
        .map(|seed| compared(seed, (1.25, 1.0), 0.05, 0.2))
        .filter(|found| found.low > 1.25 || found.high < 1.25)
        .count();
    assert!(missed as f64 <= 0.07 * TRIALS as f64, "{missed} of {TRIALS} intervals miss the truth");
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
        rounds.push(&[(first, unwatched(1.2 * load)), (second, unwatched(load))]);
    }
    let found = rounds.speedup(second, first);
    assert!((found.ratio - 1.2).abs() < 1e-9 && found.half_width() < 1e-9, "{found:?}");
}

#[test]
fn seconds_of_a_contestant_are_of_the_rounds_that_it_was_in() {
    let mut rounds = Rounds::new(1);
    let first = rounds.join();
    (0..8).for_each(|_| rounds.push(&[(first, unwatched(2.0))]));
    let late = rounds.join();
    assert_eq!(rounds.seconds(late), None);
    (0..8).for_each(|round| {
        rounds.push(&[(first, unwatched(2.0)), (late, unwatched(if round % 2 == 0 { 1.0 } else { 4.0 }))]);
    });
    let found = rounds.seconds(late).unwrap();
    assert!((found.value - 2.0).abs() < 1e-9 && found.low < 2.0 && found.high > 2.0, "{found:?}");
    let steady = rounds.seconds(first).unwrap();
    assert!((steady.low - 2.0).abs() < 1e-9 && (steady.high - 2.0).abs() < 1e-9, "{steady:?}");
    assert_eq!(rounds.seconds(9), None);
}

#[test]
fn a_speed_up_stands_when_it_is_narrow_enough() {
    let of = |low: f64, high: f64| Speedup { ratio: (low + high) / 2.0, low, high, rounds: 8 };
    assert!((of(0.9, 1.1).half_width() - 0.1).abs() < 1e-12 && (of(1.8, 2.2).half_width() - 0.1).abs() < 1e-12);
    // Within the noise to one percent, beyond it to two.
    assert!(of(0.995, 1.005).stands() && !of(0.985, 1.015).stands());
    assert!(of(1.1, 1.14).stands() && !of(1.1, 1.16).stands());
    assert!(of(0.86, 0.89).stands() && !of(0.84, 0.89).stands());
    // The ends belong to the interval.
    assert!(of(1.0, 1.2).is_within_noise() && of(0.8, 1.0).is_within_noise());
    assert!(!of(1.01, 1.2).is_within_noise() && !of(0.8, 0.99).is_within_noise());
}

#[test]
fn looks_are_counted_before_the_measuring_begins() {
    let looks = |rounds, most_rounds| Patience { rounds, most_rounds, ..PATIENCE }.looks();
    // Looks at 8, 16, 32 and 64 rounds, and when the clock ends it.
    assert_eq!([looks(8, 64), looks(8, 8), looks(8, 4), looks(0, 4), looks(8, 63)], [5, 2, 2, 4, 4]);
}

#[test]
fn the_first_look_has_the_larger_part_of_the_error_and_one_look_all_of_it() {
    assert_eq!([missed_at(1, 1), missed_at(0, 5), missed_at(1, 5), missed_at(2, 5)], [0.05, 0.035, 0.035, 0.0059]);
    assert!((1..=4).map(|look| missed_at(look, 4)).sum::<f64>() >= 0.05);
    assert!((1..=12).map(|look| missed_at(look, 12)).sum::<f64>() <= 0.05 + 1e-12);
}

#[test]
fn looks_at_others_widen_no_interval_and_starting_over_forgets_them() {
    let seconds = [(1.0, 0.8), (1.1, 0.9), (1.0, 0.85), (1.2, 0.9), (1.0, 0.8), (1.05, 0.83)];
    let mut rounds = Rounds::new(5);
    let all = [rounds.join(), rounds.join(), rounds.join()];
    for (first, second) in seconds {
        rounds.push(&[(all[0], unwatched(first)), (all[1], unwatched(second)), (all[2], unwatched(second))]);
    }
    (rounds.looked[1], rounds.looked[2]) = (1, 1);
    let early = rounds.speedup(1, 0);
    rounds.looked[2] = 2;
    assert_eq!(rounds.speedup(1, 0), early);
    let late = rounds.speedup(2, 0);
    assert!(late.low < early.low && late.high > early.high, "{late:?}, {early:?}");
    rounds.start_over(&[0, 2]);
    assert_eq!(rounds.looked, [0, 1, 0]);
}

/// Records the order of its turns.
struct Written<'a> {
    name: char,
    seconds: f64,
    order: &'a std::cell::RefCell<String>,
}

impl Contestant for Written<'_> {
    type Error = Infallible;

    fn turn(&mut self) -> Result<Turn, Infallible> {
        self.order.borrow_mut().push(self.name);
        Ok(unwatched(self.seconds))
    }
}

/// The order of turns, the rounds with a look, and the speed-up of the second over the first.
fn written(patience: &Patience, until: Instant, settled_at: usize) -> (String, Vec<usize>, Speedup) {
    let order = std::cell::RefCell::new(String::new());
    let mut rounds = Rounds::new(1);
    let mut all: Vec<(usize, Written)> = ['a', 'b', 'c']
        .into_iter()
        .zip([4.0, 2.0, 1.0])
        .map(|(name, seconds)| (rounds.join(), Written { name, seconds, order: &order }))
        .collect();
    let mut looks = vec![];
    let mut settled = |rounds: &Rounds| {
        looks.push(rounds.count());
        rounds.count() >= settled_at
    };
    race(&mut rounds, &mut all, patience, until, &mut settled).unwrap();
    drop(all);
    let found = rounds.speedup(1, 0);
    (order.into_inner(), looks, found)
}

#[test]
fn everybody_begins_in_turn_and_both_directions_are_taken() {
    let far = Instant::now() + Duration::from_secs(3600);
    let patience = Patience { rounds: 4, most_rounds: 6, ..PATIENCE };
    let (order, looks, found) = written(&patience, far, 99);
    assert_eq!(order, "abc cba bca acb cab bac".replace(' ', ""));
    assert_eq!(looks, [4]);
    assert!((found.ratio - 2.0).abs() < 1e-12 && found.rounds == 6, "{found:?}");
}

#[test]
fn every_place_of_a_round_is_everybodys_equally_often() {
    for count in 1..=6 {
        // Who has which place, over as many rounds as it takes for all orders.
        let mut had = vec![vec![0; count]; count];
        for round in 1..=2 * count {
            (0..count).for_each(|turn| had[place(round, turn, count)][turn] += 1);
        }
        assert!(had.iter().flatten().all(|times| *times == 2), "{count}: {had:?}");
    }
    // Two rounds already cancel a steady drift: each has the same sum of places.
    assert_eq!([1, 2, 3, 4].map(|round| place(round, 0, 2)), [0, 1, 1, 0]);
}

#[test]
fn looks_come_after_twice_as_many_rounds_and_end_it_when_it_is_settled() {
    let far = Instant::now() + Duration::from_secs(3600);
    let patience = Patience { rounds: 4, most_rounds: 64, ..PATIENCE };
    let (_, looks, found) = written(&patience, far, 10);
    assert_eq!((looks, found.rounds), (vec![4, 8, 16], 16));
    // A clock that has run out ends it after the least number of rounds, or after fewer where fewer are requested.
    let few = Patience { rounds: 3, most_rounds: 3, ..PATIENCE };
    assert_eq!(written(&few, far, 99).2.rounds, 3);
    assert_eq!(written(&few, Instant::now(), 99).2.rounds, 3);
    let many = Patience { rounds: 8, ..patience };
    assert_eq!(written(&many, Instant::now(), 99).2.rounds, LEAST_ROUNDS);
}

#[test]
fn comparisons_share_the_time_and_have_what_those_before_them_left() {
    let patience = Patience { rounds: 8, most_rounds: 8, time: Duration::from_secs(60) };
    let rounds = |clock: &mut Clock| {
        clock.compare(&mut Noisy::new(1.0, 1, 0.3, 0.3), &mut Noisy::new(1.0, 2, 0.3, 0.3)).unwrap().rounds
    };
    // The first of a billion comparisons has 60 ns, the last the whole minute.
    let mut clock = Clock::start(patience, 1_000_000_000);
    assert_eq!((rounds(&mut clock), clock.done), (LEAST_ROUNDS, 1));
    clock.done = 999_999_998;
    assert_eq!(rounds(&mut clock), 8);
    // Comparisons beyond the announced number get the time of the last.
    assert_eq!([rounds(&mut clock), rounds(&mut clock)], [8, 8]);
    assert_eq!(clock.done, clock.comparisons);
}

#[test]
fn those_who_never_met_are_as_unsure_as_both_together() {
    let mut rounds = Rounds::new(1);
    let all = [rounds.join(), rounds.join(), rounds.join()];
    let noise = [1.0, 1.1, 0.95, 1.05, 1.0, 0.9];
    for at in 0..12 {
        // The second and the third take part alternately.
        let own = if at % 2 == 0 { (all[1], 0.5) } else { (all[2], 0.25) };
        rounds.push(&[(all[0], unwatched(noise[at % 6])), (own.0, unwatched(own.1))]);
    }
    let unmet = rounds.speedup(2, 1);
    let half = |of: Speedup| (of.high / of.low).ln() / 2.0;
    let (one, other) = (rounds.speedup(1, 0), rounds.speedup(2, 0));
    assert!((half(unmet) - half(one).hypot(half(other))).abs() < 1e-9, "{unmet:?}");
    assert!((unmet.ratio - other.ratio / one.ratio).abs() < 1e-9);
    assert_eq!((unmet.rounds, one.rounds, other.rounds), (6, 6, 6));
}

/// Disturbed in its first turns, as the machine's counters tell.
struct Disturbed {
    turns: usize,
    disturbed: std::ops::Range<usize>,
}

impl Contestant for Disturbed {
    type Error = Infallible;

    fn turn(&mut self) -> Result<Turn, Infallible> {
        self.turns += 1;
        let is_hit = self.disturbed.contains(&(self.turns - 1));
        // Faster when disturbed: whether a turn counts must not depend on its time.
        let interference = Some(if is_hit { 0.3 } else { 0.001 });
        Ok(Turn { seconds: if is_hit { 0.5 } else { 1.0 }, interference, is_disturbed: is_hit })
    }
}

fn disturbed(turns: [std::ops::Range<usize>; 2], most_rounds: usize) -> Rounds {
    let mut rounds = Rounds::new(1);
    let mut all: Vec<(usize, Disturbed)> =
        turns.map(|disturbed| (rounds.join(), Disturbed { turns: 0, disturbed })).into();
    let patience = Patience { rounds: most_rounds, most_rounds, ..PATIENCE };
    race(&mut rounds, &mut all, &patience, Instant::now() + Duration::from_secs(3600), &mut |_| false).unwrap();
    rounds
}

#[test]
fn a_disturbed_turn_is_taken_again_whatever_its_time() {
    let rounds = disturbed([0..0, 2..4], 6);
    let found = rounds.speedup(1, 0);
    assert_eq!((found.ratio, found.rounds, rounds.disturbed()), (1.0, 6, 0));
    let repeated: Vec<(usize, usize)> = rounds.repeated().iter().map(|turn| (turn.round, turn.contestant)).collect();
    assert_eq!(repeated, [(2, 1), (2, 1)]);
}

#[test]
fn rounds_that_stay_disturbed_do_not_count_unless_too_few_are_left() {
    let rounds = disturbed([0..0, 0..3], 6);
    assert_eq!((rounds.dropped(), rounds.speedup(1, 0).rounds, rounds.speedup(1, 0).ratio), (vec![0], 5, 1.0));
    // Two clean rounds say too little, so all count.
    let rounds = disturbed([0..0, 0..12], 6);
    assert_eq!((rounds.disturbed(), rounds.dropped(), rounds.speedup(1, 0).rounds), (4, vec![], 6));
    assert!(rounds.speedup(1, 0).ratio > 1.0);
}

#[test]
fn a_disturbed_turn_spoils_no_comparison_of_others() {
    let mut rounds = Rounds::new(1);
    let all = [rounds.join(), rounds.join(), rounds.join()];
    let hit = Turn { seconds: 9.0, interference: Some(0.5), is_disturbed: true };
    (0..6).for_each(|_| rounds.push(&[(all[0], unwatched(1.0)), (all[1], unwatched(0.5)), (all[2], unwatched(0.8))]));
    rounds.push(&[(all[0], unwatched(1.0)), (all[1], hit), (all[2], unwatched(0.8))]);
    rounds.push(&[(all[0], hit), (all[1], unwatched(0.5)), (all[2], unwatched(0.8))]);
    assert_eq!([rounds.speedup(1, 0).rounds, rounds.speedup(2, 0).rounds, rounds.speedup(2, 1).rounds], [6, 7, 7]);
    assert!((rounds.speedup(1, 0).ratio - 2.0).abs() < 1e-12, "{:?}", rounds.speedup(1, 0));
    assert_eq!((rounds.disturbed(), rounds.dropped(), rounds.dropped_turns()), (2, vec![7], vec![(6, 1)]));
}

#[test]
fn a_steady_load_ends_the_repeating() {
    let rounds = disturbed([0..1000, 0..1000], 64);
    assert_eq!(rounds.repeated().len(), REPEATS * STEADY, "{:?}", rounds.repeated().len());
    assert_eq!(rounds.disturbed(), 64);
}

#[test]
fn chosen_contestants_start_over_and_ratios_still_multiply() {
    let mut rounds = Rounds::new(1);
    let all = [rounds.join(), rounds.join(), rounds.join()];
    (0..3).for_each(|_| rounds.push(&[(all[0], unwatched(1.0)), (all[1], unwatched(0.5)), (all[2], unwatched(0.8))]));
    rounds.start_over(&[all[0], all[1]]);
    (0..9).for_each(|_| rounds.push(&[(all[0], unwatched(1.0)), (all[1], unwatched(0.9))]));
    let (chosen, screened) = (rounds.speedup(1, 0), rounds.speedup(2, 0));
    assert!((chosen.ratio - 1.0 / 0.9).abs() < 1e-12 && chosen.rounds == 9, "the lucky rounds are gone: {chosen:?}");
    assert!((screened.ratio - 1.25).abs() < 1e-12 && screened.rounds == 3, "{screened:?}");
    assert!((rounds.speedup(1, 2).ratio * screened.ratio / chosen.ratio - 1.0).abs() < 1e-12);
}

#[test]
fn one_round_cannot_spoil_an_interval() {
    for count in LEAST_ROUNDS..12 {
        let mut rounds = Rounds::new(1);
        let (first, second) = (rounds.join(), rounds.join());
        for round in 0..count {
            let own = if round == 1 { 20.0 } else { 1.0 + 0.01 * (round % 3) as f64 };
            rounds.push(&[(first, unwatched(1.2)), (second, unwatched(own))]);
        }
        let found = rounds.speedup(second, first);
        assert!(found.low > 1.1 && found.high < 1.3, "{count} rounds: {found:?}");
    }
}
