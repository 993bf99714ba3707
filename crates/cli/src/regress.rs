//! `headroom regress`: compares a run with a saved one, by the interval of their step times; the exit code is the
//! answer.

mod turns;

use crate::output;
use crate::registry::{Filter, Registry};
use crate::shown::{Plain, Shown};
use crate::signals;
use crate::undecided::Undecided;
use anyhow::{Context, bail, ensure};
use headroom_record::registry::change::{Change, LEAST_STEPS};
use headroom_record::registry::{RunRow, RunStatus};
use headroom_report::runs::{Regression, different_settings, regression};
use std::path::PathBuf;
use std::process::ExitCode;
use turns::{Side, take_turns};

/// Compare a run with a baseline run: exit 1 if its steps are slower, judged by interval.
///
/// A regression is an interval that lies entirely beyond the threshold. An interval that contains the threshold is undecided:
/// exit 0, unless `--undecided fail`.
#[derive(clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct Arguments {
    /// The baseline run: its name or number. `headroom runs name RUN NAME` names one, and so does `train --name`
    #[arg(long, value_name = "RUN")]
    baseline: String,
    /// The run to judge: a number, a name, or newest (the newest finished one with measured steps that no study or sweep started)
    #[arg(default_value = "newest")]
    run: String,
    /// Percent by which the step time may grow
    #[arg(long, default_value_t = 5.0, value_name = "PERCENT")]
    threshold: f64,
    /// Percent by which planned memory may grow [default: any]
    #[arg(long, value_name = "PERCENT")]
    max_memory_growth: Option<f64>,
    /// Also compare runs with different settings, machines or devices
    #[arg(long)]
    even_if_different: bool,
    /// Run both again in turns, this many times each, and judge by that: recorded times come from another hour and another load
    #[arg(long, value_name = "ROUNDS", num_args = 0..=1, default_missing_value = "5", value_parser = clap::value_parser!(u16).range(3..=100))]
    rerun: Option<u16>,
    /// With --rerun: another build of headroom that runs the baseline
    #[arg(long, value_name = "PROGRAM", requires = "rerun")]
    baseline_headroom: Option<PathBuf>,
    /// Result of an undecided comparison: pass (exit 0) or fail (exit 1)
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Undecided::Pass)]
    undecided: Undecided,
    #[command(flatten)]
    shown: Shown<Plain>,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let percents = [("--threshold", Some(arguments.threshold)), ("--max-memory-growth", arguments.max_memory_growth)];
    for (flag, percent) in percents {
        let usable = percent.is_none_or(|percent| percent.is_finite() && percent >= 0.0);
        ensure!(usable, "{flag} is {}\n  help: a percentage from 0 up", percent.unwrap_or_default());
    }
    let registry = Registry::open()?;
    let baseline = registry.find(&arguments.baseline)?;
    let run = judged(&registry, &baseline, &arguments.run)?;
    refuse_predicted(&baseline)?;
    refuse_predicted(&run)?;
    let differences = differences(&baseline, &run);
    if !arguments.even_if_different && !differences.is_empty() {
        bail!(
            "runs {} and {} cannot be compared: {}\n  help: choose a run of the same settings, or add --even-if-different",
            baseline.id,
            run.id,
            differences.join("; ")
        );
    }
    let turns = match arguments.rerun {
        None => vec![],
        Some(rounds) => {
            let interrupt = signals::listen(|| {})?;
            let sides = (Side::of(&baseline, arguments.baseline_headroom.as_deref())?, Side::of(&run, None)?);
            let Some(turns) = take_turns(&sides.0, &sides.1, rounds, run.id, &interrupt.stop)? else {
                output::note("interrupted; nothing is decided");
                return Ok(interrupt.exit_code());
            };
            turns
        }
    };
    let change = match turns.is_empty() {
        true => Change::of(&steps_of(&registry, &baseline)?, &steps_of(&registry, &run)?)
            .context("the runs have too few steps for an interval")?,
        false => {
            let medians: Vec<_> = turns.iter().map(|turn| (turn.baseline_seconds, turn.run_seconds)).collect();
            Change::of_turns(&medians).context("the rounds have no interval")?
        }
    };
    let memory = baseline.figures.peak_memory_mb.zip(run.figures.peak_memory_mb);
    let growth = memory.filter(|(before, _)| *before > 0.0).map(|(before, after)| 100.0 * (after / before - 1.0));
    let memory_regressed = growth.zip(arguments.max_memory_growth).is_some_and(|(growth, most)| growth > most);
    let answer = Regression {
        verdict: change.verdict(arguments.threshold / 100.0),
        change,
        threshold_percent: arguments.threshold,
        memory_growth_percent: growth,
        max_memory_growth_percent: arguments.max_memory_growth,
        memory_regressed,
        turns,
        notes: notes(&baseline, &run, differences),
        baseline,
        run,
    };
    arguments.shown.print(&answer, regression)?;
    if answer.is_undecided() {
        let help = if arguments.rerun.is_some() { "more rounds" } else { "--rerun, which runs both in turns" };
        output::note(&format!("help: {help}, or an otherwise idle machine; --undecided fail makes this exit 1"));
    }
    let is_failure = answer.regressed() || answer.is_undecided() && arguments.undecided.is_failure();
    Ok(ExitCode::from(u8::from(is_failure)))
}

