//! `headroom scale --ranks 1,2,4`: times steps on several ranks, started by the user's launcher, alternating.

use super::{Arguments, WARMUP_STEPS, measure, new_folder, stopped, train_request};
use crate::failure::RunFailed;
use crate::output;
use crate::profile::peaks::Peaks;
use crate::registry::{About, Entry, Headline};
use crate::signals::Interrupt;
use crate::study::child::{ChildEnd, run_program};
use crate::study::rates::reference_rates;
use crate::train::request::TrainRequest;
use crate::train::settings::Settings;
use anyhow::{Context, ensure};
use headroom_engine::DeviceSpec;
use headroom_engine::machine::Machine;
use headroom_experiments::scale::ranks::{Crowded, MICRO_BATCHES, Rounds, points};
use headroom_experiments::turns::{self, Contestant, Patience, Turn, Work, watched};
use headroom_record::SCHEMA_VERSION;
use headroom_record::atomic::{write_atomically, write_json};
use headroom_record::provenance::Provenance;
use headroom_record::race::RaceRecord;
use headroom_record::rank_scaling::{RANK_SCALING_FILE, RankScalingRecord};
use headroom_record::timestamp::utc_iso;
use headroom_report::scale::ranks as text;
use headroom_training::data::BatchShape;
use headroom_training::program::{Keep, StepConfig, training_program};
use serde_json::json;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime};

pub fn run(arguments: &Arguments, entry: &mut Entry, interrupt: &Interrupt) -> anyhow::Result<ExitCode> {
    let counts = counts(arguments.ranks.as_deref().unwrap_or_default())?;
    let base = train_request(arguments, None)?.settings()?.0;
    let device = base.device;
    ensure!(
        device != DeviceSpec::Null,
        "the null device computes nothing, so there is no step to time\n  help: `headroom train --device null --ranks {}` predicts \
         one",
        counts.last().unwrap_or(&2)
    );
    let one_value = |values: &[usize], own: usize| if let [value] = values { *value } else { own };
    let shape = BatchShape {
        batch_size: one_value(&arguments.batch, base.shape.batch_size),
        seq_len: one_value(&arguments.seq, base.shape.seq_len),
    };
    base.model.validate(shape.batch_size, shape.seq_len)?;
    let cores = Machine::detect().cores;
    let most = counts.last().copied().unwrap_or(1);
    // Each rank gets as many threads as it will have beside the others: otherwise one rank alone would use all cores.
    let threads = arguments.threads.map_or((cores / most).max(1), usize::from);
    let launcher = launcher_words(arguments, device)?;
    let peaks = reference_rates(&base)?;
    let folder = new_folder(arguments, RANK_SCALING_FILE)?;
    entry.begin(&About {
        folder: Some(&folder),
        size: Some(&arguments.size),
        version: Some(&base.passes.label()),
        configuration: json!({ "ranks": counts, "rounds": arguments.rounds, "num_steps": arguments.num_steps }),
        device: device.name(),
        machine: &peaks.device,
        threads,
        name: None,
    });
    let crowded = |ranks: usize| crowded(ranks, threads, &base, shape);
    let runs = Runs { arguments, shape, threads, launcher: &launcher, folder: &folder, parent: entry.id(), interrupt };
    let fits = |ranks: usize| device != DeviceSpec::Cpu || ranks * threads <= cores;
    let jobs: Vec<Job> = counts.iter().flat_map(|&ranks| jobs(&runs, ranks, fits(ranks))).collect();
    let places: Vec<Place> = jobs.iter().map(|job| job.place).collect();
    let Some(raced) = take_turns(jobs, arguments.rounds)? else { return Ok(stopped(entry, interrupt)) };
    let mut measured = vec![];
    for &ranks in &counts {
        let crowded = if ranks > 1 { crowded(ranks)? } else { None };
        measured.push(Rounds { crowded, ..rounds_of(ranks, shape, &places, &raced) });
    }
    let race = RaceRecord::of(&raced, places.iter().map(Place::name).collect());
    let mut points = points(&measured);
    if device == DeviceSpec::Cpu {
        for point in points.iter_mut().filter(|point| point.ranks as usize * threads > cores) {
            point.note = Some(format!(
                "{} threads on {cores} cores: these times show how crowded the machine is, not how training scales",
                point.ranks as usize * threads
            ));
        }
    }
    let record = RankScalingRecord {
        schema_version: SCHEMA_VERSION,
        timestamp: utc_iso(SystemTime::now()),
        size: arguments.size.clone(),
        version: base.passes.label(),
        parameters: base.model.parameters().total(),
        device: device.name().into(),
        machine: peaks.device.clone(),
        threads: threads as u64,
        launcher: launcher.join(" "),
        rounds: arguments.rounds.into(),
        steps: arguments.num_steps - WARMUP_STEPS,
        batch_size: shape.batch_size as u64,
        seq_len: shape.seq_len as u64,
        points,
        race: Some(race),
        provenance: Provenance::default(),
    }
    .with_provenance();
    write_json(&folder.join(RANK_SCALING_FILE), &record)?;
    write_atomically(&folder.join("rank-scaling.md"), text::markdown(&record).as_bytes())?;
    write_atomically(&folder.join("rank-scaling.html"), text::html(&record).as_bytes())?;
    entry.figures(Headline { parameters: Some(record.parameters), measured: true, ..Headline::default() });
    arguments.shown.print(&record, text::terminal)?;
    output::note(&format!("rank-scaling.json, rank-scaling.md and rank-scaling.html are in {}", folder.display()));
    Ok(ExitCode::SUCCESS)
}

