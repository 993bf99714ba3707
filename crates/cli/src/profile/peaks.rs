//! Peaks that the run is compared with: the machine's or the GPU's, saved by `headroom device` or measured now.

use crate::device::{measure_gpu, measure_now};
use crate::train::settings::Settings;
use crate::{kept, output};
use headroom_engine::DeviceSpec;
use headroom_engine::cpu::isa::Isa;
use headroom_engine::cuda::Facts;
use headroom_engine::machine::Machine;
use headroom_engine::peaks::{ASSUMED_RATES, measure_products};
use headroom_graph::Precision;
use headroom_graph::cost::Rates;
use headroom_graph::passes::{GRAPH_REPLAY, PassList};
use headroom_record::device::DeviceRecord;
use headroom_record::provenance::Origin;
use headroom_record::timestamp::utc_iso;
use headroom_report::numbers::metric;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// Peaks of the CPU that this process measured. Those of a busy machine are not saved, and several parts of a command
/// ask for them.
static MEASURED: Mutex<Vec<DeviceRecord>> = Mutex::new(vec![]);

#[derive(Clone, Debug)]
pub struct Peaks {
    pub rates: Rates,
    pub source: String,
    pub origin: Origin,
    pub precision: Precision,
    /// Theoretical peak of the units, besides the measured one.
    pub datasheet: Option<StatedPeak>,
    record: Option<DeviceRecord>,
}

/// The FLOP/s that a device could reach in the run's precision, and the source of the figure.
#[derive(Clone, Debug)]
pub struct StatedPeak {
    pub flops: f64,
    pub source: String,
}

