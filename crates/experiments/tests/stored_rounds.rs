//! Coverage of the intervals on real noise: rounds of one and the same model, recorded on a quiet and on a disturbed
//! machine (`examples/stored_rounds.rs`), are drawn again in blocks and raced with a known ratio multiplied in. The race
//! is the real one: disturbed turns are taken again, rounds are dropped, and looks come at doubled numbers of rounds.

use headroom_experiments::turns::{Clock, Contestant, Patience, Speedup, Turn, Work};
use std::cell::RefCell;
use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Simulations for each file, divided among the ratios.
const SIMULATIONS: usize = 2_400;
const RATIOS: [f64; 4] = [1.0, 1.01, 1.1, 0.8];

/// Neighbouring rounds that are drawn together, so that drift stays in.
const BLOCK: usize = 8;

/// The share of intervals that hold the truth. More than the upper one, and they are wider than they need to be.
const COVERED: std::ops::RangeInclusive<f64> = 0.93..=0.98;

/// As `optimize` races.
const PATIENCE: Patience = Patience { rounds: 9, most_rounds: 72, time: Duration::from_secs(3600) };

/// By round and turn.
fn stored(name: &str) -> Vec<Vec<Turn>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rounds").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!(
            "{}: {error}\n  help: cargo run --release -p headroom-experiments --example stored_rounds -- nano 200 {}",
            path.display(),
            path.display()
        )
    });
    rounds_of(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

fn rounds_of(text: &str) -> Result<Vec<Vec<Turn>>, String> {
    let mut rounds = vec![];
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.starts_with('#') && !line.is_empty()) {
        let columns: Vec<&str> = line.split('\t').collect();
        let turn = |pair: &[&str]| {
            let [seconds, share] = pair else { return Err(format!("line {number} ends in the middle of a turn")) };
            let figure =
                |text: &str| text.parse::<f64>().map_err(|_| format!("line {number}: `{text}` is not a number"));
            let share = if *share == "-" { None } else { Some(figure(share)?) };
            Ok(Turn::new(Work::Here, figure(seconds)?, share))
        };
        rounds.push(columns.chunks(2).map(turn).collect::<Result<Vec<Turn>, String>>()?);
    }
    if rounds.len() < 10 * BLOCK { Err(format!("{} rounds are too few", rounds.len())) } else { Ok(rounds) }
}

/// A counter passed through a mixing function: the same draws in every run.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (((mixed >> 32) * bound as u64) >> 32) as usize
    }
}

/// Turns in the order of time, from blocks of rounds that are drawn as they are needed.
struct Stream<'a> {
    rounds: &'a [Vec<Turn>],
    draws: Draws,
    ahead: Vec<Turn>,
}

impl Stream<'_> {
    fn next(&mut self) -> Turn {
        loop {
            if let Some(turn) = self.ahead.pop() {
                return turn;
            }
            let first = self.draws.below(self.rounds.len() - BLOCK + 1);
            self.ahead = self.rounds[first..first + BLOCK].iter().flatten().rev().copied().collect();
            // Whoever is called first may meet any turn of a round.
            let skipped = self.draws.below(self.rounds[first].len());
            self.ahead.truncate(self.ahead.len() - skipped);
        }
    }
}

/// Takes the next stored turn, as if it took `factor` times as long.
struct Replayed<'a, 'b> {
    stream: &'a RefCell<Stream<'b>>,
    factor: f64,
}

impl Contestant for Replayed<'_, '_> {
    type Error = Infallible;

    fn turn(&mut self) -> Result<Turn, Infallible> {
        let turn = self.stream.borrow_mut().next();
        Ok(Turn { seconds: self.factor * turn.seconds, ..turn })
    }
}

fn raced(rounds: &[Vec<Turn>], ratio: f64, seed: u64) -> Speedup {
    let draws = Draws(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let stream = RefCell::new(Stream { rounds, draws, ahead: vec![] });
    let [mut first, mut second] = [ratio, 1.0].map(|factor| Replayed { stream: &stream, factor });
    let Ok(found) = Clock::start(PATIENCE, 1).compare(&mut first, &mut second);
    found
}

fn check_coverage(name: &str) {
    let rounds = stored(name);
    let each = SIMULATIONS / RATIOS.len();
    let mut held = vec![];
    for (ratio, number) in RATIOS.into_iter().zip(0u64..) {
        let holds = |seed: &u64| {
            let found = raced(&rounds, ratio, *seed);
            found.low <= ratio && ratio <= found.high
        };
        let first = number * 1_000_000;
        held.push((first..first + each as u64).filter(holds).count());
    }
    let covered = held.iter().sum::<usize>() as f64 / (each * RATIOS.len()) as f64;
    assert!(COVERED.contains(&covered), "{name}: {covered:.4} hold the truth, by ratio {held:?} of {each}");
}

#[test]
fn intervals_hold_the_truth_on_a_quiet_machine() {
    check_coverage("quiet.tsv");
}

#[test]
fn intervals_hold_the_truth_on_a_disturbed_machine() {
    let disturbed = stored("disturbed.tsv").iter().flatten().filter(|turn| turn.is_disturbed).count();
    assert!(disturbed > 0, "no turn of disturbed.tsv was disturbed");
    check_coverage("disturbed.tsv");
}

#[test]
fn stored_rounds_are_read_turn_by_turn_and_damage_is_named_with_its_line() {
    let line = "0.0010\t0.00000\t0.0012\t0.30000\n";
    let text = format!("# a machine\n{}", line.repeat(10 * BLOCK));
    let rounds = rounds_of(&text).unwrap();
    assert_eq!((rounds.len(), rounds[0].len()), (10 * BLOCK, 2));
    assert_eq!(rounds[3].iter().map(|turn| turn.is_disturbed).collect::<Vec<_>>(), [false, true]);
    let unknown = rounds_of(&text.replace("0.30000", "-")).unwrap();
    assert_eq!((unknown[0][1].interference, unknown[0][1].is_disturbed), (None, false));
    assert_eq!(rounds_of(&format!("{text}0.001\n")).unwrap_err(), "line 82 ends in the middle of a turn");
    assert_eq!(rounds_of(&format!("{text}fast\t-\n")).unwrap_err(), "line 82: `fast` is not a number");
    assert_eq!(rounds_of(line).unwrap_err(), "1 rounds are too few");
}
