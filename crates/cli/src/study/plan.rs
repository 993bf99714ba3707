//! Plans one run of a study: the arguments of its process, its plan, and whether it can fit at all.

use super::rates::room;
use super::request::passes_of;
use crate::train::plan::Planned;
use crate::train::request::TrainRequest;
use crate::train::settings::Settings;
use headroom_experiments::planning::PlannedStep;
use headroom_experiments::step_times::Division;
use headroom_experiments::study::Planning;
use headroom_graph::cost::Rates;
use headroom_record::performance::PREDICTS;
use headroom_record::study::{PlannedFigures, StudyRequest, StudyRow};
use headroom_training::program::{Keep, StepConfig};

pub struct PlannedRun {
    pub settings: Settings,
    pub step: StepConfig,
    pub figures: PlannedFigures,
    /// Why a run that does not fit is refused: what it needs and what would fit.
    pub refusal: Option<String>,
    /// Arguments of the process, without the run's folder.
    pub arguments: Vec<String>,
}

pub fn plan_run(request: &StudyRequest, row: &StudyRow, rates: Rates) -> anyhow::Result<PlannedRun> {
    let steps = request.num_steps.unwrap_or_else(|| default_steps(&row.size));
    let least_run = if request.enable_profilers { PROFILED_STEPS } else { 0 };
    let division = Division::of(steps, least_run).filter(|_| request.device != PREDICTS);
    let num_steps = division.map_or(steps, |division| division.run);
    let steps_per_turn = division.map_or(0, |division| division.per_turn);
    let asked = asked(request, row, num_steps)?;
    let (settings, sources) = asked.settings()?;
    let command = if request.enable_profilers { "profile" } else { "train" };
    let arguments = [vec![command.to_string()], asked.flags()].concat();
    let planned = Planned::new(&settings, &sources, Keep::OnlyTheLoss)?;
    let refusal = planned.check_memory(&settings).err().map(|error| error.to_string());
    // A run that does not fit is shown as requested, not with everything recomputed in vain.
    let step = settings.step(if refusal.is_some() { 0 } else { planned.recomputed_layers });
    let figures = match refusal.is_some() {
        true => PlannedStep::new(&step, settings.threads)?.figures(&step, &rates),
        false => PlannedStep { training: planned.training, need: planned.need }.figures(&step, &rates),
    };
    let figures = PlannedFigures { num_steps, steps_per_turn, ..figures };
    Ok(PlannedRun { settings, step, figures, refusal, arguments })
}

impl PlannedRun {
    pub fn planning(&self, rates: Rates) -> Planning<'_> {
        let available = room(&self.settings);
        Planning { step: &self.step, threads: self.settings.threads, available, rates }
    }
}

/// A profiled run takes at least these, if it is asked for as many: its warm-up, the recorded steps and one more.
const PROFILED_STEPS: u64 = 8;

/// Enough steps for an interval after the warm-up, and no more than a person waits for.
pub fn default_steps(size: &str) -> u64 {
    match size {
        "nano" | "tiny" => 50,
        "small" => 15,
        _ => 10,
    }
}

fn asked(request: &StudyRequest, row: &StudyRow, num_steps: u64) -> anyhow::Result<TrainRequest> {
    Ok(TrainRequest {
        size: row.size.clone(),
        passes: passes_of(&row.version),
        num_steps: Some(num_steps),
        device: request.device.clone(),
        precision: request.precision.as_deref().map(str::parse).transpose()?,
        threads: Some(u16::try_from(request.threads)?),
        memory_limit: request.memory_limit.clone(),
        batch_size: request.batch_size.map(|size| size as usize),
        seq_len: request.seq_len.map(|length| length as usize),
        ..TrainRequest::default()
    })
}