impl Peaks {
    pub fn find(settings: &Settings) -> anyhow::Result<Peaks> {
        if let (DeviceSpec::Cuda(ordinal), Some(facts)) = (settings.device, &settings.gpu) {
            return Peaks::of_gpu(facts, ordinal, settings.precision, &settings.passes);
        }
        if settings.device == DeviceSpec::Null && kept(&settings.machine, settings.threads).is_none() {
            let source = "assumed: `headroom device` measures this machine".into();
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

    /// Peaks of a GPU; saved ones are used if they are of a GPU with this name.
    pub fn of_gpu(facts: &Facts, ordinal: usize, precision: Precision, passes: &PassList) -> anyhow::Result<Peaks> {
        let (record, how) = match kept::load_gpu(&facts.name) {
            Some(record) => (record, "saved by `headroom device`"),
            None => {
                output::note(&format!("no peaks of {} are saved: measuring them (about 10 seconds)", facts.name));
                let record = measure_gpu(facts, ordinal)?;
                (kept::save_device(record.clone()).map_or(record, |(best, _)| best), "measured before this run")
            }
        };
        let replayed = record.replay_seconds.filter(|_| passes.contains(GRAPH_REPLAY));
        let mut peaks = Peaks::of(record, precision, how);
        peaks.rates.call_seconds = replayed.unwrap_or(peaks.rates.call_seconds);
        Ok(peaks)
    }

    /// Peaks of the CPU; saved ones are used if they were measured with the run's number of threads.
    pub fn of_machine(machine: &Machine, threads: usize, precision: Precision) -> anyhow::Result<Peaks> {
        if let Some(record) = kept(machine, threads) {
            return Ok(Peaks::of(record, precision, "saved by `headroom device`"));
        }
        let how = "measured before this run";
        let mut measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(record) = measured.iter().find(|record| record.threads == threads as u64) {
            return Ok(Peaks::of(record.clone(), precision, how));
        }
        output::note(&format!(
            "no peaks of this machine on {threads} threads are saved: measuring them (a few seconds)"
        ));
        let record = measure_now(machine, threads)?;
        // A record that cannot be saved is measured again by the next command.
        let best = kept::save_device(record.clone()).map_or(record, |(best, _)| best);
        measured.push(best.clone());
        Ok(Peaks::of(best, precision, how))
    }

    /// Raises the peaks if the run's fastest GEMMs beat the saved ones: those were too low, and are measured again. The
    /// run's own rate counts even if the second measurement falls short of it.
    pub fn raised_by(self, fastest: f64, threads: usize) -> Peaks {
        let is_gpu = self.record.as_ref().is_some_and(|record| record.kind == "cuda");
        let too_low = (is_gpu || self.precision == Precision::Fp32) && fastest > self.rates.product_flops;
        let Some(mut record) = self.record.clone().filter(|_| too_low) else { return self };
        // A GPU's large GEMMs were timed by kernel, so a second measurement would not tell more.
        let again = if is_gpu { 0.0 } else { measure_products(threads, Isa::detect()).unwrap_or(0.0) };
        let (rate, how) = match again >= fastest {
            true => (again, "measured again after this run"),
            false => (fastest, "by this run's own fastest GEMMs"),
        };
        output::note(&format!(
            "the saved peak, {}, was too low: this run's GEMMs reached {}; {} is saved instead",
            metric(self.rates.product_flops, "FLOP/s"),
            metric(fastest, "FLOP/s"),
            metric(rate, "FLOP/s")
        ));
        // Two values of a peak never have the same time.
        record.timestamp = utc_iso(SystemTime::now());
        let (precision, call_seconds) = (self.precision, self.rates.call_seconds);
        let named = precision.name().trim_end_matches("-pure");
        if let Some(peak) = record.gemm_flops.iter_mut().find(|peak| peak.precision == named) {
            peak.flops_per_sec = rate;
        }
        let best = kept::save_device(record.clone()).map_or(record, |(best, _)| best);
        let mut peaks = Peaks::of(best, precision, how);
        peaks.rates.call_seconds = call_seconds;
        peaks
    }

    /// Peaks in the precision of the GEMMs, or in fp32 if no other was measured.
    fn of(record: DeviceRecord, precision: Precision, how: &str) -> Peaks {
        let own = record.gemm(precision.name());
        let doubt = record.doubt().map_or(String::new(), |doubt| {
            format!(
                "; not reliable and too low, since {doubt}: shares of the peak and memory-bound verdicts are in doubt"
            )
        });
        let half = precision.is_fp8() && record.gemm(Precision::Bf16.name()).is_some();
        let named = match own {
            Some(_) => precision,
            // Saved before fp8 was measured.
            None if half => Precision::Bf16,
            None => Precision::Fp32,
        };
        Peaks {
            precision: named,
            rates: Rates {
                product_flops: record.gemm(named.name()).unwrap_or(ASSUMED_RATES.product_flops),
                bytes: record.memory_bandwidth_bytes,
                call_seconds: record.call_seconds,
            },
            source: match record.kind.as_str() {
                "cuda" => format!("{named} GEMMs on {}, {how} at {}{doubt}", record.name, record.timestamp),
                _ => format!("{named} GEMMs on {} threads, {how} at {}{doubt}", record.threads, record.timestamp),
            },
            origin: Origin::Measured,
            datasheet: record.datasheet.as_ref().and_then(|stated| {
                Some(StatedPeak { flops: stated.flops(named.name())?, source: stated.source.clone() })
            }),
            record: Some(record),
        }
    }
}

fn kept(machine: &Machine, threads: usize) -> Option<DeviceRecord> {
    kept::load_device(&machine.cpu_name, threads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_record::device::PrecisionPeak;

    #[test]
    fn peaks_of_a_busy_machine_say_so_wherever_their_source_is_shown() {
        let peak = |precision: &str| PrecisionPeak {
            precision: precision.into(),
            flops_per_sec: 3e11,
            one_thread_flops_per_sec: None,
        };
        let quiet = DeviceRecord {
            schema_version: headroom_record::SCHEMA_VERSION,
            timestamp: "2026-11-15T02:10:00Z".into(),
            kind: "cpu".into(),
            name: "a CPU".into(),
            threads: 2,
            instruction_set: "avx512".into(),
            memory_total_mb: 16384.0,
            gemm_flops: vec![peak("fp32")],
            memory_bandwidth_bytes: 4.8e9,
            call_seconds: 1e-6,
            replay_seconds: None,
            datasheet: None,
            other_load_percent: None,
            repeat_spread_percent: None,
            provenance: DeviceRecord::provenance(),
        };
        let source = |record: DeviceRecord| Peaks::of(record, Precision::Fp32, "measured before this run").source;
        assert!(!source(quiet.clone()).contains("not reliable"));
        let busy = source(quiet.with_repeat_spread(70.0));
        assert!(busy.contains("not reliable") && busy.contains("differ by 70%"), "{busy}");
    }
}
