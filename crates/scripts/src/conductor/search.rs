//! Decides which switches of a running script to keep.
//!
//! Selection (`select`): candidates race against what is kept so far, several in the same rounds. The fastest one whose
//! interval excludes 1 is kept, and the others that were faster race again on top of it. One that seems to gain little
//! waits until every other one was tried.
//!
//! Confirmation: everything kept is taken away once more, one at a time, in rounds of its own. What does not pay by itself
//! is dropped. The selection may be wrong as often as it likes: nothing is kept that the confirmation does not show, on
//! times that the selection has not seen. So the chance that a search keeps a switch without effect is at most [`CHANCE`],
//! divided among the comparisons that the confirmation can make.

mod groups;
mod rounds;
mod select;

use super::messages::{Hello, Order, Report, SwitchOffer, VERSION};
use super::race::seconds;
pub use super::verdict::{Conducted, LoggedRound, NotConducted, Shadow, Switchable, Verdict};
use super::{Lost, Stage};
use crate::remedies::{Class, Remedy};
use crate::variant::is_alternative;
use headroom_record::statistics::MISSED;
use headroom_record::turns::Speedup;
use rounds::{CONFIRMING, Purpose};
use select::is_hopeless;

/// The chance that a search keeps a switch that has no effect.
pub const CHANCE: f64 = 0.05;

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
        postponed: vec![],
        speedup: None,
        with_all_bits: None,
        usual_block: 0.0,
        code_seconds: 0.0,
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
    /// Switches that seem to gain little, with their figures so far.
    postponed: Vec<(Switchable, Speedup)>,
    speedup: Option<Speedup>,
    with_all_bits: Option<Speedup>,
    /// Seconds of the longest block of which no part was compiled.
    usual_block: f64,
    /// The longest time that a block took for code that it compiled; 0 if none was.
    code_seconds: f64,
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

    /// Replays a step with and without the switch.
    fn is_right(&mut self, remedy: &'static Remedy) -> Result<bool, Stop> {
        self.on = self.with(&[remedy]).into_iter().filter(|one| *one != remedy).collect();
        self.blocks += 1;
        let order = Order::Shadow { number: self.blocks, on: names(&self.on), switch: remedy.name.into() };
        let within = self.most_seconds(remedy.name, MOST_STEPS);
        let before = self.stage.seconds_left();
        let refused = match self.stage.perform(&order, within) {
            Ok(Report::Shadow { verdict, reason, .. }) => {
                let is_right = verdict != "differs";
                let why = reason.clone().unwrap_or_default();
                let seconds = before - self.stage.seconds_left();
                self.shadows.push(Shadow { switch: remedy.name, verdict, reason, seconds });
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
            // Neither what is shown to pay needs a further round, nor what gains too little to be pursued.
            let is_decided = |without: &Speedup| without.high < 1.0 || is_hopeless(&inverse(without));
            let missed = CHANCE / comparisons;
            let purpose = Purpose { stage: "confirm", looks: &CONFIRMING, missed, reserve: 0.0 };
            let race = match self.race(&kept, &variants, purpose, is_decided) {
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

    /// Everything kept, with others in place of those that they replace.
    fn with(&self, added: &[&'static Remedy]) -> Vec<&'static Remedy> {
        let replaces = |one: &&'static Remedy| added.iter().any(|two| one == two || is_alternative(one.name, two.name));
        self.kept.iter().copied().filter(|one| !replaces(one)).chain(added.iter().copied()).collect()
    }
}

/// The speed of the other side.
fn inverse(speedup: &Speedup) -> Speedup {
    Speedup { ratio: 1.0 / speedup.ratio, low: 1.0 / speedup.high, high: 1.0 / speedup.low, ..*speedup }
}

fn names(remedies: &[&'static Remedy]) -> Vec<String> {
    remedies.iter().map(|remedy| remedy.name.to_string()).collect()
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
