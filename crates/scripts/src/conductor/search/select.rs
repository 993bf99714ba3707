//! Selects switches: those that may gain much first, and none of them waits while another one's small gain is measured.

use super::groups::{COMPILING, Costs, Group, groups, pending};
use super::rounds::{Purpose, Race, SELECTING};
use super::{Conductor, Stop, Switchable, Verdict};
use crate::candidates::{GRAPHS, LARGE, PROMISING};
use crate::remedies::{Class, Remedy};
use crate::variant::{changes_code, compiles, is_alternative};
use headroom_record::statistics::MISSED;
use headroom_record::turns::{LEAST_ROUNDS, Speedup};

/// A switch that seems to gain less than the first of these, and at most the second, is not pursued.
const WORTH: f64 = 1.01;
const AT_MOST: f64 = 1.08;

/// One that seems to gain less than this waits until every other switch was tried.
const SMALL: f64 = 1.03;

/// Share of the time left at that point in which gains that small are measured.
const FOR_SMALL: f64 = 0.5;

/// Layouts and generated kernels may gain with fewer bits although they gain nothing without: they are tried once more.
const AGAIN_WITH_FEWER_BITS: [&str; 2] = ["channels-last", "compile"];

/// While the host's launches set the pace, no faster kernel shows: these are tried once more on top of compiled code if CUDA
/// graphs are predicted to save this share of the step.
const AGAIN_COMPILED: [&str; 3] = ["tf32", "channels-last", "fused-optimizer"];
const LAUNCH_BOUND: f64 = 0.3;

/// A group is not begun without the seconds for which it is expected to compile, or without this share of them if nothing was
/// compiled before: small models take that little.
const LEAST_OF_GUESSED: f64 = 1.0 / 3.0;

/// Fewer bits may gain nothing without this: both race together as well.
const COMPANION: &str = "channels-last";

/// Switches that are tried as one change, on top of what is kept.
type Addition = Vec<&'static Remedy>;

/// The purpose of one selection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pass {
    /// Finds out which switches gain much.
    Brief,
    /// Measures small gains.
    Thorough,
}

impl Pass {
    fn is_decided(self, speedup: &Speedup) -> bool {
        speedup.low > 1.0 || is_hopeless(speedup) || self == Pass::Brief && speedup.ratio < SMALL
    }
}

pub(super) fn is_hopeless(speedup: &Speedup) -> bool {
    speedup.ratio < WORTH && speedup.high < AT_MOST
}

