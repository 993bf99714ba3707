//! Rounds of blocks: every variant in random order, compared with the block of what is kept.

use super::super::Lost;
use super::super::messages::{Block, Order, Report};
use super::super::race::{paired, seconds};
use super::{Conductor, LoggedRound, MOST_STEPS, Miss, Stop, Verdict, names};
use crate::moment::{Count, Moment};
use crate::remedies::Remedy;
use crate::variant::compiles;
use headroom_record::turns::{LEAST_ROUNDS, Rounds, Speedup, Turn, Work};

/// The length of a block, in seconds and in steps.
const BLOCK_SECONDS: f64 = 0.4;
const LEAST_STEPS: u32 = 4;
/// Steps in which any change settles, and the most times that a block takes longer than its steps because of it.
const SETTLING: u32 = 2;
const MOST_SETTLING: f64 = 3.0;

/// Rounds before the looks of a selection, and of a confirmation. Blocks on a GPU differ by less than a percent, so that
/// three rounds select what saves much; what was selected is confirmed with the rounds of which one can be trimmed.
pub(super) const SELECTING: [usize; 4] = [3, LEAST_ROUNDS, 2 * LEAST_ROUNDS, 4 * LEAST_ROUNDS];
pub(super) const CONFIRMING: [usize; 3] = [LEAST_ROUNDS, 2 * LEAST_ROUNDS, 4 * LEAST_ROUNDS];

/// A block may take this many times as long as expected, and this many seconds more; with new code also those for compiling.
const SLOW: f64 = 10.0;
const SLOW_SECONDS: f64 = 30.0;
const COMPILING_MOST: f64 = 240.0;

/// Voids of one block before its switch is given up.
const MOST_VOIDS: usize = 2;

/// The purpose of a race.
#[derive(Clone, Copy, Debug)]
pub(super) struct Purpose {
    /// `select` or `confirm`.
    pub(super) stage: &'static str,
    pub(super) looks: &'static [usize],
    /// The error probability of one ratio over all looks, among which it is divided.
    pub(super) missed: f64,
    /// Seconds that it leaves to others.
    pub(super) reserve: f64,
}

impl Purpose {
    fn phase(&self) -> &'static str {
        if self.stage == "confirm" { "confirming" } else { "switching" }
    }
}

pub(super) struct Race {
    pub(super) rounds: Rounds,
    /// Error probability of one look at one of its ratios.
    missed: f64,
    /// By variant, why it left before its time.
    pub(super) out: Vec<Option<Verdict>>,
}

impl Race {
    pub(super) fn speedup(&self, of: usize, over: usize) -> Speedup {
        self.rounds.speedup_missing(of, over, self.missed)
    }
}

