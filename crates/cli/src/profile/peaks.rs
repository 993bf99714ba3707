//! What the run is held against: the machine's peaks, kept by `headroom device` or measured now.

use crate::device::measure_now;
use crate::train::settings::{DeviceKind, Settings};
use crate::{kept, output};
use headroom_engine::cpu::isa::Isa;
use headroom_engine::machine::Machine;
use headroom_engine::peaks::{ASSUMED_RATES, measure_products};
use headroom_graph::Precision;
use headroom_graph::cost::Rates;
use headroom_record::device::{DatasheetPeak, DeviceRecord};
use headroom_record::provenance::Origin;
use headroom_report::numbers::metric;

#[derive(Clone, Debug)]
pub struct Peaks {
    pub rates: Rates,
    pub source: String,
    pub origin: Origin,
    pub precision: Precision,
    /// What the units could do, beside what was measured.
    pub datasheet: Option<DatasheetPeak>,
    record: Option<DeviceRecord>,
}

impl Peaks {
    pub fn find(settings: &Settings) -> anyhow::Result<Peaks> {
        if settings.device == DeviceKind::Null && kept(&settings.machine, settings.threads).is_none() {
            let source = "assumed: `headroom device` measures this machine's".into();
            return Ok(Peaks {
                rates: ASSUMED_RATES,
                source,
                origin: Origin::Assumed,
                precision: Precision::Fp32,
                datasheet: None,
                record: None,
            });
        }
        Peaks::of_machine(&settings.machine, settings.threads, settings.precision)
    }

    /// Kept ones serve where they were measured on as many threads as the run has.
    pub fn of_machine(machine: &Machine, threads: usize, precision: Precision) -> anyhow::Result<Peaks> {
        if let Some(record) = kept(machine, threads) {
            if record.was_disturbed() {
                output::note(
                    "warning: the kept peaks were measured while other programs ran, and may be too low; `headroom device` \
                     measures again",
                );
            }
            return Ok(Peaks::of(record, precision, "kept by `headroom device`"));
        }
        output::note(&format!(
            "no peaks of this machine on {threads} threads are kept: measuring them (a few seconds)"
        ));
        let record = measure_now(machine, threads)?;
        // What cannot be kept is measured again next time.
        let best = kept::save_device(record.clone()).map_or(record, |(best, _)| best);
        Ok(Peaks::of(best, precision, "measured before this run"))
    }

    /// The same, raised where a run's fastest products did better than what was kept: that was too low, and is measured
    /// again. What the run did stands even where the second look falls short of it.
    pub fn raised_by(self, fastest: f64, threads: usize) -> Peaks {
        let too_low = self.precision == Precision::Fp32 && fastest > self.rates.product_flops;
        let Some(mut record) = self.record.clone().filter(|_| too_low) else { return self };
        let again = measure_products(threads, Isa::detect()).unwrap_or(0.0);
        let (rate, how) = match again >= fastest {
            true => (again, "measured again after this run"),
            false => (fastest, "by the fastest products of this run itself"),
        };
        output::note(&format!(
            "the kept peak, {}, was too low: this run's products reached {}; {} is kept from now on",
            metric(self.rates.product_flops, "FLOP/s"),
            metric(fastest, "FLOP/s"),
            metric(rate, "FLOP/s")
        ));
        if let Some(peak) = record.gemm_flops.iter_mut().find(|peak| peak.precision == "fp32") {
            peak.flops_per_sec = rate;
        }
        let best = kept::save_device(record.clone()).map_or(record, |(best, _)| best);
        Peaks::of(best, Precision::Fp32, how)
    }

    /// Of the precision that products compute in, of fp32 where no other was measured.
    fn of(record: DeviceRecord, precision: Precision, how: &str) -> Peaks {
        let own = record.gemm(precision.name());
        let named = if own.is_some() { precision } else { Precision::Fp32 };
        Peaks {
            precision: named,
            rates: Rates {
                product_flops: record.gemm(named.name()).unwrap_or(ASSUMED_RATES.product_flops),
                bytes: record.memory_bandwidth_bytes,
                call_seconds: record.call_seconds,
            },
            source: format!("{named} products on {} threads, {how} at {}", record.threads, record.timestamp),
            origin: Origin::Measured,
            datasheet: record.datasheet.clone().filter(|_| named == Precision::Fp32),
            record: Some(record),
        }
    }
}

fn kept(machine: &Machine, threads: usize) -> Option<DeviceRecord> {
    kept::load_device(&machine.cpu_name, threads)
}