/// The slowdown of computing with that many ranks at a time, from the machine's peaks; `None` on GPUs, where every rank
/// has its own.
fn crowded(ranks: usize, threads: usize, base: &Settings, shape: BatchShape) -> anyhow::Result<Option<Crowded>> {
    if base.device != DeviceSpec::Cpu {
        return Ok(None);
    }
    let peaks = |threads: usize| Peaks::of_machine(&base.machine, threads, base.precision);
    let all = (ranks * threads).min(base.machine.cores);
    let step = training_program(&StepConfig { shape, ..base.step(0) }, Keep::OnlyTheLoss)?;
    Ok(Some(Crowded::of(&step.program.plan, ranks, &peaks(threads)?.rates, &peaks(all)?.rates)))
}

/// Sorted, unique, and always including one rank, which all others are compared with.
fn counts(asked: &[usize]) -> anyhow::Result<Vec<usize>> {
    ensure!(!asked.contains(&0), "--ranks has a 0 in it\n  help: numbers from 1 up, such as --ranks 1,2,4");
    let mut counts = [&[1], asked].concat();
    counts.sort();
    counts.dedup();
    Ok(counts)
}

const NUMBER: &str = "{ranks}";

fn launcher_words(arguments: &Arguments, device: DeviceSpec) -> anyhow::Result<Vec<String>> {
    let usual = match device {
        DeviceSpec::Cuda(_) => "torchrun --no-python --nproc-per-node {ranks}",
        _ => "mpirun -n {ranks}",
    };
    let given = arguments.launcher.as_deref().unwrap_or(usual);
    ensure!(
        given.contains(NUMBER),
        "--launcher does not say where the number of ranks goes\n  help: such as --launcher \"mpirun -n {NUMBER}\""
    );
    Ok(given.split_whitespace().map(str::to_string).collect())
}

struct Runs<'a> {
    arguments: &'a Arguments,
    shape: BatchShape,
    threads: usize,
    launcher: &'a [String],
    folder: &'a Path,
    parent: Option<i64>,
    interrupt: &'a Interrupt,
}

/// A kind of run, among those that take turns.
#[derive(Clone, Copy, PartialEq)]
struct Place {
    ranks: usize,
    batch_size: usize,
    kind: Kind,
}