impl Conductor<'_> {
    /// One group after the other, then those that seemed to gain little; what was kept changes what the rest promises.
    pub(super) fn select_all(&mut self, waiting: Vec<Switchable>) -> Result<(), Stop> {
        let selected = self.select_briefly(waiting).and_then(|()| self.select_small());
        // Whatever ended it: these were measured, and showed no gain.
        for (switch, speedup) in std::mem::take(&mut self.postponed) {
            if self.verdicts.iter().all(|(remedy, ..)| *remedy != switch.remedy) {
                self.verdicts.push((switch.remedy, Verdict::NoGain, Some(speedup)));
            }
        }
        selected
    }

    fn select_briefly(&mut self, mut waiting: Vec<Switchable>) -> Result<(), Stop> {
        let all = waiting.clone();
        let is_launch_bound =
            all.iter().any(|one| one.remedy.name == GRAPHS && one.predicted.is_some_and(|share| share >= LAUNCH_BOUND));
        let (mut has_fewer_bits, mut has_compiled) = (false, !is_launch_bound);
        loop {
            waiting.retain(|switch| match self.superfluous(switch) {
                Some(why) => {
                    self.verdicts.push((switch.remedy, Verdict::Superfluous(why), None));
                    false
                }
                None => true,
            });
            let groups = self.groups(waiting.clone());
            let Some((group, later)) = groups.split_first() else { break };
            waiting.retain(|switch| !group.switches.contains(switch));
            self.select(group, if group.is_promising() { 0.0 } else { pending(later) }, Pass::Brief)?;
            if !has_fewer_bits && self.kept.iter().any(|one| one.class == Class::Precision) {
                has_fewer_bits = true;
                waiting.extend(self.tried_again(&all, &AGAIN_WITH_FEWER_BITS));
            }
            if !has_compiled && self.kept.iter().any(|one| compiles(one.name)) {
                has_compiled = true;
                waiting.extend(self.tried_again(&all, &AGAIN_COMPILED));
            }
        }
        // Time that was left for others, and that they did not find to be enough, is there for those that left it.
        let open: Vec<Switchable> = all.into_iter().filter(|switch| self.is_open(switch)).collect();
        for group in self.groups(open) {
            self.select(&group, 0.0, Pass::Brief)?;
        }
        Ok(())
    }

    fn groups(&self, switches: Vec<Switchable>) -> Vec<Group> {
        let round = LEAST_ROUNDS as f64 * self.block_seconds();
        groups(switches, &Costs { round, compiling: &|one| self.compiling_seconds(one) })
    }

    /// Whether nothing is known of it yet.
    fn is_open(&self, switch: &Switchable) -> bool {
        !self.kept.contains(&switch.remedy)
            && self.verdicts.iter().all(|(remedy, ..)| *remedy != switch.remedy)
            && self.postponed.iter().all(|(one, _)| one.remedy != switch.remedy)
    }

    /// Those that seemed to gain little race together, for a part of the time that is left.
    fn select_small(&mut self) -> Result<(), Stop> {
        let switches: Vec<Switchable> = self.postponed.iter().map(|(switch, _)| switch.clone()).collect();
        let after = FOR_SMALL * self.stage.seconds_left();
        if switches.is_empty() {
            Ok(())
        } else {
            self.select(&Group { switches, seconds: 0.0, compiling: 0.0 }, after, Pass::Thorough)
        }
    }

    /// Why a switch need not be tried any more.
    fn superfluous(&self, switch: &Switchable) -> Option<String> {
        if let Some((kept, more)) = self.replaced(switch) {
            return (more < LARGE).then(|| format!("{kept} was selected in its place, and it promises no more"));
        }
        let is_idle = |verdict: &Verdict| matches!(verdict, Verdict::NoGain | Verdict::Slower);
        let has_failed = self.verdicts.iter().any(|(remedy, verdict, _)| remedy.name == "compile" && is_idle(verdict))
            || self.postponed.iter().any(|(one, _)| one.remedy.name == "compile");
        let promises = switch.predicted.is_some_and(|share| share > PROMISING);
        (switch.remedy.name != "compile" && compiles(switch.remedy.name) && has_failed && !promises)
            .then(|| "compile gains nothing worth the minutes, and it compiles less".into())
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

    /// Expected seconds of compiling for a switch: twice for what compiles, since its shadow step has code of its own, and
    /// once more for what changes code that is kept.
    fn compiling_seconds(&self, switch: &Switchable) -> f64 {
        let once = if self.code_seconds > 0.0 { self.code_seconds } else { COMPILING / 2.0 };
        let is_compiled = self.kept.iter().any(|one| compiles(one.name));
        match switch.remedy.name {
            name if compiles(name) => 2.0 * once,
            name if is_compiled && changes_code(name) => once,
            _ => 0.0,
        }
    }

    /// Switches without a gain so far that may have one on top of what was selected since.
    fn tried_again(&mut self, all: &[Switchable], which: &[&str]) -> Vec<Switchable> {
        let is_again = |name: &str| which.contains(&name);
        self.postponed.retain(|(switch, _)| !is_again(switch.remedy.name));
        self.verdicts.retain(|(remedy, verdict, _)| {
            !is_again(remedy.name) || !matches!(verdict, Verdict::NoGain | Verdict::Slower)
        });
        all.iter().filter(|switch| is_again(switch.remedy.name) && self.is_open(switch)).cloned().collect()
    }

    /// Fewer bits are tried alone and in another layout, if the script has convolutions that could have one.
    fn additions(&self, remedy: &'static Remedy) -> Vec<Addition> {
        let measured =
            self.verdicts.iter().filter(|(_, verdict, _)| matches!(verdict, Verdict::NoGain | Verdict::Slower));
        let measured = measured.map(|(remedy, ..)| *remedy);
        let mut others = measured.chain(self.postponed.iter().map(|(switch, _)| switch.remedy));
        let companion = others.find(|one| one.name == COMPANION && remedy.class == Class::Precision);
        [vec![remedy]].into_iter().chain(companion.map(|one| vec![remedy, one])).collect()
    }

    /// Tries a group of switches on top of what is kept, and leaves `after` seconds to others besides the confirmation.
    fn select(&mut self, switches: &Group, after: f64, pass: Pass) -> Result<(), Stop> {
        let proofs = switches.switches.iter().map(|switch| switch.proof_seconds).fold(self.proof_seconds, f64::max);
        let room = self.stage.seconds_left() - after - self.confirmation_seconds() - proofs;
        let least = if self.code_seconds > 0.0 { 1.0 } else { LEAST_OF_GUESSED };
        if room < least * switches.compiling {
            return Ok(());
        }
        let mut group: Vec<Addition> = vec![];
        for switch in &switches.switches {
            if self.stage.is_over() {
                return Err(Stop::Time);
            }
            // A group that finds no time is left; a later one may need none of it.
            if self.stage.seconds_left() <= after + self.proof_seconds.max(switch.proof_seconds) {
                return Ok(());
            }
            // Those that are measured once more were right before.
            if pass == Pass::Thorough || self.is_right(switch.remedy)? {
                group.extend(self.additions(switch.remedy));
            }
        }
        while !group.is_empty() {
            let variants: Vec<_> = group.iter().map(|added| self.with(added)).collect();
            let base = self.kept.clone();
            let is_in = |switch: &&Switchable| group.iter().any(|added| added.contains(&switch.remedy));
            let proofs = switches.switches.iter().filter(is_in).map(|switch| switch.proof_seconds);
            let proof_seconds = proofs.fold(self.proof_seconds, f64::max);
            let reserve = self.confirmation_seconds() + proof_seconds + after;
            let purpose = Purpose { stage: "select", looks: &SELECTING, missed: MISSED, reserve };
            let race = match self.race(&base, &variants, purpose, |speedup| pass.is_decided(speedup)) {
                Err(Stop::Time) if after > 0.0 && !self.stage.is_over() => return Ok(()),
                race => race?,
            };
            let mut faster = self.judge(&group, &race, switches, pass);
            faster.sort_by(|one, other| other.1.low.total_cmp(&one.1.low));
            let Some((best, speedup)) = faster.first().cloned() else { break };
            self.kept = self.with(&best);
            self.gained *= speedup.ratio;
            self.proof_seconds = proof_seconds;
            self.note_kept(&best, speedup, &group, &race);
            let rest = faster[1..].iter().map(|(added, _)| added.iter().copied().filter(|one| !best.contains(one)));
            group = rest.map(Iterator::collect).filter(|added: &Addition| !added.is_empty()).collect();
            group.dedup();
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

    /// The additions that are faster; the others get their verdicts, or wait.
    fn judge(&mut self, group: &[Addition], race: &Race, switches: &Group, pass: Pass) -> Vec<(Addition, Speedup)> {
        let mut faster: Vec<(Addition, Speedup)> = vec![];
        for (at, added) in group.iter().enumerate() {
            let out = race.out[at].clone();
            let speedup = race.speedup(at + 1, 0);
            if out.is_none() && speedup.low > 1.0 {
                faster.push((added.clone(), speedup));
                continue;
            }
            // The figure of two together says nothing of either.
            let [remedy] = added[..] else { continue };
            let known = switches.switches.iter().find(|switch| switch.remedy == remedy);
            let verdict = match (out, known) {
                (Some(out), _) => (out, None),
                (None, _) if speedup.high < 1.0 => (Verdict::Slower, Some(speedup)),
                (None, Some(switch)) if pass == Pass::Brief && !is_hopeless(&speedup) => {
                    self.postponed.push((switch.clone(), speedup));
                    continue;
                }
                (None, _) => (Verdict::NoGain, Some(speedup)),
            };
            self.verdicts.push((remedy, verdict.0, verdict.1));
        }
        faster
    }

    /// Those that were kept together share the figure: the second has what it adds to the first.
    fn note_kept(&mut self, best: &Addition, speedup: Speedup, group: &[Addition], race: &Race) {
        let of = |added: &[&'static Remedy]| group.iter().position(|one| one[..] == *added).map(|at| at + 1);
        for (at, remedy) in best.iter().enumerate() {
            let own = match (at, of(best), of(&best[..1])) {
                (1.., Some(both), Some(first)) => race.speedup(both, first),
                _ => speedup,
            };
            self.postponed.retain(|(switch, _)| switch.remedy != *remedy);
            self.verdicts.retain(|(one, ..)| one != remedy);
            self.verdicts.push((remedy, Verdict::Kept, Some(own)));
        }
    }
}
