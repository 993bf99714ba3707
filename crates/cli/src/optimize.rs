//! `headroom optimize`: ranks bottlenecks, predicts gains, applies pass after pass, measures, and checks the gates.

mod arguments;
mod folder;
mod phase_3;
mod precisions;
mod script;
mod validation_record;

use crate::memory_size::parse_bytes;
use crate::output;
use crate::profile::peaks::Peaks;
use crate::registry::{About, Entry};
use crate::shown::{Plain, Shown};
use crate::train::estimate::messages_by;
use crate::train::start::{link, opening};
use crate::undecided::Undecided;
use anyhow::{Context, ensure};
pub use arguments::misplaced;
use arguments::{OwnArguments, duration};
use headroom_engine::DeviceSpec;
use headroom_engine::cuda;
use headroom_engine::machine::{Machine, memory_available_bytes};
use headroom_experiments::among_ranks::forecast;
use headroom_experiments::bench::Setting;
use headroom_experiments::ladder::{Ablation, Ladder, Wanted, Watcher, climb};
use headroom_experiments::turns::{LEAST_ROUNDS, Patience};
use headroom_graph::Precision;
use headroom_graph::cost::Rates;
use headroom_graph::passes::PassList;
use headroom_record::atomic::{write_atomically, write_json};
use headroom_record::link::Between;
use headroom_record::precisions::{PRECISIONS_FILE, PrecisionsRecord};
use headroom_record::registry::Headline;
use headroom_record::validation::{GateRecord, RankForecast, VALIDATION_FILE, ValidationRecord};
use headroom_report::optimize::precisions::{markdown as precisions_markdown, terminal as precisions_text};
use headroom_report::optimize::{gate_figure, html, markdown, terminal};
use headroom_training::data::BatchShape;
use headroom_training::models::{SIZES, Size};
use headroom_training::optimizer::OptimizerConfig;
use headroom_training::program::StepConfig;
use phase_3::Precisions;
pub use script::{PRINTED_FILE, difference};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use validation_record::{Surroundings, record_of};

/// Try every optimisation of a PyTorch script after `--`, or of headroom's own model: predict, measure, verify
///
/// With a command after `--`, of a PyTorch script. It is run unedited, many times, and what it writes is thrown away. Remedies
/// (named changes such as TF32 or compiling) are applied from outside, switched between the steps of one process, and proved in
/// fresh ones by the script's own losses, gradients and batches. What is kept becomes a patch; `headroom apply RUN` applies it.
///
/// Without one, of headroom's own model. Version 1 (the naive graph) is profiled and its bottlenecks are ranked. Lists of passes
/// are searched forwards (best prediction first) and backwards (leaving passes out) and raced in turns. The largest proven gain is
/// kept and checked by gates (limits that it must hold): loss and gradients, the loss curve, bytes, memory, speed. Activation
/// checkpointing and precisions are then tried on top of it, each behind gates of its own. Proven precisions are saved for
/// `--precision auto`.
///
/// `--json` prints the content of validation.json, or of precisions.json with `--passes`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    script: script::ScriptArguments,
    #[command(flatten)]
    own: OwnArguments,
    /// Time limit, in seconds or as `5m`: what does not fit into it is not tried, or stays undecided. For a script it holds for
    /// everything [default: 5m]; for headroom's own model it holds for finding the best list, and gates, reference points and
    /// precisions take as long again [default: 60s, and 40s more where other programs use the machine]
    #[arg(long, help_heading = BOTH, value_name = "TIME", alias = "time", value_parser = duration)]
    time_limit: Option<Duration>,
    /// Also keep what changes losses by more than rounding: `precision` (bf16 in a script, proven precisions of headroom's own model)
    #[arg(long, help_heading = BOTH, value_name = "CLASS", value_parser = ["precision"])]
    allow: Option<String>,
    /// For a script: processes per side at the end [default: 4]. Else: rounds before the race is first judged, doubled while verdicts
    /// are open; a round takes the better of two steps of each list, in turns [default: 9]
    #[arg(long, help_heading = BOTH, value_name = "N", value_parser = clap::value_parser!(u16).range(2..))]
    rounds: Option<u16>,
    /// Result of an undecided gate: pass (exit 0) or fail (exit 1)
    #[arg(long, help_heading = BOTH, value_name = "WHAT", value_enum, default_value = "pass")]
    undecided: Undecided,
    /// Seed of random numbers: the script's, or of weights and data
    #[arg(long, help_heading = BOTH, default_value_t = 42)]
    seed: u64,
    /// Folder for validation.json, optimize.md and optimize.html [default: runs/optimize-SCRIPT, or runs/optimize]
    #[arg(long, help_heading = BOTH, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    #[command(flatten, next_help_heading = BOTH)]
    shown: Shown<Plain>,
}