/// One run that takes turns with the others.
struct Job<'a> {
    runs: &'a Runs<'a>,
    place: Place,
    /// Whether the machine's cores suffice. If not, ranks wait for each other, which nobody else is to blame for.
    fits: bool,
}

/// Why a race ended before its last round.
enum Ended {
    Stopped,
    Failed(anyhow::Error),
}

impl Contestant for Job<'_> {
    type Error = Ended;

    fn turn(&mut self) -> Result<Turn, Ended> {
        output::note(&self.place.name());
        let Place { ranks, batch_size, kind } = self.place;
        let run = || {
            let seconds = self.runs.run(ranks, batch_size, kind).map_err(Ended::Failed)?;
            seconds.ok_or(Ended::Stopped)
        };
        match self.fits {
            true => watched(Work::Elsewhere, run),
            false => Ok(Turn { seconds: run()?, interference: None, is_disturbed: false }),
        }
    }
}

impl Place {
    fn name(&self) -> String {
        let kind = self.kind.name().replace('_', " ");
        format!("{} ranks, batch {}{kind}", self.ranks, self.batch_size)
    }
}

/// Every kind of run for one number of ranks.
fn jobs<'a>(runs: &'a Runs<'a>, ranks: usize, fits: bool) -> Vec<Job<'a>> {
    let whole = runs.shape.batch_size;
    let job = |ranks, batch_size, kind| Job { runs, place: Place { ranks, batch_size, kind }, fits };
    let mut jobs: Vec<Job> =
        [Kind::AsAsked, Kind::WithoutOverlap, Kind::Accumulated].map(|kind| job(ranks, whole, kind)).into();
    if let Some(divided) = divided(ranks, runs.shape).filter(|_| ranks > 1) {
        jobs.push(job(ranks, divided, Kind::AsAsked));
        jobs.push(job(1, divided, Kind::AsAsked));
    }
    jobs
}

/// A rank's part of the batch; `None` if it cannot be divided.
fn divided(ranks: usize, shape: BatchShape) -> Option<usize> {
    shape.batch_size.is_multiple_of(ranks).then(|| shape.batch_size / ranks)
}

/// Lets all runs alternate; `None` if asked to stop.
fn take_turns(jobs: Vec<Job>, rounds: u16) -> anyhow::Result<Option<turns::Rounds>> {
    /// The number of rounds ends the race, and no clock.
    const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    let mut raced = turns::Rounds::new(1);
    let mut contestants: Vec<(usize, Job)> = jobs.into_iter().map(|job| (raced.join(), job)).collect();
    let patience = Patience { rounds: rounds.into(), most_rounds: rounds.into(), time: A_YEAR };
    match turns::race(&mut raced, &mut contestants, &patience, Instant::now() + A_YEAR, &mut |_| false) {
        Ok(()) => Ok(Some(raced)),
        Err(Ended::Stopped) => Ok(None),
        Err(Ended::Failed(error)) => Err(error),
    }
}

/// The times of one number of ranks, in the rounds that count.
fn rounds_of(ranks: usize, shape: BatchShape, places: &[Place], raced: &turns::Rounds) -> Rounds {
    let times = |ranks: usize, batch_size: usize, kind: Kind| {
        let wanted = Place { ranks, batch_size, kind };
        places.iter().position(|place| *place == wanted).map_or(vec![], |at| raced.times(at))
    };
    let whole = |kind: Kind| times(ranks, shape.batch_size, kind);
    let strong = divided(ranks, shape);
    Rounds {
        ranks,
        weak: whole(Kind::AsAsked),
        without_overlap: whole(Kind::WithoutOverlap),
        accumulated: whole(Kind::Accumulated),
        strong: strong.map_or(vec![], |divided| times(ranks, divided, Kind::AsAsked)),
        strong_batch_size: strong.map(|divided| divided as u64),
        divided_alone: strong.filter(|_| ranks > 1).map_or(vec![], |divided| times(1, divided, Kind::AsAsked)),
        crowded: None,
    }
}

