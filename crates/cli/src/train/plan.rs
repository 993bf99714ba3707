//! What a run will execute and need, known before it starts; one that cannot fit is refused here.

use super::settings::{DeviceKind, Settings, Sources};
use anyhow::bail;
use headroom_engine::Program;
use headroom_engine::machine::memory_available_bytes;
use headroom_graph::{Category, GraphError};
use headroom_report::numbers::bytes;
use headroom_report::training::{self as text, Memory};
use headroom_training::config::SIZES;
use headroom_training::data::BatchShape;
use headroom_training::memory::{MemoryNeed, largest_that_fits};
use headroom_training::program::{EvaluationProgram, Keep, TrainingProgram, evaluation_program, training_program};

pub struct Planned {
    pub training: TrainingProgram,
    pub evaluation: Option<EvaluationProgram>,
    pub need: MemoryNeed,
}

impl Planned {
    pub fn new(settings: &Settings, sources: &Sources) -> Result<Planned, GraphError> {
        let training = training_program(&settings.model, settings.shape, &settings.optimizer, Keep::OnlyTheLoss)?;
        let evaluation = match &sources.evaluation {
            Some(source) => Some(evaluation_program(&settings.model, source.shape(), &training.program)?),
            None => None,
        };
        let mut planned = Planned { training, evaluation, need: MemoryNeed::of(&[], settings.threads) };
        planned.need = MemoryNeed::of(&planned.programs(), settings.threads);
        Ok(planned)
    }

    /// In the order in which a device takes them.
    pub fn programs(&self) -> Vec<Program> {
        let evaluation = self.evaluation.as_ref().map(|evaluation| &evaluation.program);
        [&self.training.program].into_iter().chain(evaluation).cloned().collect()
    }

    /// Refuses a run that cannot fit, with what it needs and what would fit.
    pub fn check_memory(&self, settings: &Settings) -> anyhow::Result<()> {
        let free = memory_available_bytes().map(|bytes| bytes as usize);
        let (available, whose) = match (settings.memory_limit, free) {
            _ if settings.device == DeviceKind::Null => return Ok(()),
            (Some(limit), Some(free)) if free < limit => (free, "of this machine's memory are free"),
            (Some(limit), _) => (limit, "are allowed by --memory-limit"),
            (None, Some(free)) => (free, "of this machine's memory are free"),
            (None, None) => return Ok(()),
        };
        if self.need.total() <= available {
            return Ok(());
        }
        let BatchShape { batch_size, seq_len } = settings.shape;
        bail!(
            "size {} needs {} on the CPU, and {} {whose}\n  {} (batch {batch_size} × seq {seq_len}, fp32, Version 1)\n  \
             help: {}",
            settings.size,
            bytes(self.need.total() as u64),
            bytes(available as u64),
            memory_line(&self.need),
            what_fits(settings, self, available)?,
        )
    }
}

pub fn memory_line(need: &MemoryNeed) -> String {
    let categories = Category::ALL.map(|category| (category.name(), need.peak.get(category) as u64));
    text::memory(&Memory {
        categories: &categories,
        gaps: need.gaps as u64,
        scratch: need.scratch as u64,
        total: need.total() as u64,
    })
}

fn what_fits(settings: &Settings, planned: &Planned, available: usize) -> Result<String, GraphError> {
    let (model, optimizer, threads) = (&settings.model, &settings.optimizer, settings.threads);
    if MemoryNeed::of(std::slice::from_ref(&planned.training.program), threads).total() <= available {
        return Ok("training alone fits: choose a smaller --eval-batch-size".into());
    }
    if let Some(shape) = largest_that_fits(model, settings.shape, optimizer, threads, available)? {
        return Ok(format!("--batch-size {} --seq-len {} fits", shape.batch_size, shape.seq_len));
    }
    for size in SIZES.iter().rev() {
        let shape = BatchShape { batch_size: size.batch_size, seq_len: size.seq_len };
        let training = training_program(&size.model(), shape, optimizer, Keep::OnlyTheLoss)?;
        let need = MemoryNeed::of(&[training.program], threads).total();
        if need <= available {
            return Ok(format!("no batch of it fits; --size {} needs {} and does", size.name, bytes(need as u64)));
        }
    }
    Ok("no size of the table fits into that".into())
}
