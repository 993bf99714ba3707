//! `headroom study`: sizes × versions, each run in a separate process; one table, the analysis, and files that survive
//! a kill.

pub mod child;
mod collect;
pub mod plan;
mod profiles;
pub mod rates;
mod request;
pub mod state;
mod turns;

use crate::failure::RunFailed;
use crate::output;
use crate::registry::{About, Entry, Headline};
use crate::shown::{Plain, Shown};
use crate::signals::{self, Interrupt};
use child::{ChildEnd, run_child, wait_for_orphan};
use collect::measured_figures;
use headroom_experiments::study::{size_analysis, version_analysis};
use headroom_record::study::{StudyRecord, StudyStatus};
use headroom_report::study as text;
use plan::{PlannedRun, plan_run};
use state::Study;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use turns::{Turns, take_turns};

/// Train several sizes and versions, each in its own process, and report how speed and memory grow.
///
/// `--json` prints the content of study.json.
#[derive(clap::Args)]
pub struct Arguments {
    /// Model sizes by name, or all [default: tiny small]
    #[arg(value_name = "SIZE")]
    pub sizes: Vec<String>,
    /// Lists of passes, separated by commas: v1 (the naive graph), v2, all, or such as v2+fuse-loss [default: v2]
    #[arg(long, visible_alias = "passes", value_name = "LIST")]
    pub versions: Option<String>,
    /// Profile every run: its folder gets traces, tables and a report, and the traces also under pytorch_profiles/
    #[arg(long)]
    pub enable_profilers: bool,
    /// Steps of every size and version [default: 50 up to tiny, 15 for small, 10 above]
    ///
    /// From ten steps on, part of them is taken in turns after the runs: sizes and versions alternate, and these steps give the times.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub num_steps: Option<u64>,
    /// [default: as the size has it]
    #[arg(long)]
    pub batch_size: Option<u64>,
    /// [default: as the size has it]
    #[arg(long)]
    pub seq_len: Option<u64>,
    /// cpu, cuda, cuda:N, or null (computes nothing: predicts the memory and time of every size)
    #[arg(long)]
    pub device: Option<String>,
    /// Precision of the GEMMs, as for `train` [default: fp32]
    #[arg(long)]
    pub precision: Option<String>,
    /// [default: the physical cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Memory limit for the plan of each run, such as 4GiB [default: the machine's free memory]
    #[arg(long, value_name = "SIZE")]
    pub memory_limit: Option<String>,
    /// Folder for study.json, study.md, study.html and the runs' folders [default: runs/study-TIME]
    #[arg(long, value_name = "DIR")]
    pub output_dir: Option<PathBuf>,
    /// Continue an interrupted study: the one in --output-dir, else the newest under runs/
    #[arg(long)]
    pub resume: bool,
    #[command(flatten)]
    pub shown: Shown<Plain>,
}

pub fn run(arguments: Arguments, entry: &mut Entry) -> anyhow::Result<ExitCode> {
    let interrupt = signals::listen(|| {})?;
    let stop = &*interrupt.stop;
    let mut study = Study::open(&arguments)?;
    output::note(&text::first_line(&study.record.request));
    let request = study.record.request.clone();
    entry.begin(&About {
        folder: Some(&study.folder),
        size: Some(&request.sizes.join(",")),
        version: Some(&request.versions.join(",")),
        configuration: serde_json::to_value(&request)?,
        device: &request.device,
        machine: &study.record.machine.name,
        threads: request.threads as usize,
        name: None,
    });
    let count = study.record.runs.len();
    for index in 0..count {
        if study.record.runs[index].status.has_ended() {
            continue;
        }
        if !run_one(&mut study, index, entry.id(), stop)? {
            return Ok(stopped(&study, entry, &interrupt));
        }
    }
    if !conclude(&mut study, stop)? {
        return Ok(stopped(&study, entry, &interrupt));
    }
    entry.figures(headline(&study.record));
    arguments.shown.print(&study.record, text::terminal)?;
    output::note(&format!("study.json, study.md and study.html are in {}", study.folder.display()));
    let broken: Vec<String> = study
        .record
        .runs
        .iter()
        .filter(|run| matches!(run.status, StudyStatus::Failed | StudyStatus::Killed))
        .map(|run| format!("{} {} {}", run.size, run.version, run.status.name()))
        .collect();
    match broken.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        false => {
            Err(RunFailed(format!("{} of {count} runs did not finish: {}", broken.len(), broken.join(", "))).into())
        }
    }
}

fn stopped(study: &Study, entry: &mut Entry, interrupt: &Interrupt) -> ExitCode {
    entry.interrupted();
    output::note(&format!(
        "interrupted; finished runs are saved, `headroom study --resume --output-dir {}` continues",
        study.folder.display()
    ));
    interrupt.exit_code()
}

