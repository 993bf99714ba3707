//! What the run is held against: the machine's peaks, kept by `headroom device` or measured now.

use crate::device::record_of;
use crate::train::settings::{DeviceKind, Settings};
use crate::{kept, output};
use headroom_engine::cpu::isa::Isa;
use headroom_engine::peaks::{ASSUMED_RATES, measure};
use headroom_graph::cost::Rates;
use headroom_record::device::DeviceRecord;
use headroom_record::provenance::Origin;

#[derive(Clone, Debug)]
pub struct Peaks {
    pub rates: Rates,
    pub source: String,
    pub origin: Origin,
}

impl Peaks {
    /// Kept ones serve where they were measured on as many threads as the run has.
    pub fn find(settings: &Settings) -> anyhow::Result<Peaks> {
        let threads = settings.threads as u64;
        let precision = settings.precision.name();
        let serves = |kept: &DeviceRecord| kept.threads == threads && kept.gemm(precision).is_some();
        if let Some(record) = kept::load_device(&settings.machine.cpu_name).filter(serves) {
            return Ok(Peaks::of(&record, precision, "kept by `headroom device`"));
        }
        if settings.device == DeviceKind::Null {
            let source = "assumed: `headroom device` measures this machine's".into();
            return Ok(Peaks { rates: ASSUMED_RATES, source, origin: Origin::Assumed });
        }
        output::note(&format!(
            "no peaks of this machine on {threads} threads are kept: measuring them (a few seconds)"
        ));
        let isa = Isa::detect();
        let record = record_of(&settings.machine, &measure(settings.threads, isa)?, isa);
        if settings.threads == settings.machine.cores {
            // What cannot be kept is measured again next time.
            let _ = kept::save_device(&record);
        }
        Ok(Peaks::of(&record, precision, "measured before this run"))
    }

    fn of(record: &DeviceRecord, precision: &str, how: &str) -> Peaks {
        Peaks {
            rates: Rates {
                product_flops: record.gemm(precision).unwrap_or(ASSUMED_RATES.product_flops),
                bytes: record.memory_bandwidth_bytes,
                call_seconds: record.call_seconds,
            },
            source: format!("{precision} products on {} threads, {how} at {}", record.threads, record.timestamp),
            origin: Origin::Measured,
        }
    }
}
