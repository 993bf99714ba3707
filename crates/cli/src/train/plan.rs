//! The plan of a run: its programs and memory need, known before it starts. A run that cannot fit is refused here.

use super::settings::{Settings, Sources};
use crate::output;
use anyhow::bail;
use headroom_engine::DeviceSpec;
use headroom_engine::Program;
use headroom_engine::machine::memory_available_bytes;
use headroom_graph::{Category, GraphError, Node, Op, Precision};
use headroom_report::numbers::bytes;
use headroom_report::training::{self as text, Memory};
use headroom_training::data::BatchShape;
use headroom_training::memory::{MemoryNeed, largest_that_fits};
use headroom_training::models::SIZES;
use headroom_training::program::{
    EvaluationProgram, Keep, StepConfig, TrainingProgram, evaluation_program, training_program,
};

pub struct Planned {
    pub training: TrainingProgram,
    pub evaluation: Option<EvaluationProgram>,
    pub need: MemoryNeed,
    /// Layers whose activations are recomputed in the backward pass.
    pub recomputed_layers: usize,
}

/// Memory that a run may use.
struct Room {
    bytes: usize,
    whose: &'static str,
}

impl Room {
    /// The memory available; `None` if nothing is computed or free memory is unknown.
    fn of(settings: &Settings) -> Option<Room> {
        if let Some(gpu) = &settings.gpu {
            let free = (gpu.free_bytes, "of the GPU's memory are free");
            let limit = settings.memory_limit.filter(|limit| *limit < gpu.free_bytes);
            let (bytes, whose) = limit.map_or(free, |limit| (limit, "are allowed by --memory-limit"));
            return Some(Room { bytes, whose });
        }
        // Ranks on one machine share its memory.
        let free = memory_available_bytes().map(|bytes| bytes as usize / settings.local_ranks);
        let (bytes, whose) = match (settings.memory_limit, free) {
            _ if settings.device == DeviceSpec::Null && settings.memory_limit.is_none() => return None,
            (Some(limit), Some(free)) if free < limit && settings.device == DeviceSpec::Cpu => {
                (free, "of this machine's memory are free")
            }
            (Some(limit), _) => (limit, "are allowed by --memory-limit"),
            (None, Some(free)) => (free, "of this machine's memory are free"),
            (None, None) => return None,
        };
        Some(Room { bytes, whose })
    }
}

impl Planned {
    /// Plans the run, recomputing as many layers as needed to fit into memory.
    pub fn new(settings: &Settings, sources: &Sources, keep: Keep) -> Result<Planned, GraphError> {
        let layers = settings.model.n_layers;
        let room = Room::of(settings);
        let fits = |planned: &Planned| room.as_ref().is_none_or(|room| planned.need.total() <= room.bytes);
        let asked = settings.passes.asks_for_checkpoint();
        let start = if asked && settings.memory_limit.is_none() { layers } else { 0 };
        let first = Planned::recomputing(settings, sources, keep, start)?;
        if fits(&first) || start == layers {
            return Ok(first);
        }
        // More layers need less memory: finds the fewest that fit.
        let (mut low, mut high) = (0, layers);
        let least = Planned::recomputing(settings, sources, keep, layers)?;
        if !fits(&least) {
            return Ok(least);
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(&Planned::recomputing(settings, sources, keep, middle)?) {
                high = middle;
            } else {
                low = middle;
            }
        }
        Planned::recomputing(settings, sources, keep, high)
    }

    fn recomputing(settings: &Settings, sources: &Sources, keep: Keep, layers: usize) -> Result<Planned, GraphError> {
        let step = settings.step(layers);
        let training = training_program(&step, keep)?;
        let evaluation = match &sources.evaluation {
            Some(source) => Some(evaluation_program(&step, source.shape(), &training.program)?),
            None => None,
        };
        let need = MemoryNeed::of(&[], settings.threads);
        let mut planned = Planned { training, evaluation, need, recomputed_layers: layers };
        planned.need = MemoryNeed::of(&planned.programs(), settings.threads);
        Ok(planned)
    }

    /// The programs in the order in which a device takes them.
    pub fn programs(&self) -> Vec<Program> {
        let evaluation = self.evaluation.as_ref().map(|evaluation| &evaluation.program);
        [&self.training.program].into_iter().chain(evaluation).cloned().collect()
    }

    /// Prints a note if fp8 was requested but no layer uses it.
    pub fn note_precision(&self, settings: &Settings) {
        let multiplies = |node: &Node| matches!(node.op, Op::Fp8Product(_));
        let asked = matches!(settings.precision, Precision::Fp8 | Precision::Fp8Pure);
        if asked && !self.training.program.graph.nodes().iter().any(multiplies) {
            output::note(
                "note: no layer of this model multiplies in eight bits (that needs sizes in multiples of 16, and weights stored \
                 outputs by inputs): it runs as bf16",
            );
        }
    }

    /// Refuses a run that cannot fit, with what it needs and what would fit.
    pub fn check_memory(&self, settings: &Settings) -> anyhow::Result<()> {
        let Some(room) = Room::of(settings).filter(|room| self.need.total() > room.bytes) else { return Ok(()) };
        let BatchShape { batch_size, seq_len } = settings.shape;
        bail!(
            "size {} needs {} on {}{}, and {} {}\n  {} (batch {batch_size} × seq {seq_len}, {}, {})\n  help: {}",
            settings.size,
            bytes(self.need.total() as u64),
            settings.gpu.as_ref().map_or("the CPU", |gpu| &gpu.name),
            if self.recomputed_layers > 0 { " even with the activations of every layer recomputed" } else { "" },
            bytes(room.bytes as u64),
            room.whose,
            memory_line(&self.need),
            settings.precision,
            settings.passes.label(),
            what_fits(settings, self, room.bytes)?,
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
    let threads = settings.threads;
    if MemoryNeed::of(std::slice::from_ref(&planned.training.program), threads).total() <= available {
        return Ok("training alone fits: choose a smaller --eval-batch-size".into());
    }
    if let Some(shape) = largest_that_fits(&settings.step(settings.model.n_layers), threads, available)? {
        return Ok(format!("--batch-size {} --seq-len {} fits", shape.batch_size, shape.seq_len));
    }
    for size in SIZES.iter().rev() {
        let shape = BatchShape { batch_size: size.batch_size, seq_len: size.seq_len };
        let step = StepConfig { model: size.model(), shape, ..settings.step(0) };
        let training = training_program(&step, Keep::OnlyTheLoss)?;
        let need = MemoryNeed::of(&[training.program], threads).total();
        if need <= available {
            return Ok(format!("no batch of it fits; --size {} needs {} and fits", size.name, bytes(need as u64)));
        }
    }
    Ok("no model size fits into that".into())
}
