//! Step times of several settings (sizes, versions, shapes), taken in turns by models of this process.
//!
//! Settings alternate, so that a slow minute of the machine slows all of them. As many as fit into memory together form
//! a group; ratios within a group are paired over its rounds.

use crate::bench::{Bench, ExperimentError, Setting, Variant};
use crate::planning::PlannedStep;
use crate::turns::{Contestant, LEAST_ROUNDS, Patience, Rounds, Turn, Work, race, watched};
use headroom_engine::Target;
use headroom_record::race::RaceRecord;
use headroom_record::statistics::Interval;
use headroom_training::program::{Keep, StepConfig};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The steps of one setting: those that it takes in a process of its own, and those of each turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    pub run: u64,
    pub per_turn: u64,
}

/// Steps before the first turn on a CPU: the first one meets memory that was never touched.
const WARM_UP: u64 = 1;

/// Steps that a process of its own takes at least, two of them to warm up.
const LEAST_RUN: u64 = 4;

/// Longer turns say no more: what changes within one is averaged, and what changes between them is what counts.
const MOST_PER_TURN: u64 = 10;

impl Division {
    /// Divides as many steps as were asked for, so that turns cost no more than before; `None` if there are too few.
    /// A run that needs `least_run` steps, such as a profiled one, keeps them.
    pub fn of(steps: u64, least_run: u64) -> Option<Division> {
        let rounds = LEAST_ROUNDS as u64;
        if steps < LEAST_RUN + WARM_UP + rounds {
            return None;
        }
        let per_turn = ((steps / 2 - WARM_UP) / rounds).clamp(1, MOST_PER_TURN);
        let run = (steps - WARM_UP - rounds * per_turn).max(least_run.min(steps));
        Some(Division { run, per_turn })
    }
}

/// One setting that takes part.
pub struct Candidate {
    pub name: String,
    pub step: StepConfig,
    pub per_turn: u64,
}

/// Why there are no times.
#[derive(Debug)]
pub enum Ended {
    /// Asked to stop.
    Stopped,
    Failed(ExperimentError),
}

impl From<ExperimentError> for Ended {
    fn from(error: ExperimentError) -> Ended {
        Ended::Failed(error)
    }
}

/// Times of all candidates, by their places in the list.
pub struct StepTimes {
    groups: Vec<Group>,
    names: Vec<String>,
}

struct Group {
    members: Vec<usize>,
    rounds: Rounds,
}

impl StepTimes {
    /// Seconds per step.
    pub fn seconds(&self, of: usize) -> Option<Interval> {
        let (group, own) = self.groups.iter().find_map(|group| Some((group, group.place(of)?)))?;
        group.rounds.seconds(own)
    }

    /// Time of one divided by that of another, paired over their rounds; `None` if they were in different groups.
    pub fn ratio(&self, of: usize, over: usize) -> Option<Interval> {
        let (group, own, other) =
            self.groups.iter().find_map(|group| Some((group, group.place(of)?, group.place(over)?)))?;
        // The speed-up of the other over this one is this one's time over the other's.
        let found = group.rounds.speedup(other, own);
        Some(Interval { value: found.ratio, low: found.low, high: found.high })
    }

    /// How the race went, group by group.
    pub fn races(&self) -> Vec<RaceRecord> {
        let name = |at: &usize| self.names[*at].clone();
        self.groups
            .iter()
            .map(|group| RaceRecord::of(&group.rounds, group.members.iter().map(name).collect()))
            .collect()
    }
}

impl Group {
    fn place(&self, of: usize) -> Option<usize> {
        self.members.iter().position(|member| *member == of)
    }
}

/// Share of the free memory that the models of a group may take together.
const SHARE_OF_ROOM: f64 = 0.7;

/// Undisturbed, a race has the least number of rounds. Rounds that were disturbed are made up for, up to as many again.
/// The counters decide that and no figure, so that there is only one look.
const PATIENCE: Patience = Patience { rounds: LEAST_ROUNDS, most_rounds: 2 * LEAST_ROUNDS, time: Duration::MAX };

