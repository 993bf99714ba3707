//! Sets up a trainer for its first step: the device with its programs, and the weights on it.

use super::arguments::Arguments;
use super::plan::Planned;
use super::settings::Settings;
use crate::ranks::RankGroup;
use crate::signals::Interrupt;
use crate::{kept, output, verified};
use headroom_engine::DeviceSpec;
use headroom_engine::cuda::{self, Options, RangesChoice, SumOrder};
use headroom_engine::peaks::{ASSUMED_LINK, ASSUMED_RATES};
use headroom_engine::ranks::Ranks;
use headroom_engine::{Device, Opening, Program};
use headroom_graph::cost::{Link, Rates};
use headroom_record::link::Between;
use headroom_training::fault::{FaultKind, OwnFault};
use headroom_training::persist;
use headroom_training::trainer::Trainer;
use std::sync::Arc;

pub fn trainer(
    arguments: &Arguments,
    settings: &Settings,
    planned: Planned,
    interrupt: &Interrupt,
    company: Option<&RankGroup>,
) -> anyhow::Result<Trainer> {
    let ranks = company.map(RankGroup::ranks);
    let device = build_device(arguments, settings, &planned.programs(), ranks.clone())?;
    let Planned { training, evaluation, .. } = planned;
    let mut trainer = Trainer::new(device, &settings.model, training, evaluation, settings.optimizer);
    trainer.give_up = Some(Arc::clone(&interrupt.give_up));
    if let (Some(ranks), Some(fault)) = (&ranks, arguments.machine.fault) {
        let own = Some(fault).filter(|fault| fault.rank == ranks.rank());
        if let Some(FaultKind::Slow(each_call)) = own.map(|fault| fault.kind) {
            ranks.slow_down(each_call);
        }
        trainer.fault = OwnFault(own);
    }
    trainer.ranks = ranks;
    if trainer.device.computes() {
        load_weights(&mut trainer, settings)?;
    }
    if let Some(company) = company {
        company.agree_on_weights(&mut trainer)?;
    }
    Ok(trainer)
}

fn build_device(
    arguments: &Arguments,
    settings: &Settings,
    programs: &[Program],
    ranks: Option<Arc<Ranks>>,
) -> anyhow::Result<Box<dyn Device>> {
    if let DeviceSpec::Cuda(ordinal) = settings.device
        && let Some(advice) = verified::advice(&cuda::facts(ordinal)?)
    {
        output::note(&advice);
    }
    let opening = Opening {
        ranks,
        link: link(between(settings), settings.ranks).0,
        order: if arguments.machine.no_deterministic { SumOrder::Any } else { SumOrder::Fixed },
        ranges: if arguments.machine.nvtx { RangesChoice::Marked } else { RangesChoice::Unmarked },
        rates: if settings.device == DeviceSpec::Null { rates(settings) } else { ASSUMED_RATES },
        ..opening(settings.threads)
    };
    Ok(settings.device.open(&opening, programs)?)
}

/// Device options: compiled kernels and measured choices are cached with the measured peaks.
pub fn opening(threads: usize) -> Opening {
    Opening { cache: kept::folder().map(|folder| folder.join("cuda")), ..Opening::threads(threads) }
}

/// Options for measuring a GPU on its own.
pub fn cuda_options(ordinal: usize) -> Options {
    Options { ordinal, cache: opening(0).cache, ..Options::default() }
}

/// The measured peaks of this machine, or assumed ones with a note.
fn rates(settings: &Settings) -> Rates {
    kept_rates(settings).unwrap_or_else(|| {
        output::note("note: times are predicted with assumed peaks; `headroom device` measures this machine");
        ASSUMED_RATES
    })
}

/// The kind of link between a run's ranks.
pub fn between(settings: &Settings) -> Between {
    if settings.gpu.is_some() { Between::Gpus } else { Between::Cpus }
}

/// The link between this many ranks, and the number of ranks it was measured with; `None` if it was not measured.
pub fn link(between: Between, ranks: usize) -> (Link, Option<u64>) {
    match kept::load_link(between, ranks).filter(|_| ranks > 1) {
        Some(record) => {
            (Link { round_seconds: record.round_seconds, bytes: record.bytes_per_second }, Some(record.ranks))
        }
        None => (ASSUMED_LINK, None),
    }
}

/// The measured peaks of the run's machine or GPU, if saved.
pub fn kept_rates(settings: &Settings) -> Option<Rates> {
    let record = match &settings.gpu {
        Some(gpu) => kept::load_gpu(&gpu.name)?,
        None => kept::load_device(&settings.machine.cpu_name, settings.threads)?,
    };
    let assumed = settings.gpu.is_none().then_some(ASSUMED_RATES.product_flops);
    Some(Rates {
        product_flops: record.gemm(settings.precision.name()).or(assumed)?,
        bytes: record.memory_bandwidth_bytes,
        call_seconds: record.call_seconds,
    })
}

fn load_weights(trainer: &mut Trainer, settings: &Settings) -> anyhow::Result<()> {
    if let Some(checkpoint) = &settings.resume {
        persist::load_all(trainer, checkpoint)?;
        trainer.next_sample = settings.data_position.first_sample;
        if let Some(note) = &settings.data_position.note {
            output::note(note);
        }
    } else if let Some(checkpoint) = &settings.init_from {
        persist::load_weights(trainer, checkpoint)?;
        let left_out = checkpoint.config().left_out();
        if !left_out.is_empty() {
            output::note(&format!(
                "note: headroom trains without dropout and ignores the checkpoint's {}",
                left_out.join(", ")
            ));
        }
    } else {
        trainer.draw_weights(settings.seed);
    }
    Ok(())
}
