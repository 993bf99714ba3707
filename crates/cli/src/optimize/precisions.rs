//! The rungs after the passes: tries precisions with one list, and saves the proved ones for `--precision auto`.

use super::On;
use super::validation_record::gate;
use crate::output;
use crate::profile::peaks::Peaks;
use crate::proved::{self, model_named};
use anyhow::bail;
use headroom_engine::DeviceSpec;
use headroom_engine::cuda;
use headroom_engine::machine::Machine;
use headroom_experiments::bench::{Setting, Variant};
use headroom_experiments::ladder::Watcher;
use headroom_experiments::precisions::{Asked, PrecisionRung, climb, proved as fastest_proved};
use headroom_experiments::turns::Patience;
use headroom_graph::Precision;
use headroom_graph::cost::Rates;
use headroom_graph::passes::PassList;
use headroom_record::SCHEMA_VERSION;
use headroom_record::precisions::{PrecisionRow, PrecisionsRecord};
use headroom_record::provenance::Provenance;
use headroom_record::timestamp::utc_iso;
use headroom_training::program::StepConfig;
use std::time::SystemTime;

const MIB: f64 = 1024.0 * 1024.0;

/// The word for trying no precision.
const NONE: &str = "none";

/// The requested precisions, else those that are fast on the device. fp8 on a CPU is exact but slow, and tried only by
/// name.
pub fn asked(names: Option<&[String]>, on: &On) -> anyhow::Result<Vec<Precision>> {
    let has = |precision: &Precision| match &on.gpu {
        Some(gpu) => cuda::has(gpu.capability, *precision),
        None => on.kind.precisions().contains(precision),
    };
    let usual: &[Precision] = match on.kind {
        DeviceSpec::Cuda(_) => &[Precision::Tf32, Precision::Bf16, Precision::Fp8],
        _ => &[Precision::Bf16],
    };
    let Some(names) = names else { return Ok(usual.iter().copied().filter(has).collect()) };
    if names == [NONE] {
        return Ok(vec![]);
    }
    let mut wanted = vec![];
    for name in names {
        let precision: Precision = name.parse()?;
        if !has(&precision) {
            bail!("--precisions {precision}: there are no kernels for it on {}\n  help: leave it out", on.name);
        }
        wanted.push(precision);
    }
    Ok(wanted)
}

/// Settings that the rungs are climbed with.
pub struct Climb<'a> {
    pub size: &'a str,
    pub step: &'a StepConfig,
    pub setting: &'a Setting,
    pub list: &'a PassList,
    pub patience: Patience,
    pub curve_steps: usize,
    /// Losses of the list's first steps in single precision, as many as are known.
    pub known_curve: &'a [f32],
}

/// Tries the precisions and saves the outcome; a failure to save is reported but is not an error.
pub fn run(
    precisions: &[Precision],
    on: &On,
    machine: &Machine,
    about: &Climb,
    watcher: &mut dyn Watcher,
) -> anyhow::Result<PrecisionsRecord> {
    let rates = |precision: Precision| -> anyhow::Result<(Precision, Rates)> {
        let peaks = match (&on.gpu, on.kind) {
            (Some(gpu), DeviceSpec::Cuda(ordinal)) => Peaks::of_gpu(gpu, ordinal, precision, about.list)?,
            _ => Peaks::of_machine(machine, about.setting.opening.threads, precision)?,
        };
        Ok((precision, peaks.rates))
    };
    let with_single = [Precision::Fp32].into_iter().chain(precisions.iter().copied());
    let rates: Vec<(Precision, Rates)> = with_single.map(rates).collect::<anyhow::Result<_>>()?;
    let Climb { patience, curve_steps, known_curve, .. } = *about;
    let asked = Asked { precisions: &rates, patience, curve_steps, known_curve };
    let rungs = climb(about.step, about.setting, &Variant::of(about.list), &asked, watcher)?;
    let record = record_of(&rungs, on, about);
    match proved::keep(&record) {
        Ok(Some(path)) => output::note(&format!("proven precisions are saved in {}", path.display())),
        Ok(None) => output::note("proven precisions are not saved: set HEADROOM_HOME or HOME to a folder"),
        Err(error) => output::note(&format!("warning: proven precisions cannot be saved: {error}")),
    }
    Ok(record)
}

fn record_of(rungs: &[PrecisionRung], on: &On, about: &Climb) -> PrecisionsRecord {
    let shape = about.step.shape;
    PrecisionsRecord {
        schema_version: SCHEMA_VERSION,
        timestamp: utc_iso(SystemTime::now()),
        device: on.name.clone(),
        kernels: proved::code_of(on.kind.name()),
        size: about.size.into(),
        model: model_named(&about.step.model),
        batch_size: shape.batch_size as u64,
        seq_len: shape.seq_len as u64,
        passes: about.list.names().iter().map(|name| name.to_string()).collect(),
        precision: fastest_proved(rungs).to_string(),
        precisions: rungs.iter().map(row).collect(),
        provenance: Provenance::default(),
    }
    .with_provenance()
}

fn row(rung: &PrecisionRung) -> PrecisionRow {
    PrecisionRow {
        precision: rung.precision.to_string(),
        over: rung.over.to_string(),
        predicted_speedup: rung.predicted,
        measured_speedup: rung.measured.ratio,
        measured_ci95_low: rung.measured.low,
        measured_ci95_high: rung.measured.high,
        rounds: rung.measured.rounds as u64,
        memory_before_mb: rung.memory.0 as f64 / MIB,
        memory_after_mb: rung.memory.1 as f64 / MIB,
        proved: rung.is_proved(),
        loss_difference: Some(rung.loss_difference.min(f64::MAX)),
        gradient_difference: Some(rung.gradient_difference.min(f64::MAX)),
        gates: rung.gates.iter().map(gate).collect(),
    }
}
