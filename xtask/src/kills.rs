//! `cargo xtask kills`: sends SIGKILL at random moments to the commands that write files, and checks that nothing was
//! lost.
//!
//! Not part of `ci`: a thousand kills take about ten minutes. The same seed gives the same moments; how far a command
//! has got by then depends on the machine.

mod place;
mod subjects;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::Outcome;
use crate::process::build_headroom;
use place::{Ending, Place};
use subjects::{SUBJECTS, Subject};

/// How often, and which commands.
#[derive(clap::Args)]
pub struct Arguments {
    /// Kills in all, shared out evenly among the commands
    #[arg(long, default_value_t = 1000)]
    count: u32,
    /// Only these commands: train, study, optimize, record, lint; separated by commas
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Chooses the moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub fn run(arguments: &Arguments) -> Result<Outcome> {
    if let Some(unknown) = arguments.only.iter().find(|name| SUBJECTS.iter().all(|subject| subject.name != **name)) {
        bail!("`{unknown}` is not one of the commands that are killed");
    }
    let binary = build_headroom("dev")?;
    let asked =
        |subject: &&Subject| arguments.only.is_empty() || arguments.only.iter().any(|name| name == subject.name);
    let subjects: Vec<&Subject> = SUBJECTS.iter().filter(asked).collect();
    let mut moments = Moments(arguments.seed);
    let mut faults = BTreeMap::<&str, Vec<String>>::new();
    for (index, subject) in subjects.iter().enumerate() {
        let share = arguments.count / subjects.len() as u32;
        let extra = u32::from((index as u32) < arguments.count % subjects.len() as u32);
        let begin = Instant::now();
        let tally = kill_often(subject, &binary, share + extra, &mut moments)
            .with_context(|| format!("the kills of `{}` could not be carried out", subject.name))?;
        println!(
            "{:<9} {} kills, {} runs that ended first, {} faults, {:.0} s",
            subject.name,
            tally.kills,
            tally.ended,
            tally.faults.len(),
            begin.elapsed().as_secs_f64()
        );
        faults.insert(subject.name, tally.faults);
    }
    for (name, fault) in faults.iter().flat_map(|(name, faults)| faults.iter().map(move |fault| (name, fault))) {
        println!("fault: {name}: {fault}");
    }
    Ok(Outcome::from_success(faults.values().all(Vec::is_empty)))
}

#[derive(Default)]
struct Tally {
    kills: u32,
    ended: u32,
    faults: Vec<String>,
}

/// After a failure the folder is abandoned: the next kill starts in a new one.
fn kill_often(subject: &Subject, binary: &std::path::Path, count: u32, moments: &mut Moments) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut place = Place::new(binary)?;
    (subject.prepare)(&place)?;
    let whole = time_of_a_whole_run(subject, &place)?;
    while tally.kills < count {
        let longest = if moments.next().is_multiple_of(4) { whole } else { whole / 2 };
        let after = longest.mul_f64(moments.fraction());
        let whole_group = moments.next().is_multiple_of(2);
        let ending = place.run_and_kill(&(subject.command)(&place), after, whole_group)?;
        let looked_at = match ending {
            Ending::Killed => {
                tally.kills += 1;
                (subject.after_a_kill)(&place)
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
            place = Place::new(binary)?;
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
