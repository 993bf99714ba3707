//! Decides which switches of a running script to keep.
//!
//! Selection: candidates race against what is kept so far, several in the same rounds. The fastest one whose interval
//! excludes 1 is kept, and the others that were faster race again on top of it.
//!
//! Confirmation: everything kept is taken away once more, one at a time, in rounds of its own. What does not pay by itself
//! is dropped. The selection may be wrong as often as it likes: nothing is kept that the confirmation does not show, on
//! times that the selection has not seen. So the chance that a search keeps a switch without effect is at most [`CHANCE`],
//! divided among the comparisons that the confirmation can make.

mod groups;
mod rounds;

use super::messages::{Hello, Order, Report, SwitchOffer, VERSION};
use super::race::seconds;
pub use super::verdict::{Conducted, LoggedRound, NotConducted, Shadow, Switchable, Verdict};
use super::{Lost, Stage};
use crate::candidates::LARGE;
use crate::remedies::{Class, Remedy};
use crate::variant::is_alternative;
use groups::{Group, groups, pending};
use headroom_record::statistics::MISSED;
use headroom_record::turns::{LEAST_ROUNDS, Speedup};
use rounds::{CONFIRMING, Purpose, SELECTING};

/// The chance that a search keeps a switch that has no effect.
pub const CHANCE: f64 = 0.05;

/// A switch that seems to gain less than the first of these, and at most the second, is not pursued: the time goes to
/// others.
const WORTH: f64 = 1.01;
const AT_MOST: f64 = 1.08;

/// The most steps of a block.
const MOST_STEPS: u32 = 40;

/// Why a switch was left when a person ended the search.
const INTERRUPTED: &str = "the search was interrupted";

/// Processes that a search starts at most.
const MOST_STARTS: usize = 12;

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
        gained: 1.0,
        proof_seconds: 0.0,
        shadows: vec![],
        rounds: vec![],
        races: 0,
        blocks: 0,
        processes: 0,
    };
    let done = conductor.search(wanted);
    conductor.stage.end();
    match done {
        Ok(()) | Err(Stop::Time) => {}
        Err(Stop::Script(why)) => return Err(NotConducted(why)),
    }
    let late = if conductor.stage.is_over() { Verdict::Untried(INTERRUPTED.into()) } else { Verdict::Late };
    let Conductor { kept, mut verdicts, speedup, with_all_bits, .. } = conductor;
    let Conductor { offered, shadows, rounds, blocks, processes, .. } = conductor;
    for switch in wanted {
        if verdicts.iter().all(|(remedy, ..)| *remedy != switch.remedy) {
            verdicts.push((switch.remedy, late.clone(), None));
        }
    }
    let offers = offered.switches;
    Ok(Conducted { kept, verdicts, speedup, with_all_bits, offers, shadows, rounds, blocks, processes })
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
    /// The product of what was selected, before it is confirmed.
    gained: f64,
    /// The longest of the proofs that what was selected needs.
    proof_seconds: f64,
    shadows: Vec<Shadow>,
    rounds: Vec<LoggedRound>,
    races: u64,
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
        match self.select_all(possible.into_iter().cloned().collect()) {
            Ok(()) | Err(Stop::Time) => self.confirm(),
            stopped => stopped,
        }
    }

    /// One group after the other; what was kept changes what the rest promises.
    fn select_all(&mut self, mut waiting: Vec<Switchable>) -> Result<(), Stop> {
        loop {
            waiting.retain(|switch| match self.replaced(switch) {
                Some((kept, more)) if more < LARGE => {
                    let why = format!("{kept} was kept, and it promises no more");
                    self.verdicts.push((switch.remedy, Verdict::Superfluous(why), None));
                    false
                }
                _ => true,
            });
            let round_seconds = LEAST_ROUNDS as f64 * self.block_seconds();
            let groups = groups(waiting.clone(), round_seconds);
            let Some((group, later)) = groups.split_first() else { return Ok(()) };
            waiting.retain(|switch| !group.switches.contains(switch));
            self.select(group, if group.is_promising() { 0.0 } else { pending(later) })?;
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
        let is_it = |offer: &&SwitchOffer| offer.name == remedy.name;
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

    /// Tries a group of switches on top of what is kept, and leaves `after` seconds to others besides the confirmation.
    fn select(&mut self, switches: &Group, after: f64) -> Result<(), Stop> {
        let mut group = vec![];
        for switch in &switches.switches {
            if self.stage.is_over() {
                return Err(Stop::Time);
            }
            // A group that finds no time is left; a later one may need none of it.
            if self.stage.seconds_left() <= after + self.proof_seconds.max(switch.proof_seconds) {
                return Ok(());
            }
            if self.is_right(switch.remedy)? {
                group.push(switch.remedy);
            }
        }
        while !group.is_empty() {
            let variants: Vec<_> = group.iter().map(|remedy| self.with(remedy)).collect();
            let base = self.kept.clone();
            let proofs = switches.switches.iter().filter(|switch| group.contains(&switch.remedy));
            let proof_seconds = proofs.map(|switch| switch.proof_seconds).fold(self.proof_seconds, f64::max);
            let reserve = self.confirmation_seconds() + proof_seconds + after;
            let purpose = Purpose { stage: "select", looks: &SELECTING, missed: MISSED, reserve };
            let is_hopeless = |speedup: &Speedup| speedup.ratio < WORTH && speedup.high < AT_MOST;
            let is_decided = |speedup: &Speedup| is_hopeless(speedup) || speedup.low > 1.0;
            let race = match self.race(&base, &variants, purpose, is_decided) {
                Err(Stop::Time) if after > 0.0 && !self.stage.is_over() => return Ok(()),
                race => race?,
            };
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
            self.gained *= speedup.ratio;
            self.proof_seconds = proof_seconds;
            self.verdicts.push((best, Verdict::Kept, Some(speedup)));
            group = faster[1..].iter().map(|(remedy, _)| *remedy).collect();
        }
        let kept = self.kept.clone();
        for (remedy, verdict, _) in &mut self.verdicts {
            if *verdict == Verdict::Kept && !kept.contains(remedy) {
                let by = kept.iter().find(|one| is_alternative(one.name, remedy.name));
                *verdict = by.map_or(Verdict::NoGain, |by| Verdict::Replaced(by.name));
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
            Ok(Report::Shadow { verdict, reason, .. }) => {
                let is_right = verdict != "differs";
                let why = reason.clone().unwrap_or_default();
                self.shadows.push(Shadow { switch: remedy.name, verdict, reason });
                if is_right {
                    return Ok(true);
                }
                Verdict::Differs(why)
            }
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
            // Without the only one there is nothing left: these blocks are the unmodified script's already.
            if kept.len() > 1 {
                variants.push(vec![]);
            }
            // A variant that is slower than everything together needs no further round.
            let missed = CHANCE / comparisons;
            let purpose = Purpose { stage: "confirm", looks: &CONFIRMING, missed, reserve: 0.0 };
            let race = match self.race(&kept, &variants, purpose, |speedup| speedup.high < 1.0) {
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
                let all = variants.len();
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

    /// Leaves to fresh processes whatever there was no time to confirm.
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
}

fn names(remedies: &[&'static Remedy]) -> Vec<String> {
    remedies.iter().map(|remedy| remedy.name.to_string()).collect()
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