/// The heading of options of both halves.
const BOTH: &str = "For both";

impl Arguments {
    fn output_dir(&self) -> &Path {
        self.output_dir.as_deref().unwrap_or(Path::new("runs/optimize"))
    }

    fn rounds(&self) -> usize {
        self.rounds.map_or(ROUNDS, |rounds| usize::from(rounds).max(LEAST_ROUNDS))
    }

    /// The time for our own model.
    fn own_time(&self) -> Duration {
        self.time_limit.unwrap_or(OWN_TIME).min(MOST_TIME)
    }

    /// Whether a proved precision of our own model is kept or only reported.
    fn allowed(&self) -> Precisions {
        if self.allow.is_some() { Precisions::Kept } else { Precisions::Reported }
    }
}

const SCRIPT_TIME: Duration = Duration::from_secs(300);
const OWN_TIME: Duration = Duration::from_secs(60);

/// In addition, where no time is asked for and other programs take part of the machine.
const MORE_IF_BUSY: Duration = Duration::from_secs(40);

/// An hour at most, whatever is requested, so that sums of times cannot overflow.
const MOST_TIME: Duration = Duration::from_secs(3600);

/// Rounds before the race is first judged.
const ROUNDS: usize = 9;

pub fn run(arguments: Arguments, entry: &mut Entry) -> anyhow::Result<ExitCode> {
    if arguments.script.is_given() {
        let shared = script::Shared {
            time_limit: arguments.time_limit.unwrap_or(SCRIPT_TIME),
            allow_precision: arguments.allow.is_some(),
            rounds: arguments.rounds,
            seed: arguments.seed,
            output_dir: arguments.output_dir,
            json: arguments.shown.is_json(),
            undecided_fails: arguments.undecided.is_failure(),
        };
        return script::run(arguments.script, shared, entry);
    }
    run_own(&arguments, entry)
}

