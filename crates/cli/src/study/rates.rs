//! Peaks that the runs of a study or a sweep are compared with: those of the device that they run on.

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
    /// The processor's or the GPU's name.
    pub device: String,
    pub rates: Rates,
    pub source: String,
    pub origin: Origin,
}

/// A processor's are kept or measured now; a GPU's are measured now.
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
    // Half-precision weights are multiplied as other half-precision values are.
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

/// Bytes that a run may plan with; none where nothing is computed and no limit was set.
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
