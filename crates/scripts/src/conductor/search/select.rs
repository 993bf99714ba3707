//! Selects switches: those that may gain much first, and none of them waits while another one's small gain is measured.

use super::groups::{Group, groups, pending};
use super::rounds::{Purpose, Race, SELECTING};
use super::{Conductor, Stop, Switchable, Verdict};
use crate::candidates::{LARGE, PROMISING};
use crate::remedies::{Class, Remedy};
use crate::variant::{compiles, is_alternative};
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
        let mut has_fewer_bits = false;
        loop {
            waiting.retain(|switch| match self.superfluous(switch) {
                Some(why) => {
                    self.verdicts.push((switch.remedy, Verdict::Superfluous(why), None));
                    false
                }
                None => true,
            });
            let round_seconds = LEAST_ROUNDS as f64 * self.block_seconds();
            let groups = groups(waiting.clone(), round_seconds);
            let Some((group, later)) = groups.split_first() else { return Ok(()) };
            waiting.retain(|switch| !group.switches.contains(switch));
            self.select(group, if group.is_promising() { 0.0 } else { pending(later) }, Pass::Brief)?;
            if !has_fewer_bits && self.kept.iter().any(|one| one.class == Class::Precision) {
                has_fewer_bits = true;
                waiting.extend(self.tried_again(&all));
            }
        }
    }

    /// Those that seemed to gain little race together, for a part of the time that is left.
    fn select_small(&mut self) -> Result<(), Stop> {
        let switches: Vec<Switchable> = self.postponed.iter().map(|(switch, _)| switch.clone()).collect();
        let after = FOR_SMALL * self.stage.seconds_left();
        if switches.is_empty() { Ok(()) } else { self.select(&Group { switches, seconds: 0.0 }, after, Pass::Thorough) }
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

    /// Switches without a gain so far that may have one with fewer bits.
    fn tried_again(&mut self, all: &[Switchable]) -> Vec<Switchable> {
        let is_again = |name: &str| AGAIN_WITH_FEWER_BITS.contains(&name);
        self.postponed.retain(|(switch, _)| !is_again(switch.remedy.name));
        self.verdicts.retain(|(remedy, verdict, _)| {
            !is_again(remedy.name) || !matches!(verdict, Verdict::NoGain | Verdict::Slower)
        });
        let is_open = |switch: &&Switchable| {
            is_again(switch.remedy.name)
                && !self.kept.contains(&switch.remedy)
                && self.verdicts.iter().all(|(remedy, ..)| *remedy != switch.remedy)
        };
        all.iter().filter(is_open).cloned().collect()
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