impl Runs<'_> {
    /// Median seconds per step, or `None` if asked to stop.
    fn run(&self, ranks: usize, batch_size: usize, kind: Kind) -> anyhow::Result<Option<f64>> {
        let shape = BatchShape { batch_size, ..self.shape };
        let request = TrainRequest {
            threads: Some(u16::try_from(self.threads).context("too many threads")?),
            passes: kind.passes(&self.arguments.passes),
            gradient_accumulation_steps: (kind == Kind::Accumulated).then_some(MICRO_BATCHES),
            ..train_request(self.arguments, Some(shape))?
        };
        let words = [vec!["train".to_string()], request.flags()].concat();
        let program = std::env::current_exe().context("cannot find the program itself")?;
        let number = ranks.to_string();
        let mut launcher = self.launcher.iter().map(|word| word.replace(NUMBER, &number)).filter(|_| ranks > 1);
        let mut command = match launcher.next() {
            Some(first) => {
                let mut command = Command::new(first);
                command.args(launcher).arg(program);
                command
            }
            None => Command::new(program),
        };
        let folder = self.folder.join(format!("ranks_{ranks}_batch_{batch_size}{}", kind.name()));
        let end = run_program(&mut command, &words, &folder, self.parent, &self.interrupt.stop, |_| Ok(()))?;
        match end {
            ChildEnd::Finished(record) => {
                let median = measure::figures(&record).statistics.median;
                median.map(Some).context("a run ended without the time of its steps")
            }
            ChildEnd::Stopped => Ok(None),
            ChildEnd::Failed(why) | ChildEnd::Killed(why) => {
                let launcher = self.launcher.join(" ");
                Err(RunFailed(format!("{ranks} ranks, started by `{launcher}`, did not finish: {why}")).into())
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    AsAsked,
    WithoutOverlap,
    /// Several micro-batches per exchange.
    Accumulated,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::AsAsked => "",
            Kind::WithoutOverlap => "_without_overlap",
            Kind::Accumulated => "_accumulated",
        }
    }

    fn passes(self, asked: &str) -> String {
        match self {
            Kind::AsAsked => asked.into(),
            // Micro-batches are exchanged at the end of the step, with or without it.
            Kind::WithoutOverlap | Kind::Accumulated => format!("{asked},-overlap"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_run_takes_turns_and_is_found_again() {
        let shape = BatchShape { batch_size: 6, seq_len: 64 };
        assert_eq!([1, 2, 4].map(|ranks| divided(ranks, shape)), [Some(6), Some(3), None]);
        let mut raced = turns::Rounds::new(1);
        let kinds = [(1, 6, Kind::AsAsked), (2, 6, Kind::AsAsked), (2, 3, Kind::AsAsked), (1, 3, Kind::AsAsked)];
        let numbers = kinds.map(|_| raced.join());
        let turn = |seconds| Turn { seconds, interference: None, is_disturbed: false };
        (0..3).for_each(|_| raced.push(&numbers.map(|number| (number, turn(1.0 + number as f64)))));
        let places: Vec<Place> = kinds.map(|(ranks, batch_size, kind)| Place { ranks, batch_size, kind }).into();
        let (one, two) = (rounds_of(1, shape, &places, &raced), rounds_of(2, shape, &places, &raced));
        let first = |times: &[f64]| times.first().map(|seconds| seconds.round());
        assert_eq!((first(&one.weak), first(&one.strong), first(&one.divided_alone)), (Some(1.0), Some(1.0), None));
        assert_eq!(
            (first(&two.weak), first(&two.strong), first(&two.divided_alone)),
            (Some(2.0), Some(3.0), Some(4.0))
        );
        assert_eq!((two.weak.len(), two.strong_batch_size, two.accumulated.len()), (3, Some(3), 0));
    }

    #[test]
    fn one_rank_is_always_measured_and_every_number_once() {
        assert_eq!(counts(&[4, 2, 4]).unwrap(), [1, 2, 4]);
        assert!(counts(&[2, 0]).unwrap_err().to_string().contains("--ranks has a 0"));
    }
}
