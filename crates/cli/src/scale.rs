//! `headroom scale`: memory and speed over batch and sequence, their growth, what fits, and what would save memory.

mod measure;
mod optimizations;
mod ranks;
mod sweeps;
mod turns;

use crate::failure::RunFailed;
use crate::output;
use crate::registry::{About, Entry, Headline};
use crate::shown::{Plain, Shown};
use crate::signals::{self, Interrupt};
use crate::study::rates::{reference_rates, room};
use crate::study::state::compact;
use crate::train::request::TrainRequest;
use crate::train::settings::Settings;
use anyhow::{bail, ensure};
use headroom_engine::DeviceSpec;
use headroom_engine::machine::memory_available_bytes;
use headroom_experiments::scale::{growth, limits};
use headroom_experiments::step_times::Division;
use headroom_record::SCHEMA_VERSION;
use headroom_record::atomic::{FileError, write_atomically, write_json};
use headroom_record::performance::PREDICTS;
use headroom_record::provenance::Provenance;
use headroom_record::scaling::{SCALING_FILE, ScalingPoint, ScalingRecord};
use headroom_record::timestamp::utc_iso;
use headroom_report::scale as text;
use headroom_training::data::BatchShape;
use measure::{Measured, Measuring};
use optimizations::optimizations;
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;
use sweeps::Sweeps;
use turns::take_turns;

/// Sweep batch and sequence: memory and speed of every point, fitted growth, what fits, and what would save memory.
#[derive(clap::Args)]
pub struct Arguments {
    /// Model size by name, as for `train`
    #[arg(long, default_value = "tiny")]
    size: String,
    /// Batch sizes to sweep, at one sequence length
    #[arg(long, value_delimiter = ',', default_value = "4,8,16", value_name = "N,…")]
    batch: Vec<usize>,
    /// Sequence lengths to sweep, at one batch size
    #[arg(long, value_delimiter = ',', default_value = "64,128,256,512", value_name = "N,…")]
    seq: Vec<usize>,
    /// The list of passes to use; v1 is the naive graph
    #[arg(long, default_value = "v1", allow_hyphen_values = true)]
    passes: String,
    /// Steps per point; the first two are warm-up
    ///
    /// From ten steps on, part of them is taken in turns after the runs: points alternate, and these steps give the times.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(3..))]
    num_steps: u64,
    /// cpu, cuda, cuda:N, or null (computes nothing: times are predicted)
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Precision of the GEMMs, as for `train` [default: fp32]
    #[arg(long)]
    precision: Option<String>,
    /// [default: the physical cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// The memory to fit into, such as 4GiB [default: the machine's free memory]
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<String>,
    /// Instead, time a step on these numbers of ranks: weak and strong scaling, predictions from one and two ranks, and the limit
    ///
    /// The launcher starts each run with one batch size and one length: the size's own, or the one that --batch and --seq name.
    #[arg(long, value_delimiter = ',', value_name = "N,…", conflicts_with = "plan_only")]
    ranks: Option<Vec<usize>>,
    /// Command that starts the ranks; {ranks} stands for their number [default: mpirun -n {ranks}, on GPUs torchrun --no-python
    /// --nproc-per-node {ranks}]
    #[arg(long, value_name = "COMMAND", requires = "ranks")]
    launcher: Option<String>,
    /// Rounds; each runs every number of ranks once
    #[arg(long, default_value_t = 3, requires = "ranks", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Plan only: run no point and no optimisation
    #[arg(long)]
    plan_only: bool,
    /// Folder for scaling.json, scaling.md, scaling.html and the points' folders [default: runs/scale-TIME]
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    #[command(flatten)]
    shown: Shown<Plain>,
}

/// Averages exclude these steps.
pub const WARMUP_STEPS: u64 = 2;
const MIB: f64 = 1024.0 * 1024.0;