impl Conductor<'_> {
    /// Rounds of blocks in random order. A variant leaves once it is decided at a look, or fails. Time that is up, or left
    /// only for others, ends it with the rounds that it has; a request to end does so with a selection.
    pub(super) fn race(
        &mut self,
        base: &[&'static Remedy],
        variants: &[Vec<&'static Remedy>],
        purpose: Purpose,
        is_decided: impl Fn(&Speedup) -> bool,
    ) -> Result<Race, Stop> {
        let mut out: Vec<Option<Verdict>> = vec![None; variants.len()];
        let mut active: Vec<usize> = (0..variants.len()).collect();
        // The clock may end it, which is one look more.
        let missed = purpose.missed / (purpose.looks.len() + 1) as f64;
        let mut rounds = Rounds::new(1);
        rounds.join();
        for _ in variants {
            rounds.join();
        }
        self.races += 1;
        let mut unpaired = 0;
        let [least, .., most] = *purpose.looks else { return Err(Stop::Time) };
        while rounds.count() < most && !active.is_empty() {
            let is_time_up =
                self.stage.seconds_left() <= purpose.reserve || purpose.stage == "select" && self.stage.is_over();
            if is_time_up && rounds.count() >= least {
                break;
            }
            if is_time_up {
                return Err(Stop::Time);
            }
            self.show(base, variants, &active, (purpose, rounds.count(), most));
            let mut order: Vec<Option<usize>> = active.iter().copied().map(Some).chain([None]).collect();
            self.random.shuffle(&mut order);
            let mut own: Option<Block> = None;
            let mut blocks: Vec<(usize, Block)> = vec![];
            let has_enough = rounds.count() >= least;
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
            self.log(purpose.stage, rounds.count() + 1, base, variants, &turns);
            let turn = |(at, seconds): &(usize, f64)| (*at, Turn::new(Work::Elsewhere, *seconds, None));
            rounds.push(&turns.iter().map(turn).collect::<Vec<_>>());
            if purpose.looks.contains(&rounds.count()) {
                active.retain(|at| !is_decided(&rounds.speedup_missing(at + 1, 0, missed)));
            }
        }
        Ok(Race { rounds, missed, out })
    }

    fn show(
        &mut self,
        base: &[&'static Remedy],
        variants: &[Vec<&'static Remedy>],
        active: &[usize],
        (purpose, done, of): (Purpose, usize, usize),
    ) {
        let changed = |at: &usize| {
            let variant = &variants[*at];
            let added = variant.iter().find(|one| !base.contains(one));
            added.or_else(|| base.iter().find(|one| !variant.contains(one))).map(|one| one.name)
        };
        let mut remedies: Vec<&'static str> = active.iter().filter_map(changed).collect();
        remedies.dedup();
        let count = Some(Count { unit: "round", done: done as u64 + 1, of: of as u64 });
        let best = (!self.kept.is_empty()).then_some(self.gained);
        self.stage.show(&Moment { phase: purpose.phase(), remedies, count, best });
    }

    fn log(
        &mut self,
        stage: &'static str,
        number: usize,
        base: &[&'static Remedy],
        variants: &[Vec<&'static Remedy>],
        turns: &[(usize, f64)],
    ) {
        let on = |at: usize| if at == 0 { names(base) } else { names(&variants[at - 1]) };
        let blocks = turns.iter().map(|(at, seconds)| (on(*at), *seconds)).collect();
        let seconds_left = self.stage.seconds_left();
        self.rounds.push(LoggedRound { race: self.races, stage, round: number as u64, seconds_left, blocks });
    }

    /// A block of the unmodified script, from which the length of later ones follows.
    pub(super) fn measured_base(&mut self) -> Result<Block, Stop> {
        self.block(&[]).map_err(|miss| match miss {
            Miss::Failed(why) | Miss::Void(why) => Stop::Script(why),
            Miss::Stop(stop) => stop,
        })
    }

    /// One block with these on. A script that ends is started again; one that fails as well, without them.
    fn block(&mut self, on: &[&'static Remedy]) -> Result<Block, Miss> {
        let mut voids = 0;
        let mut ends = 0;
        let begin = self.stage.seconds_left();
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
                        if on.iter().any(|one| compiles(one.name)) {
                            let beyond = begin - self.stage.seconds_left() - self.block_seconds();
                            self.code_seconds = self.code_seconds.max(beyond);
                        }
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

    /// Blocks wait for workers' batches and for steps to settle, but those that compile say nothing about others.
    fn note_duration(&mut self, seconds: f64, steps: u32) {
        let most = MOST_SETTLING * f64::from(steps) * self.step_seconds.max(1e-9);
        if self.step_seconds > 0.0 {
            self.usual_block = self.usual_block.max(seconds.min(most));
        }
    }

    /// Seconds that confirming one more than is kept takes at least.
    pub(super) fn confirmation_seconds(&self) -> f64 {
        let kept = self.kept.len() + 1;
        let blocks = kept + 1 + usize::from(kept > 1);
        CONFIRMING[0] as f64 * blocks as f64 * self.block_seconds()
    }

    /// Expected seconds of one block.
    pub(super) fn block_seconds(&self) -> f64 {
        (f64::from(SETTLING + self.block_steps()) * self.step_seconds).max(self.usual_block)
    }

    fn block_steps(&self) -> u32 {
        if self.step_seconds <= 0.0 {
            return LEAST_STEPS;
        }
        ((BLOCK_SECONDS / self.step_seconds).ceil() as u32).clamp(LEAST_STEPS, MOST_STEPS)
    }

    /// The most seconds that so many steps may take.
    pub(super) fn most_seconds(&self, name: &str, steps: u32) -> f64 {
        let compiling = if compiles(name) { COMPILING_MOST } else { 0.0 };
        let first = if self.step_seconds > 0.0 { 0.0 } else { COMPILING_MOST };
        SLOW * f64::from(steps) * self.step_seconds + SLOW_SECONDS + compiling + first
    }
}

/// The seconds per step of one round: each variant relative to the block it is compared with, over the shapes that both
/// have.
fn turns(own: &Block, blocks: &[(usize, Block)]) -> Option<Vec<(usize, f64)>> {
    let base = seconds(own)?;
    let ratio = |(at, block): &(usize, Block)| {
        let (before, after) = paired(own, block)?;
        Some((at + 1, base * after / before))
    };
    let others: Vec<(usize, f64)> = blocks.iter().filter_map(ratio).collect();
    (!others.is_empty() || blocks.is_empty()).then(|| [(0, base)].into_iter().chain(others).collect())
}
