//! One run of a study before it starts: the arguments of its process, what its plan says, and whether it can fit at all.

use super::rates::room;
use super::request::passes_of;
use crate::train::plan::Planned;
use crate::train::settings::Settings;
use clap::Parser;
use headroom_experiments::planning::PlannedStep;
use headroom_experiments::study::Planning;
use headroom_graph::cost::Rates;
use headroom_record::study::{PlannedFigures, StudyRequest, StudyRow};
use headroom_training::program::{Keep, StepConfig};

pub struct PlannedRun {
    pub settings: Settings,
    pub step: StepConfig,
    pub figures: PlannedFigures,
    /// What it needs and what would fit, where it does not.
    pub refusal: Option<String>,
    /// Of the process, without its folder.
    pub arguments: Vec<String>,
}

/// The flags of `train`, as a program of their own.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Flags {
    #[command(flatten)]
    train: crate::train::Arguments,
}

/// Resolves a process's arguments just as the process will.
pub fn settings_of(arguments: &[String]) -> anyhow::Result<(Settings, crate::train::settings::Sources)> {
    Settings::resolve(&Flags::try_parse_from(&arguments[1..])?.train)
}

pub fn plan_run(request: &StudyRequest, row: &StudyRow, rates: Rates) -> anyhow::Result<PlannedRun> {
    let num_steps = request.num_steps.unwrap_or_else(|| default_steps(&row.size));
    let arguments = arguments(request, row, num_steps);
    let (settings, sources) = settings_of(&arguments)?;
    let planned = Planned::new(&settings, &sources, Keep::OnlyTheLoss)?;
    let refusal = planned.check_memory(&settings).err().map(|error| error.to_string());
    // What does not fit is shown as it was asked for, not with everything recomputed in vain.
    let step = settings.step(if refusal.is_some() { 0 } else { planned.recomputed_layers });
    let figures = match refusal.is_some() {
        true => PlannedStep::new(&step, settings.threads)?.figures(&step, &rates),
        false => PlannedStep { training: planned.training, need: planned.need }.figures(&step, &rates),
    };
    Ok(PlannedRun { settings, step, figures: PlannedFigures { num_steps, ..figures }, refusal, arguments })
}

impl PlannedRun {
    pub fn planning(&self, rates: Rates) -> Planning<'_> {
        let available = room(&self.settings);
        Planning { step: &self.step, threads: self.settings.threads, available, rates }
    }
}

/// Enough for an interval after the warm-up, and no more than a person waits for.
pub fn default_steps(size: &str) -> u64 {
    match size {
        "nano" | "tiny" => 50,
        "small" => 15,
        _ => 10,
    }
}

fn arguments(request: &StudyRequest, row: &StudyRow, num_steps: u64) -> Vec<String> {
    let command = if request.enable_profilers { "profile" } else { "train" };
    let mut words = vec![command.to_string()];
    let mut flag = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            words.push(format!("--{name}={value}"));
        }
    };
    flag("size", Some(row.size.clone()));
    flag("passes", Some(passes_of(&row.version)));
    flag("num-steps", Some(num_steps.to_string()));
    flag("device", Some(request.device.clone()));
    flag("precision", request.precision.clone());
    flag("threads", Some(request.threads.to_string()));
    flag("memory-limit", request.memory_limit.clone());
    flag("batch-size", request.batch_size.map(|size| size.to_string()));
    flag("seq-len", request.seq_len.map(|length| length.to_string()));
    words
}