/// The number of rounds ends a race, and no clock.
const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Lets all candidates take turns. `room` are the bytes that their models may take, if known.
pub fn time_in_turns(
    candidates: &[Candidate],
    setting: &Setting,
    room: Option<usize>,
    stop: &AtomicBool,
    doing: &mut dyn FnMut(&str),
) -> Result<StepTimes, Ended> {
    let mut needs = vec![];
    for candidate in candidates {
        needs.push(planned_bytes(&candidate.step, setting)?);
    }
    let room = room.map(|bytes| (bytes as f64 * SHARE_OF_ROOM) as usize);
    let mut groups = vec![];
    for members in grouped(&needs, room) {
        let names: Vec<&str> = members.iter().map(|at| candidates[*at].name.as_str()).collect();
        doing(&format!("timing {} in turns", names.join(", ")));
        let mut rounds = Rounds::new(1);
        let mut runners = vec![];
        for &at in &members {
            runners.push((rounds.join(), Runner::new(&candidates[at], setting, stop)?));
        }
        let far = Instant::now() + A_YEAR;
        race(&mut rounds, &mut runners, &PATIENCE, far, &mut Rounds::is_clean_enough)?;
        groups.push(Group { members, rounds });
    }
    Ok(StepTimes { groups, names: candidates.iter().map(|candidate| candidate.name.clone()).collect() })
}

fn planned_bytes(step: &StepConfig, setting: &Setting) -> Result<usize, ExperimentError> {
    Ok(PlannedStep::new(step, setting.opening.threads)?.need.total())
}

/// Neighbours, as many as fit together; one that fits with nobody is alone.
fn grouped(needs: &[usize], room: Option<usize>) -> Vec<Vec<usize>> {
    let mut groups: Vec<(Vec<usize>, usize)> = vec![];
    for (at, need) in needs.iter().enumerate() {
        match groups.last_mut() {
            Some((group, taken)) if room.is_none_or(|room| *taken + need <= room) => {
                group.push(at);
                *taken += need;
            }
            _ => groups.push((vec![at], *need)),
        }
    }
    groups.into_iter().map(|(group, _)| group).collect()
}

struct Runner<'a> {
    bench: Bench,
    per_turn: u64,
    stop: &'a AtomicBool,
}

impl<'a> Runner<'a> {
    fn new(candidate: &Candidate, setting: &Setting, stop: &'a AtomicBool) -> Result<Runner<'a>, Ended> {
        let variant = Variant::of(&candidate.step.passes);
        let mut bench = Bench::new(&candidate.step, &variant, Keep::OnlyTheLoss, setting)?;
        let warm_up = match bench.program.target {
            Target::Cpu => WARM_UP as usize,
            Target::Cuda => bench.warm_up_steps(),
        };
        for _ in 0..warm_up {
            stopped(stop)?;
            bench.seconds()?;
        }
        Ok(Runner { bench, per_turn: candidate.per_turn.max(1), stop })
    }
}

impl Contestant for Runner<'_> {
    type Error = Ended;

    fn turn(&mut self) -> Result<Turn, Ended> {
        watched(Work::Here, || {
            seconds_of_turn(self.per_turn, || {
                stopped(self.stop)?;
                Ok(self.bench.seconds()?)
            })
        })
    }
}

fn stopped(stop: &AtomicBool) -> Result<(), Ended> {
    if stop.load(Ordering::Relaxed) { Err(Ended::Stopped) } else { Ok(()) }
}

/// Mean over the steps of a turn. The first one finds the caches filled by somebody else, and counts only if it is
/// alone.
fn seconds_of_turn(steps: u64, mut step: impl FnMut() -> Result<f64, Ended>) -> Result<f64, Ended> {
    let first = step()?;
    let mut sum = 0.0;
    for _ in 1..steps {
        sum += step()?;
    }
    Ok(if steps < 2 { first } else { sum / (steps - 1) as f64 })
}

#[cfg(test)]
mod tests;