pub fn run(arguments: Arguments, entry: &mut Entry) -> anyhow::Result<ExitCode> {
    let interrupt = signals::listen(|| {})?;
    if arguments.ranks.is_some() {
        return ranks::run(&arguments, entry, &interrupt);
    }
    let base = train_request(&arguments, None)?.settings()?.0;
    let sweeps = Sweeps::of(&arguments, &base)?;
    let peaks = reference_rates(&base)?;
    let rates = peaks.rates;
    let step = base.step(0);
    let mut points = sweeps.plan(&step, base.threads, &rates)?;
    let available = available(&base)?;
    let found = limits(&step, sweeps.base.seq_len, sweeps.base.batch_size, base.threads, available)?;

    let folder = new_folder(&arguments, SCALING_FILE)?;
    entry.begin(&About {
        folder: Some(&folder),
        size: Some(&arguments.size),
        version: Some(&base.passes.label()),
        configuration: json!({ "batch": arguments.batch, "seq": arguments.seq, "num_steps": arguments.num_steps }),
        device: base.device.name(),
        machine: &peaks.device,
        threads: base.threads,
        name: None,
    });
    let measuring = Measuring { folder: &folder, parent: entry.id(), stop: &interrupt.stop };
    if !arguments.plan_only {
        let total = points.len();
        for (index, point) in points.iter_mut().enumerate() {
            let title = format!("[{}/{total}]", index + 1);
            let BatchShape { batch_size, seq_len } = shape_of(&point.point);
            output::note(&format!("{title} {}", text::before_point(&point.point)));
            if base.device != DeviceSpec::Null && point.need_bytes > available {
                point.point.note = Some(format!(
                    "does not fit: it needs {:.0} MiB, and {:.0} MiB are available",
                    point.point.peak_memory_mb,
                    available as f64 / MIB
                ));
                continue;
            }
            let request = train_request(&arguments, Some(shape_of(&point.point)))?;
            match measuring.run(&request, &format!("batch_{batch_size}_seq_{seq_len}"))? {
                Measured::Done(measured) => measured.write_into(&mut point.point),
                Measured::Broken(why) => point.point.note = Some(why),
                Measured::Stopped => return Ok(stopped(entry, &interrupt)),
            }
        }
    }
    let (_, sequence_points) = sweeps.split(&points);
    let mut found_savings = match optimizations(&arguments, &base, &step, &sequence_points, available, &measuring)? {
        Some(found) => found,
        None => return Ok(stopped(entry, &interrupt)),
    };
    let race = match take_turns(&arguments, &base, &step, &mut points, &mut found_savings, &interrupt.stop)? {
        Some(race) => race,
        None => return Ok(stopped(entry, &interrupt)),
    };
    let (batch_points, sequence_points) = sweeps.split(&points);
    let record = ScalingRecord {
        schema_version: SCHEMA_VERSION,
        timestamp: utc_iso(SystemTime::now()),
        size: arguments.size.clone(),
        version: base.passes.label(),
        parameters: base.model.parameters().total(),
        device: base.device.name().into(),
        machine: peaks.device.clone(),
        threads: base.threads as u64,
        batch_scaling: growth(&batch_points, |point| point.batch_size),
        sequence_scaling: growth(&sequence_points, |point| point.seq_len),
        batch_points: batch_points.into_iter().map(|planned| planned.point).collect(),
        sequence_points: sequence_points.into_iter().map(|planned| planned.point).collect(),
        limits: found,
        optimizations: found_savings.rows,
        race,
        provenance: Provenance::default(),
    }
    .with_provenance();
    write_json(&folder.join(SCALING_FILE), &record)?;
    write_atomically(&folder.join("scaling.md"), text::markdown(&record).as_bytes())?;
    write_atomically(&folder.join("scaling.html"), text::html(&record).as_bytes())?;
    entry.figures(Headline {
        parameters: Some(record.parameters),
        peak_memory_mb: record.sequence_points.iter().map(|point| point.peak_memory_mb).max_by(f64::total_cmp),
        measured: record.device != "null" && !arguments.plan_only,
        ..Headline::default()
    });
    arguments.shown.print(&record, text::terminal)?;
    output::note(&format!("scaling.json, scaling.md and scaling.html are in {}", folder.display()));
    let broken = record.batch_points.iter().chain(&record.sequence_points).filter(|point| {
        !arguments.plan_only
            && point.step_seconds.is_none()
            && point.note.as_ref().is_none_or(|note| !note.starts_with("does not fit"))
    });
    match broken.count() {
        0 => Ok(ExitCode::SUCCESS),
        count => Err(RunFailed(format!("{count} points did not finish")).into()),
    }
}

/// Creates the folder, which must not contain a sweep.
fn new_folder(arguments: &Arguments, file: &str) -> anyhow::Result<PathBuf> {
    let folder = match &arguments.output_dir {
        Some(folder) => folder.clone(),
        None => PathBuf::from(format!("runs/scale-{}", compact(&utc_iso(SystemTime::now()), '-'))),
    };
    ensure!(!folder.join(file).exists(), "{} already holds a sweep\n  help: name another folder", folder.display());
    fs::create_dir_all(&folder).map_err(FileError::new("make the folder", &folder))?;
    Ok(folder)
}

fn stopped(entry: &mut Entry, interrupt: &Interrupt) -> ExitCode {
    entry.interrupted();
    output::note("interrupted; only the folders of the points that ran were written");
    interrupt.exit_code()
}

/// The steps of a point in its own process and in each turn; `None` if the process times itself.
fn division(arguments: &Arguments) -> Option<Division> {
    let races = arguments.ranks.is_none() && arguments.device != PREDICTS;
    Division::of(arguments.num_steps, 0).filter(|_| races)
}

/// The request to the process that runs the steps.
fn train_request(arguments: &Arguments, shape: Option<BatchShape>) -> anyhow::Result<TrainRequest> {
    Ok(TrainRequest {
        size: arguments.size.clone(),
        passes: arguments.passes.clone(),
        num_steps: Some(division(arguments).map_or(arguments.num_steps, |division| division.run)),
        warmup_steps: Some(WARMUP_STEPS),
        device: arguments.device.clone(),
        precision: arguments.precision.as_deref().map(str::parse).transpose()?,
        threads: arguments.threads,
        memory_limit: arguments.memory_limit.clone(),
        batch_size: shape.map(|shape| shape.batch_size),
        seq_len: shape.map(|shape| shape.seq_len),
        ..TrainRequest::default()
    })
}

fn available(settings: &Settings) -> anyhow::Result<usize> {
    let free = memory_available_bytes().map(|bytes| bytes as usize);
    // For the null device, the question is what would fit into this machine.
    match room(settings).or(free) {
        Some(bytes) => Ok(bytes),
        None => bail!("this system does not say how much memory is free\n  help: --memory-limit 8GiB"),
    }
}

fn shape_of(point: &ScalingPoint) -> BatchShape {
    BatchShape { batch_size: point.batch_size as usize, seq_len: point.seq_len as usize }
}
