//! Peaks of the device that the runs of a study or a sweep are compared with.

use crate::output;
use crate::profile::peaks::Peaks;
use crate::train::settings::Settings;
use crate::train::start::cuda_options;
use anyhow::Context;
use headroom_engine::DeviceSpec;
use headroom_engine::cuda;
use headroom_graph::cost::Rates;
use headroom_record::provenance::Origin;

pub struct ReferenceRates {
    /// The name of the CPU or the GPU.
    pub device: String,
    pub rates: Rates,
    pub source: String,
    pub origin: Origin,
}

/// Peaks of the CPU, saved or measured now, or of a GPU, measured now.
pub fn reference_rates(settings: &Settings) -> anyhow::Result<ReferenceRates> {
    let DeviceSpec::Cuda(ordinal) = settings.device else {
        let peaks = Peaks::find(settings)?;
        let device = settings.machine.cpu_name.clone();
        return Ok(ReferenceRates { device, rates: peaks.rates, source: peaks.source, origin: peaks.origin });
    };
    let device = settings.gpu.as_ref().map_or("a GPU".into(), |gpu| gpu.name.clone());
    output::note(&format!("measuring {device} (about 10 seconds)"));
    let peaks = cuda::measure_peaks(&cuda_options(ordinal))?;
    let precision = settings.precision.name();
    // GEMMs with half-precision weights run on the same units as other half-precision GEMMs.
    let unit = precision.trim_end_matches("-pure");
    let found = peaks.products.iter().find(|(name, _)| *name == unit);
    let (_, product_flops) = found.with_context(|| format!("there is no measured peak for {precision}"))?;
    Ok(ReferenceRates {
        device,
        rates: Rates { product_flops: *product_flops, bytes: peaks.bytes, call_seconds: peaks.replay_seconds },
        source: format!("{unit} GEMMs, measured before these runs"),
        origin: Origin::Measured,
    })
}

/// Bytes that a run may plan with; `None` if nothing is computed and no limit was set.
pub fn room(settings: &Settings) -> Option<usize> {
    let free = match (settings.device, &settings.gpu) {
        (DeviceSpec::Null, _) => None,
        (_, Some(gpu)) => Some(gpu.free_bytes),
        _ => headroom_engine::machine::memory_available_bytes().map(|bytes| bytes as usize),
    };
    match (settings.memory_limit, free) {
        (Some(limit), Some(free)) => Some(limit.min(free)),
        (limit, free) => limit.or(free),
    }
}
