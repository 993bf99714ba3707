//! Decides which switches of a running script to keep.
//!
//! Selection: candidates race against what is kept so far, several in the same rounds. The fastest one whose interval
//! excludes 1 is kept, and the others that were faster race again on top of it.
//!
//! Confirmation: everything kept is taken away once more, one at a time, in rounds of its own. What does not pay by itself
//! is dropped. The selection may be wrong as often as it likes: nothing is kept that the confirmation does not show, on
//! times that the selection has not seen. So the chance that a search keeps a switch without effect is at most [`CHANCE`],
//! divided among the comparisons that the confirmation can make.

use super::groups::groups;
use super::messages::{Block, Hello, Order, Report, VERSION};
use super::race::{paired, seconds};
pub use super::verdict::{Conducted, NotConducted, Switchable, Verdict};
use super::{Lost, Stage};
use crate::candidates::LARGE;
use crate::remedies::{Class, Remedy};
use crate::variant::{compiles, is_alternative};
use headroom_record::statistics::MISSED;
use headroom_record::turns::{LEAST_ROUNDS, Rounds, Speedup, Turn, Work};

/// The chance that a search keeps a switch that has no effect.
pub const CHANCE: f64 = 0.05;

/// A switch that seems to gain less than the first of these, and at most the second, is not pursued: the time goes to
/// others.
const WORTH: f64 = 1.01;
const AT_MOST: f64 = 1.08;

/// The length of a block, in seconds and in steps.
pub(super) const BLOCK_SECONDS: f64 = 0.4;
pub(super) const LEAST_STEPS: u32 = 4;
const MOST_STEPS: u32 = 40;
/// Steps in which any change settles, and the most times that a block takes longer than its steps because of it.
const SETTLING: u32 = 2;
const MOST_SETTLING: f64 = 3.0;

/// Rounds before the looks of a selection, and of a confirmation.
pub(super) const SELECTING: [usize; 3] = [LEAST_ROUNDS, 2 * LEAST_ROUNDS, 4 * LEAST_ROUNDS];
const CONFIRMING: [usize; 3] = [LEAST_ROUNDS, 2 * LEAST_ROUNDS, 4 * LEAST_ROUNDS];

/// A block may take this many times as long as expected, and this many seconds more; with new code also those for compiling.
const SLOW: f64 = 10.0;
const SLOW_SECONDS: f64 = 30.0;
const COMPILING_MOST: f64 = 240.0;

/// Processes that a search starts at most, and voids of one block before its switch is given up.
const MOST_STARTS: usize = 12;
const MOST_VOIDS: usize = 2;

/// Searches among the switches that the script offers, until the stage's time is up.
pub fn conduct(stage: &mut dyn Stage, wanted: &[Switchable], seed: u64) -> Result<Conducted, NotConducted> {
    let mut conductor = Conductor {
        stage,
        offered: Hello { version: VERSION, device: String::new(), steps: 0, switches: vec![] },
        random: fastrand::Rng::with_seed(seed),
        step_seconds: 0.0,
        on: vec![],
        kept: vec![],
        verdicts: vec![],
        speedup: None,
        with_all_bits: None,
        usual_block: 0.0,
        blocks: 0,
        processes: 0,
    };
    let done = conductor.search(wanted);
    conductor.stage.end();
    match done {
        Ok(()) | Err(Stop::Time) => {}
        Err(Stop::Script(why)) => return Err(NotConducted(why)),
    }
    let Conductor { kept, mut verdicts, speedup, with_all_bits, blocks, processes, .. } = conductor;
    for switch in wanted {
        if verdicts.iter().all(|(remedy, ..)| *remedy != switch.remedy) {
            verdicts.push((switch.remedy, Verdict::Late, None));
        }
    }
    Ok(Conducted { kept, verdicts, speedup, with_all_bits, blocks, processes })
}

struct Conductor<'a> {
    stage: &'a mut dyn Stage,
    offered: Hello,
    random: fastrand::Rng,
    /// Seconds per step of the unmodified script.
    step_seconds: f64,
    /// Switched on in the running process.
    on: Vec<&'static Remedy>,
    kept: Vec<&'static Remedy>,
    verdicts: Vec<(&'static Remedy, Verdict, Option<Speedup>)>,
    speedup: Option<Speedup>,
    with_all_bits: Option<Speedup>,
    /// Seconds of the longest block of which no part was compiled.
    usual_block: f64,
    blocks: u64,
    processes: usize,
}