/// Runs one row to its end and saves it; false if the study is to stop.
fn run_one(study: &mut Study, index: usize, parent: Option<i64>, stop: &AtomicBool) -> anyhow::Result<bool> {
    let count = study.record.runs.len();
    let row = &study.record.runs[index];
    let title = format!("[{}/{count}] {} {}", index + 1, row.size, row.version);
    let PlannedRun { settings, step, figures, refusal, arguments } = plan_run(&study.record.request, row, study.rates)?;
    study.record.runs[index].planned = figures;
    if let Some(refusal) = refusal {
        output::note(&format!("{title}: {}", refusal.lines().next().unwrap_or_default()));
        study.end(index, StudyStatus::DoesNotFit, Some(refusal))?;
        return Ok(true);
    }
    let folder = study.claim_run_folder(index)?;
    let planned = &study.record.runs[index].planned;
    output::note(&format!("{title}: {}", text::before_run(planned)));

    let started = Instant::now();
    let resumed = study.record.runs[index].status == StudyStatus::Running;
    let end = match resumed.then(|| wait_for_orphan(&folder, planned.num_steps, stop)).flatten() {
        Some(end) => end,
        None => {
            study.record.runs[index].starts += 1;
            study.set_running(index, None)?;
            run_child(&arguments, &folder, parent, stop, |process_id| {
                study.set_running(index, Some(process_id)).map_err(anyhow::Error::from)
            })?
        }
    };
    let num_steps = study.record.runs[index].planned.num_steps;
    let recomputed = match step.recomputed_layers {
        0 => None,
        layers => Some(format!("activations of {layers} of {} layers are recomputed to fit", settings.model.n_layers)),
    };
    match end {
        ChildEnd::Stopped => {
            study.end(index, StudyStatus::Pending, None)?;
            return Ok(false);
        }
        ChildEnd::Finished(record) if record.training_params.num_steps == num_steps => {
            let row = &mut study.record.runs[index];
            row.wall_seconds = Some(started.elapsed().as_secs_f64());
            row.measured = measured_figures(&record, &row.planned, study.rates, &folder);
            output::note(&format!("      {}", text::after_run(row)));
            if study.record.request.enable_profilers {
                profiles::name_for_course(&folder)?;
            }
            study.end(index, StudyStatus::Finished, recomputed)?;
        }
        ChildEnd::Finished(record) => {
            let note = format!("ended after {} of {num_steps} steps", record.training_params.num_steps);
            output::note(&format!("      {note}"));
            study.end(index, StudyStatus::Failed, Some(note))?;
        }
        ChildEnd::Failed(why) => {
            output::note(&format!("      failed: {why}"));
            study.end(index, StudyStatus::Failed, Some(why))?;
        }
        ChildEnd::Killed(why) => {
            output::note(&format!("      {why}; starting the next one"));
            study.end(index, StudyStatus::Killed, Some(why))?;
        }
    }
    Ok(true)
}

/// Times all runs in turns, analyses each version from the rows and further plans of each size, and writes every file;
/// false if the study is to stop.
fn conclude(study: &mut Study, stop: &AtomicBool) -> anyhow::Result<bool> {
    study.set_scaling_factors();
    let times = match take_turns(study, stop)? {
        Turns::Taken(times) => Some(times),
        Turns::NotTaken => None,
        Turns::Stopped => return Ok(false),
    };
    let request = study.record.request.clone();
    let mut analysis = vec![];
    for version in &request.versions {
        let rows: Vec<_> = study.record.runs.iter().filter(|row| row.version == *version).collect();
        let mut sizes = vec![];
        for row in &rows {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let planned = plan_run(&request, row, study.rates)?;
            sizes.push(size_analysis(row, &planned.planning(study.rates))?);
        }
        analysis.push(version_analysis(version, &rows, sizes));
    }
    study.record.conclude(analysis, |of, over| times.as_ref()?.ratio(of, over));
    study.save()?;
    study.write_reports()?;
    Ok(true)
}

/// The largest finished run stands for the study.
fn headline(record: &StudyRecord) -> Headline {
    let finished = record.runs.iter().filter(|run| run.status == StudyStatus::Finished);
    let largest = finished.max_by_key(|run| run.planned.parameters);
    Headline {
        parameters: largest.map(|run| run.planned.parameters),
        samples_per_sec: largest.and_then(|run| run.measured.samples_per_sec),
        tokens_per_sec: largest.and_then(|run| run.measured.tokens_per_sec),
        peak_memory_mb: largest.and_then(|run| run.measured.peak_memory_mb),
        mfu_percent: largest.and_then(|run| run.measured.mfu_percent),
        measured: record.request.device != "null",
        ..Headline::default()
    }
}