fn judged(registry: &Registry, baseline: &RunRow, which: &str) -> anyhow::Result<RunRow> {
    if which != "newest" {
        return Ok(registry.find(which)?);
    }
    let finished = Filter { status: Some(RunStatus::Finished), ..Filter::default() };
    let candidates = registry.list(&finished)?.into_iter();
    let mut with_steps = candidates.filter(|run| {
        run.id != baseline.id
            && run.start.parent.is_none()
            && !run.is_predicted()
            && run.figures.step_seconds_low.is_some()
    });
    with_steps.next().context(
        "there is no finished run with measured steps besides the baseline\n  help: run `headroom train` or `headroom \
         profile` first; a predicted run (--device null) is not judged",
    )
}

/// A predicted time has no noise and belongs to no machine: comparing it says nothing about a change of speed.
fn refuse_predicted(run: &RunRow) -> anyhow::Result<()> {
    ensure!(
        !run.is_predicted(),
        "run {} computed nothing (--device null): its times are predicted, and a regression needs measured ones\n  help: \
         choose a measured run; `headroom runs list` marks predicted times with ~",
        run.id
    );
    Ok(())
}

fn steps_of(registry: &Registry, run: &RunRow) -> anyhow::Result<Vec<f64>> {
    ensure!(
        run.status == RunStatus::Finished,
        "run {} did not finish ({})\n  help: choose a finished one",
        run.id,
        run.status.name()
    );
    let steps = registry.step_seconds(run.id)?;
    ensure!(
        steps.len() >= LEAST_STEPS,
        "run {} has {} steps after its warm-up, and an interval needs {LEAST_STEPS}\n  help: a longer run, such as \
         --num-steps 50",
        run.id,
        steps.len()
    );
    Ok(steps)
}

/// Differences that make the two times incomparable.
fn differences(baseline: &RunRow, run: &RunRow) -> Vec<String> {
    let (old, new) = (&baseline.start, &run.start);
    let mut found = vec![];
    let mut differ = |what: &str, old: &str, new: &str| {
        if old != new {
            found.push(format!("{what} {old}, {new}"));
        }
    };
    differ("machine", &old.machine, &new.machine);
    differ("device", &old.device, &new.device);
    differ("threads", &old.threads.to_string(), &new.threads.to_string());
    let steps = |setting: &String| !setting.starts_with("num_steps ");
    found.extend(different_settings(&[baseline.clone(), run.clone()]).into_iter().filter(steps));
    found
}

/// Differences in passes and versions, which a gate exists to judge; they are only listed.
fn notes(baseline: &RunRow, run: &RunRow, mut differences: Vec<String>) -> Vec<String> {
    let (old, new) = (&baseline.start, &run.start);
    let pairs = [
        ("passes", old.version.as_deref().unwrap_or("none"), new.version.as_deref().unwrap_or("none")),
        ("headroom", &old.headroom_version, &new.headroom_version),
        ("command", &old.command, &new.command),
    ];
    differences.extend(
        pairs.into_iter().filter(|(_, old, new)| old != new).map(|(what, old, new)| format!("{what} {old} → {new}")),
    );
    differences
}
