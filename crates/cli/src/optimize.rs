//! `headroom optimize`: ranks, predicts, applies pass after pass, measures, checks the gates.

use crate::memory_size::parse_bytes;
use anyhow::{Context, ensure};
use headroom_engine::Target;
use headroom_engine::machine::Machine;
use headroom_experiments::bench::Setting;
use headroom_experiments::ladder::{Ladder, Patience, Rung, Watcher, climb};
use headroom_graph::Precision;
use headroom_graph::passes::PassList;
use headroom_record::atomic::{FileError, write_atomically, write_json};
use headroom_record::timestamp::utc_iso;
use headroom_record::validation::{
    GateRecord, OpSeconds, VALIDATION_FILE, ValidationFacts, ValidationRecord, ValidationRow,
};
use headroom_report::optimize::markdown;
use headroom_training::config::{SIZES, Size};
use headroom_training::data::BatchShape;
use headroom_training::optimizer::{OptimizerConfig, Schedule};
use headroom_training::program::StepConfig;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Instant, SystemTime};

/// Profiles Version 1, predicts what every pass would bring, tries them best first in turns with the list before, keeps what
/// helps, and checks the kept list: loss and gradients, the loss curve, bytes, memory, speed.
#[derive(clap::Args)]
pub struct Arguments {
    /// A row of the table of sizes
    #[arg(long, default_value = "tiny")]
    size: String,
    #[arg(long)]
    batch_size: Option<usize>,
    #[arg(long)]
    seq_len: Option<usize>,
    /// [default: the physical cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// The least speed-up of the kept list over Version 1, by the lower end of its interval
    #[arg(long, default_value_t = 1.0)]
    min_speedup: f64,
    /// Turns of each side, for every comparison
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(6..))]
    rounds: u16,
    /// Steps of the final loss curve
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
    curve_steps: u16,
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Refuse a baseline that needs more than this, such as 4GiB
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<String>,
    /// Where validation.json and optimize.md go
    #[arg(long, value_name = "DIR", default_value = "runs/optimize")]
    output_dir: PathBuf,
    /// Print validation.json's content instead of the report
    #[arg(long)]
    json: bool,
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the command's result, and its progress")]
pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let step = step_of(&arguments)?;
    let machine = Machine::detect();
    let setting = Setting { threads: arguments.threads.map_or(machine.cores, usize::from), seed: arguments.seed };
    make_folder(&arguments.output_dir)?;
    let patience =
        Patience { rounds: usize::from(arguments.rounds), steps: 2, curve: usize::from(arguments.curve_steps) };
    let mut progress = Progress { started: Instant::now() };
    let ladder = climb(&step, &setting, patience, arguments.min_speedup, &mut progress)?;
    let record = record_of(&arguments, &step, &setting, &machine, &ladder);
    let text = markdown(&record);
    write_json(&arguments.output_dir.join(VALIDATION_FILE), &record)?;
    write_atomically(&arguments.output_dir.join("optimize.md"), text.as_bytes())?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&record)?);
    } else {
        print!("{text}");
    }
    eprintln!("written to {} in {:.0} s", arguments.output_dir.display(), progress.started.elapsed().as_secs_f64());
    for (name, gate) in record.gates.iter().filter(|(_, gate)| gate.result != "pass") {
        eprintln!("gate failed: {name} is {:.4e}, the limit is {:.4e} ({})", gate.figure, gate.limit, gate.about);
    }
    Ok(if record.all_gates_pass() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

struct Progress {
    started: Instant,
}

impl Watcher for Progress {
    #[expect(clippy::print_stderr, reason = "progress goes to standard error")]
    fn doing(&mut self, what: &str) {
        eprintln!("[{:5.1} s] {what}", self.started.elapsed().as_secs_f64());
    }
}

fn step_of(arguments: &Arguments) -> anyhow::Result<StepConfig> {
    let names: Vec<&str> = SIZES.iter().map(|size| size.name).collect();
    let size = Size::named(&arguments.size).with_context(|| {
        format!("there is no size `{}`\n  help: choose one of {}", arguments.size, names.join(", "))
    })?;
    let shape = BatchShape {
        batch_size: arguments.batch_size.unwrap_or(size.batch_size),
        seq_len: arguments.seq_len.unwrap_or(size.seq_len),
    };
    let model = size.model();
    model.validate(shape.batch_size, shape.seq_len)?;
    ensure!(
        arguments.min_speedup.is_finite() && arguments.min_speedup > 0.0,
        "--min-speedup is {}\n  help: a positive number, such as 1.3",
        arguments.min_speedup
    );
    let step = StepConfig {
        model,
        shape,
        optimizer: OptimizerConfig {
            learning_rate: 3e-4,
            schedule: Schedule::Constant,
            warmup_steps: 0,
            weight_decay: 0.01,
            clip: 1.0,
            accumulation: 1,
        },
        passes: PassList::none(),
        recomputed_layers: 0,
        precision: Precision::Fp32,
        target: Target::Cpu,
    };
    check_memory(arguments, &step)?;
    Ok(step)
}

/// The gates hold two models at a time, one of them at twice the batch and length.
fn check_memory(arguments: &Arguments, step: &StepConfig) -> anyhow::Result<()> {
    use headroom_engine::machine::memory_available_bytes;
    use headroom_training::memory::MemoryNeed;
    use headroom_training::program::{Keep, training_program};
    let limit = arguments.memory_limit.as_deref().map(parse_bytes).transpose()?;
    let Some(room) = limit.or(memory_available_bytes().map(|bytes| bytes as usize)) else { return Ok(()) };
    let shape = BatchShape { batch_size: 2 * step.shape.batch_size, seq_len: 2 * step.shape.seq_len };
    let larger = training_program(&StepConfig { shape, ..step.clone() }, Keep::Gradients)?;
    let need = 2 * MemoryNeed::of(&[larger.program], 1).total();
    ensure!(
        need <= room,
        "optimising size {} needs up to {} (two models at twice the batch and length), and {} are there\n  help: a \
         smaller --size, --batch-size or --seq-len",
        arguments.size,
        headroom_report::numbers::bytes(need as u64),
        headroom_report::numbers::bytes(room as u64)
    );
    Ok(())
}

fn make_folder(folder: &Path) -> Result<(), FileError> {
    std::fs::create_dir_all(folder).map_err(FileError::new("make the folder", folder))
}

fn record_of(
    arguments: &Arguments,
    step: &StepConfig,
    setting: &Setting,
    machine: &Machine,
    ladder: &Ladder,
) -> ValidationRecord {
    let op = |(op, seconds): &(&'static str, f64)| OpSeconds { op: op.to_string(), seconds: *seconds };
    let gate = |gate: &headroom_experiments::gates::Gate| {
        let result = if gate.passed { "pass" } else { "fail" };
        let record =
            GateRecord { result: result.into(), figure: gate.figure, limit: gate.limit, about: gate.about.clone() };
        (gate.name.to_string(), record)
    };
    ValidationRecord::new(ValidationFacts {
        timestamp: utc_iso(SystemTime::now()),
        size: arguments.size.clone(),
        batch_size: step.shape.batch_size as u64,
        seq_len: step.shape.seq_len as u64,
        threads: setting.threads as u64,
        device: machine.cpu_name.clone(),
        baseline_step_seconds: ladder.baseline_seconds,
        baseline_by_op: ladder.baseline_by_op.iter().map(op).collect(),
        passes: ladder.tried.iter().map(row).collect(),
        versions: ladder.versions.iter().map(row).collect(),
        kept: ladder.kept.names().iter().map(|name| name.to_string()).collect(),
        gates: ladder.gates.iter().map(gate).collect(),
    })
}

fn row(rung: &Rung) -> ValidationRow {
    const MIB: f64 = 1024.0 * 1024.0;
    let tried = rung.predicted.is_some();
    let note = rung.surprise.as_ref().map(|surprise| {
        format!(
            "{} took {:.2} ms a step, predicted {:.2} ms",
            surprise.op,
            surprise.measured_seconds * 1e3,
            surprise.predicted_seconds * 1e3
        )
    });
    ValidationRow {
        name: rung.name.clone(),
        passes: rung.list.names().iter().map(|name| name.to_string()).collect(),
        predicted_speedup: rung.predicted,
        measured_speedup: rung.measured.median,
        measured_ci95_low: rung.measured.low,
        measured_ci95_high: rung.measured.high,
        memory_before_mb: rung.memory.0 as f64 / MIB,
        memory_after_mb: rung.memory.1 as f64 / MIB,
        kernels_before: rung.kernels.0 as u64,
        kernels_after: rung.kernels.1 as u64,
        loss_difference: tried.then_some(rung.loss_difference),
        gradient_difference: tried.then_some(rung.gradient_difference),
        kept: rung.kept,
        effort: effort(&rung.name).into(),
        note,
    }
}

/// What the change would cost in a hand-written trainer.
fn effort(pass: &str) -> &'static str {
    match pass {
        "flash-attention" | "fuse-loss" | "fuse-rope" => "high",
        "fuse-norm" | "fuse-optimizer" => "medium",
        _ => "low",
    }
}