/// Optimizes our own model.
fn run_own(arguments: &Arguments, entry: &mut Entry) -> anyhow::Result<ExitCode> {
    let output_dir = arguments.output_dir();
    let machine = Machine::detect();
    let on = On::named(&arguments.own.device, &machine)?;
    let step = step_of(arguments, &on)?;
    let setting = Setting {
        seed: arguments.seed,
        device: on.kind,
        opening: opening(arguments.own.threads.map_or(machine.cores, usize::from)),
    };
    let wanted_precisions = precisions::asked(arguments.own.precisions.as_deref(), &on)?;
    let _folder = folder::ResultFolder::make(output_dir)?;
    entry.begin(&About {
        folder: Some(output_dir),
        size: Some(&arguments.own.size),
        version: None,
        configuration: json!({ "batch_size": step.shape.batch_size, "seq_len": step.shape.seq_len }),
        device: on.kind.name(),
        machine: &on.name,
        threads: setting.opening.threads,
        name: None,
    });
    if let Some(list) = &arguments.own.passes {
        let list = PassList::parse(list).map_err(anyhow::Error::msg)?;
        let mut progress = Progress { started: Instant::now() };
        let record = try_precisions(
            arguments,
            (&wanted_precisions, &on, &machine),
            (&step, &setting, &list, &[]),
            &mut progress,
        )?;
        entry.version(&list.label());
        arguments.shown.print(&record, precisions_text)?;
        let folder = output_dir.display();
        output::note(&format!("precisions.json in {folder}, after {:.0} s", progress.started.elapsed().as_secs_f64()));
        return Ok(ExitCode::SUCCESS);
    }
    let peaks = match (&on.gpu, on.kind) {
        // Version 1 is profiled, and it is launched call by call.
        (Some(gpu), DeviceSpec::Cuda(ordinal)) => Peaks::of_gpu(gpu, ordinal, step.precision, &PassList::none())?,
        _ => Peaks::of_machine(&machine, setting.opening.threads, step.precision)?,
    };
    let rounds = arguments.rounds();
    let wanted = Wanted {
        patience: Patience { rounds, most_rounds: DOUBLINGS * rounds, time: arguments.own_time() },
        curve_steps: usize::from(arguments.own.curve_steps),
        min_speedup: arguments.own.min_speedup,
        ablation: if arguments.own.ablation { Ablation::Yes } else { Ablation::No },
        more_if_busy: if arguments.time_limit.is_some() { Duration::ZERO } else { MORE_IF_BUSY },
        rates: peaks.rates,
        room: room(arguments, &on)?,
    };
    let mut progress = Progress { started: Instant::now() };
    let ladder = climb(&step, &setting, &wanted, &mut progress)?;
    let about = Surroundings { size: &arguments.own.size, step: &step, setting: &setting, device: &on.name };
    let mut record = record_of(&about, &ladder, peaks.rates.product_flops);
    if !arguments.own.ranks.is_empty() {
        record.among_ranks = among_ranks(arguments, &step, &setting, &ladder, &peaks.rates)?;
    }
    let others = match wanted_precisions.is_empty() {
        true => None,
        false => {
            let with = (&step, &setting, &ladder.kept, ladder.kept_curve.as_slice());
            Some(try_precisions(arguments, (&wanted_precisions, &on, &machine), with, &mut progress)?)
        }
    };
    record.phase_3 = phase_3::rows(&ladder, others.as_ref(), arguments.allowed());
    record.reference_points = phase_3::points(&ladder.points);
    let record = record.with_provenance();
    entry.figures(headline(&record, &step));
    entry.version(&ladder.kept.label());
    write_json(&output_dir.join(VALIDATION_FILE), &record)?;
    let more = |text: fn(&PrecisionsRecord) -> String| others.as_ref().map(text).unwrap_or_default();
    let pages = markdown(&record) + &more(precisions_markdown);
    write_atomically(&output_dir.join("optimize.md"), pages.as_bytes())?;
    write_atomically(&output_dir.join("optimize.html"), html(&record, others.as_ref()).as_bytes())?;
    arguments.shown.print(&record, |record| terminal(record) + &more(precisions_text))?;
    let took = progress.started.elapsed().as_secs_f64();
    output::note(&format!(
        "validation.json, optimize.md and optimize.html in {}, after {took:.0} s",
        output_dir.display()
    ));
    for (name, gate) in record.gates.iter().filter(|(_, gate)| gate.result != "pass") {
        let said = if gate.result == "fail" { "gate failed" } else { "gate not decided" };
        let help = if gate.result == "fail" { "" } else { UNDECIDED_HELP };
        output::note(&format!(
            "{said}: {name} is {}, the limit is {} ({}){help}",
            gate_figure(name, gate.figure),
            gate_figure(name, gate.limit),
            gate.about
        ));
    }
    Ok(if is_failure(&record.gates, arguments.undecided) { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Predicts the kept list on the requested numbers of ranks, from its measured step.
fn among_ranks(
    arguments: &Arguments,
    step: &StepConfig,
    setting: &Setting,
    ladder: &Ladder,
    rates: &Rates,
) -> anyhow::Result<Vec<RankForecast>> {
    let alone = (ladder.raced_seconds.1, rates, setting.opening.threads);
    let mut rows = Vec::new();
    for ranks in arguments.own.ranks.iter().copied().map(usize::from) {
        let between = if setting.device == DeviceSpec::Cpu { Between::Cpus } else { Between::Gpus };
        let (link, measured) = link(between, ranks);
        let messages = messages_by(measured);
        let forecast = forecast(step, &ladder.kept, alone, (ranks, &link))?;
        rows.extend(forecast.into_iter().map(|row| RankForecast { messages: messages.clone(), ..row }));
    }
    Ok(rows)
}

/// Tries precisions with a list and writes the results.
fn try_precisions(
    arguments: &Arguments,
    (wanted, on, machine): (&[Precision], &On, &Machine),
    (step, setting, list, known_curve): (&StepConfig, &Setting, &PassList, &[f32]),
    progress: &mut Progress,
) -> anyhow::Result<PrecisionsRecord> {
    let rounds = arguments.rounds();
    let about = precisions::Climb {
        size: &arguments.own.size,
        step,
        setting,
        list,
        patience: Patience {
            rounds,
            most_rounds: DOUBLINGS * rounds,
            time: arguments.own_time() / SHARE_OF_PRECISIONS,
        },
        curve_steps: usize::from(arguments.own.curve_steps),
        known_curve,
    };
    let record = precisions::run(wanted, on, machine, &about, progress)?;
    write_json(&arguments.output_dir().join(PRECISIONS_FILE), &record)?;
    Ok(record)
}

/// Precisions get this fraction of the passes' time, in addition to it.
const SHARE_OF_PRECISIONS: u32 = 6;

/// Whether the answer is no. An undecided gate counts as no only on request.
fn is_failure(gates: &BTreeMap<String, GateRecord>, undecided: Undecided) -> bool {
    gates.values().any(|gate| gate.result == "fail" || gate.result == "undecided" && undecided.is_failure())
}

const UNDECIDED_HELP: &str =
    "\n  help: use an otherwise idle machine, or a longer --time-limit; --undecided fail makes this exit 1";

/// The device that the ladder is climbed on.
struct On {
    kind: DeviceSpec,
    /// Its display name.
    name: String,
    gpu: Option<cuda::Facts>,
}

impl On {
    fn named(name: &str, machine: &Machine) -> anyhow::Result<On> {
        let kind: DeviceSpec = name.parse()?;
        ensure!(kind != DeviceSpec::Null, "there is nothing to measure on --device null\n  help: --device cpu or cuda");
        let gpu = match kind {
            DeviceSpec::Cuda(ordinal) => Some(cuda::facts(ordinal)?),
            _ => None,
        };
        let name = gpu.as_ref().map_or_else(|| machine.cpu_name.clone(), |gpu| gpu.name.clone());
        Ok(On { kind, name, gpu })
    }

    /// Bytes of memory that are free for models.
    fn room(&self) -> Option<usize> {
        match &self.gpu {
            Some(gpu) => Some(gpu.free_bytes),
            None => memory_available_bytes().map(|bytes| bytes as usize),
        }
    }
}

/// Ratio of the most rounds to those before the first look, which is three doublings: an interval that is still wide
/// will not get narrow.
const DOUBLINGS: usize = 8;

/// The headline figures of the kept list.
fn headline(record: &ValidationRecord, step: &StepConfig) -> Headline {
    let kept = record.kept_row();
    Headline {
        parameters: Some(step.model.parameters().total()),
        step_seconds: kept.map(|_| step.shape.batch_size as f64 / record.targets.samples_per_sec_after),
        peak_memory_mb: kept.map(|row| row.memory_after_mb),
        speedup: kept.map(|row| row.measured_speedup),
        measured: true,
        ..Headline::default()
    }
}

struct Progress {
    started: Instant,
}

impl Watcher for Progress {
    fn doing(&mut self, what: &str) {
        output::note(&format!("[{:5.1} s] {what}", self.started.elapsed().as_secs_f64()));
    }
}

fn step_of(arguments: &Arguments, on: &On) -> anyhow::Result<StepConfig> {
    let names: Vec<&str> = SIZES.iter().map(|size| size.name).collect();
    let size = Size::named(&arguments.own.size).with_context(|| {
        format!("there is no size `{}`\n  help: choose one of {}", arguments.own.size, names.join(", "))
    })?;
    let shape = BatchShape {
        batch_size: arguments.own.batch_size.unwrap_or(size.batch_size),
        seq_len: arguments.own.seq_len.unwrap_or(size.seq_len),
    };
    let model = size.model();
    model.validate(shape.batch_size, shape.seq_len)?;
    if let Some(asked) = arguments.own.min_speedup {
        ensure!(
            asked.is_finite() && asked > 0.0,
            "--min-speedup is {asked}
  help: a positive number, such as 1.3"
        );
    }
    let step = StepConfig {
        model,
        shape,
        optimizer: OptimizerConfig::default(),
        passes: PassList::none(),
        recomputed_layers: 0,
        precision: Precision::Fp32,
        target: on.kind.target(),
    };
    // Precisions alone hold two models of the requested shape at a time; the device refuses them if they do not fit.
    if arguments.own.passes.is_none() {
        check_memory(arguments, &step, on)?;
    }
    Ok(step)
}

/// Checks the memory of the gates, which hold two models at a time, one at twice the batch and length.
fn check_memory(arguments: &Arguments, step: &StepConfig, on: &On) -> anyhow::Result<()> {
    use headroom_training::memory::MemoryNeed;
    use headroom_training::program::{Keep, training_program};
    let Some(room) = room(arguments, on)? else { return Ok(()) };
    let shape = BatchShape { batch_size: 2 * step.shape.batch_size, seq_len: 2 * step.shape.seq_len };
    let larger = training_program(&StepConfig { shape, ..step.clone() }, Keep::Gradients)?;
    let need = 2 * MemoryNeed::of(&[larger.program], 1).total();
    ensure!(
        need <= room,
        "optimising size {} needs up to {} (two models at twice the batch and length), and {} are available\n  help: a smaller \
         --size, --batch-size or --seq-len",
        arguments.own.size,
        headroom_report::numbers::bytes(need as u64),
        headroom_report::numbers::bytes(room as u64)
    );
    Ok(())
}

/// Bytes that models may take: the limit, else the free memory.
fn room(arguments: &Arguments, on: &On) -> anyhow::Result<Option<usize>> {
    let limit = arguments.own.memory_limit.as_deref().map(|text| parse_bytes("--memory-limit", text)).transpose()?;
    Ok(limit.or(on.room()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_that_is_not_decided_is_a_no_only_where_that_was_asked_for() {
        let gates = |result: &str| -> BTreeMap<String, GateRecord> {
            let gate = |result: &str| GateRecord {
                result: result.into(),
                figure: 1.3,
                limit: 1.3,
                about: String::new(),
                ci95_low: Some(1.2),
                ci95_high: Some(1.4),
            };
            [("memory".to_string(), gate("pass")), ("throughput".to_string(), gate(result))].into()
        };
        let answers = |undecided| ["pass", "fail", "undecided"].map(|result| is_failure(&gates(result), undecided));
        assert_eq!(answers(Undecided::Pass), [false, true, false]);
        assert_eq!(answers(Undecided::Fail), [false, true, true]);
    }
}