/// Why the search ends before its end.
enum Stop {
    Time,
    Script(String),
}

/// Why a block was not measured.
enum Miss {
    Failed(String),
    Void(String),
    Stop(Stop),
}

impl Conductor<'_> {
    fn search(&mut self, wanted: &[Switchable]) -> Result<(), Stop> {
        self.start()?;
        let base = self.measured_base()?;
        self.step_seconds =
            seconds(&base).ok_or_else(|| Stop::Script("none of its steps was a training step alone".into()))?;
        let (possible, others): (Vec<_>, Vec<_>) = wanted.iter().partition(|switch| self.is_offered(switch.remedy));
        for switch in others {
            let why = self.offered.switches.iter().find(|offer| offer.name == switch.remedy.name);
            let why =
                why.and_then(|offer| offer.obstacle.clone()).unwrap_or("it acts only when the script starts".into());
            self.verdicts.push((switch.remedy, Verdict::Untried(why), None));
        }
        match self.select_all(possible) {
            Ok(()) | Err(Stop::Time) => self.confirm(),
            stopped => stopped,
        }
    }

    /// One group after the other; what was kept changes what the rest promises.
    fn select_all(&mut self, mut waiting: Vec<&Switchable>) -> Result<(), Stop> {
        loop {
            waiting.retain(|switch| match self.replaced(switch) {
                Some((kept, more)) if more < LARGE => {
                    let why = format!("{kept} was kept, and it promises no more");
                    self.verdicts.push((switch.remedy, Verdict::Superfluous(why), None));
                    false
                }
                _ => true,
            });
            let Some(group) = groups(waiting.clone(), self.step_seconds).into_iter().next() else { return Ok(()) };
            waiting.retain(|switch| !group.contains(&switch.remedy));
            self.select(group)?;
        }
    }

    /// The kept switch that this one would replace, and the share of the step that it promises beyond that one's saving.
    fn replaced(&self, switch: &Switchable) -> Option<(&'static str, f64)> {
        let is_it = |(remedy, verdict, _): &&(&'static Remedy, Verdict, Option<Speedup>)| {
            *verdict == Verdict::Kept && is_alternative(remedy.name, switch.remedy.name)
        };
        let (remedy, _, speedup) = self.verdicts.iter().find(is_it)?;
        let saved = speedup.map_or(0.0, |speedup| 1.0 - 1.0 / speedup.ratio);
        Some((remedy.name, switch.predicted.unwrap_or(0.0) - saved))
    }

    fn is_offered(&self, remedy: &Remedy) -> bool {
        let is_it = |offer: &&super::messages::SwitchOffer| offer.name == remedy.name;
        self.offered
            .switches
            .iter()
            .find(is_it)
            .is_some_and(|offer| offer.is_between_steps() && offer.obstacle.is_none())
    }

    fn start(&mut self) -> Result<(), Stop> {
        if self.processes >= MOST_STARTS {
            return Err(Stop::Script(format!("{MOST_STARTS} processes of it ended before the search did")));
        }
        self.processes += 1;
        self.on.clear();
        match self.stage.start() {
            Ok(hello) if hello.version != VERSION => Err(Stop::Script("the hook is of another version".into())),
            Ok(hello) => {
                self.offered = hello;
                Ok(())
            }
            Err(Lost::Ended) => Err(Stop::Script("it ends before it takes orders".into())),
            Err(Lost::Failed(why)) => Err(Stop::Script(why)),
            Err(Lost::TimeUp) => Err(Stop::Time),
        }
    }

    /// Tries a group of switches on top of what is kept.
    fn select(&mut self, mut group: Vec<&'static Remedy>) -> Result<(), Stop> {
        let mut right = vec![];
        for remedy in group {
            if self.is_right(remedy)? {
                right.push(remedy);
            }
        }
        group = right;
        while !group.is_empty() {
            let variants: Vec<_> = group.iter().map(|remedy| self.with(remedy)).collect();
            let base = self.kept.clone();
            let reserve = self.confirmation_seconds();
            let is_hopeless = |speedup: &Speedup| speedup.ratio < WORTH && speedup.high < AT_MOST;
            let is_decided = |speedup: &Speedup| is_hopeless(speedup) || speedup.low > 1.0;
            let race = self.race(&base, &variants, (&SELECTING[..], MISSED), reserve, is_decided)?;
            let mut faster: Vec<(&'static Remedy, Speedup)> = vec![];
            for (at, &remedy) in group.iter().enumerate() {
                match &race.out[at] {
                    Some(verdict) => self.verdicts.push((remedy, verdict.clone(), None)),
                    None => {
                        let speedup = race.speedup(at + 1, 0);
                        match speedup {
                            Speedup { low, .. } if low > 1.0 => faster.push((remedy, speedup)),
                            Speedup { high, .. } if high < 1.0 => {
                                self.verdicts.push((remedy, Verdict::Slower, Some(speedup)));
                            }
                            _ => self.verdicts.push((remedy, Verdict::NoGain, Some(speedup))),
                        }
                    }
                }
            }
            faster.sort_by(|one, other| other.1.low.total_cmp(&one.1.low));
            let Some((best, speedup)) = faster.first().copied() else { break };
            self.kept = self.with(best);
            self.verdicts.push((best, Verdict::Kept, Some(speedup)));
            group = faster[1..].iter().map(|(remedy, _)| *remedy).collect();
        }
        // Those that another one replaced.
        let kept = self.kept.clone();
        for (remedy, verdict, _) in &mut self.verdicts {
            if *verdict == Verdict::Kept && !kept.contains(remedy) {
                *verdict = Verdict::NoGain;
            }
        }
        Ok(())
    }

    /// Replays a step with and without the switch.
    fn is_right(&mut self, remedy: &'static Remedy) -> Result<bool, Stop> {
        self.on = self.with(remedy).into_iter().filter(|one| *one != remedy).collect();
        self.blocks += 1;
        let order = Order::Shadow { number: self.blocks, on: names(&self.on), switch: remedy.name.into() };
        let within = self.most_seconds(remedy.name, MOST_STEPS);
        let refused = match self.stage.perform(&order, within) {
            Ok(Report::Shadow { verdict, reason, .. }) if verdict == "differs" => {
                Verdict::Differs(reason.unwrap_or_default())
            }
            Ok(Report::Shadow { .. }) => return Ok(true),
            Ok(Report::Failed { text, .. }) | Err(Lost::Failed(text)) => {
                self.start()?;
                Verdict::Failed(text)
            }
            Ok(other) => return Err(Stop::Script(format!("unexpected answer: {other:?}"))),
            Err(Lost::Ended) => {
                self.start()?;
                return self.is_right(remedy);
            }
            Err(Lost::TimeUp) => return Err(Stop::Time),
        };
        self.verdicts.push((remedy, refused, None));
        Ok(false)
    }

    /// Takes everything away once more, one at a time, until each of them pays by itself.
    fn confirm(&mut self) -> Result<(), Stop> {
        let comparisons = (self.kept.len() * (self.kept.len() + 1) / 2).max(1) as f64;
        while !self.kept.is_empty() {
            let kept = self.kept.clone();
            let mut variants: Vec<Vec<&'static Remedy>> =
                kept.iter().map(|remedy| kept.iter().copied().filter(|one| one != remedy).collect()).collect();
            variants.push(vec![]);
            // A variant that is slower than everything together needs no further round.
            let looks = (&CONFIRMING[..], CHANCE / comparisons);
            let race = self.race(&kept, &variants, looks, 0.0, |speedup| speedup.high < 1.0);
            let race = match race {
                Ok(race) => race,
                Err(stop) => {
                    self.drop_kept();
                    return Err(stop);
                }
            };
            // Without one of them a script may fail that runs with all: then it is needed.
            let gain = |at: usize| match race.out[at] {
                Some(_) => Speedup { ratio: f64::MAX, low: f64::MAX, high: f64::MAX, rounds: 0 },
                None => race.speedup(0, at + 1),
            };
            let weakest = (0..kept.len()).filter(|at| gain(*at).low <= 1.0);
            let weakest = weakest.min_by(|one, other| gain(*one).ratio.total_cmp(&gain(*other).ratio));
            let Some(at) = weakest else {
                // Nothing is decided by these figures, so they have the usual interval.
                let all = kept.len() + 1;
                self.speedup = Some(race.rounds.speedup_missing(0, all, MISSED));
                let fewer: Vec<usize> =
                    (0..kept.len()).filter(|at| kept[*at].class == Class::Precision).map(|at| at + 1).collect();
                self.with_all_bits = match fewer[..] {
                    [] => self.speedup,
                    _ if fewer.len() == kept.len() => None,
                    [one] if race.out[one - 1].is_none() => Some(race.rounds.speedup_missing(one, all, MISSED)),
                    _ => None,
                };
                return Ok(());
            };
            self.kept.remove(at);
            if let Some(row) = self.verdicts.iter_mut().find(|(remedy, ..)| *remedy == kept[at]) {
                (row.1, row.2) = (Verdict::NoGain, Some(gain(at)));
            }
        }
        Ok(())
    }

    /// What there was no time to confirm is left to fresh processes.
    fn drop_kept(&mut self) {
        for (_, verdict, _) in self.verdicts.iter_mut().filter(|(_, verdict, _)| *verdict == Verdict::Kept) {
            *verdict = Verdict::Untried("too little time was left to confirm it".into());
        }
        self.kept.clear();
    }

    /// Everything kept, with another one in place of those that it replaces.
    fn with(&self, remedy: &'static Remedy) -> Vec<&'static Remedy> {
        let stays = |one: &&&'static Remedy| **one != remedy && !is_alternative(one.name, remedy.name);
        self.kept.iter().filter(stays).copied().chain([remedy]).collect()
    }

    /// Rounds of blocks in random order. A variant leaves once it is decided at a look, or fails. Time that is up, or left
    /// only for the confirmation, ends it with the rounds that it has. `missed` is the error probability of one ratio over
    /// all looks, among which it is divided.
    fn race(
        &mut self,
        base: &[&'static Remedy],
        variants: &[Vec<&'static Remedy>],
        (looks, missed): (&[usize], f64),
        reserve: f64,
        is_decided: impl Fn(&Speedup) -> bool,
    ) -> Result<Race, Stop> {
        let mut out: Vec<Option<Verdict>> = vec![None; variants.len()];
        let mut active: Vec<usize> = (0..variants.len()).collect();
        // The clock may end it, which is one look more.
        let missed = missed / (looks.len() + 1) as f64;
        let mut rounds = Rounds::new(1);
        rounds.join();
        for _ in variants {
            rounds.join();
        }
        let mut unpaired = 0;
        let most = looks.last().copied().unwrap_or(LEAST_ROUNDS);
        while rounds.count() < most && !active.is_empty() {
            let is_time_up = self.stage.seconds_left() <= reserve;
            if is_time_up && rounds.count() >= LEAST_ROUNDS {
                break;
            }
            if is_time_up {
                return Err(Stop::Time);
            }
            let mut order: Vec<Option<usize>> = active.iter().copied().map(Some).chain([None]).collect();
            self.random.shuffle(&mut order);
            let mut own: Option<Block> = None;
            let mut blocks: Vec<(usize, Block)> = vec![];
            let has_enough = rounds.count() >= LEAST_ROUNDS;
            for next in order {
                match (next, self.block(next.map_or(base, |at| variants[at].as_slice()))) {
                    (None, Ok(block)) => own = Some(block),
                    (Some(at), Ok(block)) => blocks.push((at, block)),
                    (_, Err(Miss::Stop(Stop::Time))) if has_enough => return Ok(Race { rounds, missed, out }),
                    (_, Err(Miss::Stop(stop))) => return Err(stop),
                    (None, Err(Miss::Failed(why) | Miss::Void(why))) => return Err(Stop::Script(why)),
                    (Some(at), Err(Miss::Failed(why))) => out[at] = Some(Verdict::Failed(why)),
                    (Some(at), Err(Miss::Void(why))) => out[at] = Some(Verdict::Void(why)),
                }
            }
            active.retain(|at| out[*at].is_none());
            let Some(turns) = own.as_ref().and_then(|own| turns(own, &blocks)) else {
                unpaired += 1;
                if unpaired > LEAST_ROUNDS {
                    return Err(Stop::Script("its inputs have other shapes in every step".into()));
                }
                continue;
            };
            rounds.push(&turns);
            if looks.contains(&rounds.count()) {
                active.retain(|at| !is_decided(&rounds.speedup_missing(at + 1, 0, missed)));
            }
        }
        Ok(Race { rounds, missed, out })
    }

    /// A block of the unmodified script, from which the length of later ones follows.
    fn measured_base(&mut self) -> Result<Block, Stop> {
        self.block(&[]).map_err(|miss| match miss {
            Miss::Failed(why) | Miss::Void(why) => Stop::Script(why),
            Miss::Stop(stop) => stop,
        })
    }

    /// One block with these on. A script that ends is started again; one that fails as well, without them.
    fn block(&mut self, on: &[&'static Remedy]) -> Result<Block, Miss> {
        let mut voids = 0;
        let mut ends = 0;
        loop {
            let steps = self.block_steps();
            let changed = self.on.iter().chain(on).filter(|one| self.on.contains(one) != on.contains(one));
            let settling = |one: &&'static Remedy| {
                self.offered.switches.iter().find(|offer| offer.name == one.name).map_or(0, |offer| offer.settle)
            };
            let settle = changed.map(settling).max().map_or(1, |settle| settle.max(SETTLING));
            let within = on
                .iter()
                .map(|one| self.most_seconds(one.name, settle + steps))
                .fold(self.most_seconds("", settle + steps), f64::max);
            self.blocks += 1;
            let order = Order::Block { number: self.blocks, on: names(on), settle, steps };
            self.on = on.to_vec();
            let before = self.stage.seconds_left();
            match self.stage.perform(&order, within) {
                Ok(Report::Block(block)) => match block.void.clone() {
                    None => {
                        self.note_duration(before - self.stage.seconds_left(), settle + steps);
                        return Ok(block);
                    }
                    // Compiling ends once all sizes were seen; anything else stays as it is.
                    Some(why) if voids >= MOST_VOIDS || !why.starts_with("compiled") => return Err(Miss::Void(why)),
                    Some(_) => voids += 1,
                },
                Ok(Report::Failed { text, .. }) | Err(Lost::Failed(text)) => {
                    self.start().map_err(Miss::Stop)?;
                    return Err(Miss::Failed(text));
                }
                Ok(Report::Ended { .. }) | Err(Lost::Ended) => {
                    ends += 1;
                    if ends > 1 {
                        return Err(Miss::Stop(Stop::Script(format!("it ends before {steps} steps are timed"))));
                    }
                    self.start().map_err(Miss::Stop)?;
                }
                Ok(other) => return Err(Miss::Stop(Stop::Script(format!("unexpected answer: {other:?}")))),
                Err(Lost::TimeUp) => return Err(Miss::Stop(Stop::Time)),
            }
        }
    }

    /// Blocks wait for workers' batches and for steps to settle, but those that compile are no measure of others.
    fn note_duration(&mut self, seconds: f64, steps: u32) {
        let most = MOST_SETTLING * f64::from(steps) * self.step_seconds.max(1e-9);
        if self.step_seconds > 0.0 {
            self.usual_block = self.usual_block.max(seconds.min(most));
        }
    }

    /// Seconds that confirming one more than is kept takes at least.
    fn confirmation_seconds(&self) -> f64 {
        let steps = f64::from(SETTLING + self.block_steps());
        CONFIRMING[0] as f64 * (self.kept.len() + 3) as f64 * (steps * self.step_seconds).max(self.usual_block)
    }

    fn block_steps(&self) -> u32 {
        if self.step_seconds <= 0.0 {
            return LEAST_STEPS;
        }
        ((BLOCK_SECONDS / self.step_seconds).ceil() as u32).clamp(LEAST_STEPS, MOST_STEPS)
    }

    /// The most seconds that so many steps may take.
    fn most_seconds(&self, name: &str, steps: u32) -> f64 {
        let compiling = if compiles(name) { COMPILING_MOST } else { 0.0 };
        let first = if self.step_seconds > 0.0 { 0.0 } else { COMPILING_MOST };
        SLOW * f64::from(steps) * self.step_seconds + SLOW_SECONDS + compiling + first
    }
}

struct Race {
    rounds: Rounds,
    /// Error probability of one look at one of its ratios.
    missed: f64,
    /// By variant, why it left before its time.
    out: Vec<Option<Verdict>>,
}

impl Race {
    fn speedup(&self, of: usize, over: usize) -> Speedup {
        self.rounds.speedup_missing(of, over, self.missed)
    }
}

/// The turns of one round: each variant relative to the block it is compared with, over the shapes that both have.
fn turns(own: &Block, blocks: &[(usize, Block)]) -> Option<Vec<(usize, Turn)>> {
    let turn = |seconds: f64| Turn::new(Work::Elsewhere, seconds, None);
    let base = seconds(own)?;
    let ratio = |(at, block): &(usize, Block)| {
        let (before, after) = paired(own, block)?;
        Some((at + 1, turn(base * after / before)))
    };
    let others: Vec<(usize, Turn)> = blocks.iter().filter_map(ratio).collect();
    (!others.is_empty() || blocks.is_empty()).then(|| [(0, turn(base))].into_iter().chain(others).collect())
}

fn names(remedies: &[&'static Remedy]) -> Vec<String> {
    remedies.iter().map(|remedy| remedy.name.to_string()).collect()
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
