//! The records that a run writes at its start and end.

use super::settings::Settings;
use headroom_engine::DeviceSpec;
use headroom_engine::machine::peak_resident_bytes;
use headroom_graph::Precision;
use headroom_record::SCHEMA_VERSION;
use headroom_record::config::{ConfigRecord, Configuration, ProfilersEnabled};
use headroom_record::device::HIGH_LOAD_PERCENT;
use headroom_record::performance::{
    Fp8Rounding, ModelConfig, PerformanceRecord, PerformanceSummary, ProfilerConfig, SystemInfo, TrainingParams,
};
use headroom_record::provenance::Origin;
use headroom_record::statistics::{StepStatistics, step_statistics};
use headroom_training::memory::MemoryNeed;
use headroom_training::run::{CompletedStep, Outcome};
use headroom_training::scales::Rounding;
use headroom_training::trainer::StepTimes;
use std::time::Duration;

const MIB: f64 = 1024.0 * 1024.0;

pub fn config_record(settings: &Settings, profilers_enabled: ProfilersEnabled, timestamp: &str) -> ConfigRecord {
    let model = &settings.model;
    ConfigRecord {
        schema_version: SCHEMA_VERSION,
        version: settings.version(),
        family: settings.model.family.title.into(),
        size: settings.size.clone(),
        timestamp: timestamp.into(),
        configuration: Configuration {
            hidden_dim: model.hidden_dim as u64,
            num_layers: model.n_layers as u64,
            num_heads: model.n_heads as u64,
            num_kv_heads: model.n_kv_heads as u64,
            intermediate_dim: model.intermediate_dim as u64,
            vocab_size: model.vocab_size as u64,
            seq_len: settings.shape.seq_len as u64,
            batch_size: settings.shape.batch_size as u64,
            num_steps: settings.last_step,
            parameters: model.parameters().total(),
        },
        profilers_enabled,
        command_line: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
        provenance: ConfigRecord::provenance(),
    }
}

/// Inputs of the summary besides the settings.
pub struct Ended<'a> {
    pub outcome: &'a Outcome,
    pub memory: &'a MemoryNeed,
    pub timestamp: &'a str,
    pub profile_dir: String,
    pub num_steps: u64,
    pub warmup_steps: u64,
    /// Share of CPU time that went to other programs during the steps.
    pub other_load: Option<f64>,
    /// Loss spikes, in words.
    pub spikes: Vec<String>,
}

impl Ended<'_> {
    /// The steps after the warm-up; a shorter run is measured by its last step. If a device runs steps back to back,
    /// steps that a recorder waited for do not measure its speed, and are excluded if there are enough others.
    fn counted(&self) -> Vec<CompletedStep> {
        const ENOUGH: usize = 5;
        let steps = &self.outcome.steps;
        let counted = &steps[(self.warmup_steps as usize).min(steps.len().saturating_sub(1))..];
        let in_a_row: Vec<CompletedStep> = counted.iter().copied().filter(|record| !record.alone).collect();
        if in_a_row.len() >= ENOUGH { in_a_row } else { counted.to_vec() }
    }

    pub fn counted_seconds(&self) -> Vec<f64> {
        self.counted().iter().map(|record| seconds(record.times.total)).collect()
    }
}

/// A median whose interval's relative half-width exceeds this is noisy.
const NOISY: f64 = 0.1;

/// Warnings that readers of the run's figures need, wherever they are shown.
fn warnings(spikes: &[String], other_load: Option<f64>, statistics: &StepStatistics) -> Vec<String> {
    let mut warnings = spikes.to_vec();
    if let Some(percent) = other_load.map(|share| 100.0 * share).filter(|percent| *percent > HIGH_LOAD_PERCENT) {
        warnings.push(format!(
            "other programs took {percent:.0}% of the processors while the steps ran: on an idle machine they are faster"
        ));
    }
    if let Some(share) = statistics.relative_half_width().filter(|share| *share > NOISY) {
        warnings.push(format!(
            "steps differ so much that their median is known only to ±{:.0}%: smaller differences between runs are noise",
            100.0 * share
        ));
    }
    warnings
}

pub fn performance_record(settings: &Settings, ended: &Ended) -> PerformanceRecord {
    let model = &settings.model;
    let measured = ended.counted();
    let statistics = step_statistics(&ended.counted_seconds());
    let statistics = match times_origin(settings) {
        Origin::Measured => statistics,
        _ => statistics.without_interval(),
    };
    let skipped = (ended.warmup_steps as usize).min(ended.outcome.steps.len().saturating_sub(1));
    PerformanceRecord {
        schema_version: SCHEMA_VERSION,
        version: settings.version(),
        timestamp: ended.timestamp.into(),
        config: ModelConfig {
            vocab_size: model.vocab_size as u64,
            hidden_dim: model.hidden_dim as u64,
            n_layers: model.n_layers as u64,
            n_heads: model.n_heads as u64,
            n_kv_heads: model.n_kv_heads as u64,
            intermediate_dim: model.intermediate_dim as u64,
            max_seq_len: settings.shape.seq_len as u64,
            rope_theta: model.rope_theta,
            norm_eps: model.norm_eps,
            dropout: 0.0,
            branching: model.branching.iter().map(|children| *children as u64).collect(),
        },
        profiler_config: ProfilerConfig {
            profile_dir: Some(ended.profile_dir.clone()),
            warmup_steps: skipped as u64,
            profile_steps: 0,
            recording: vec![],
        },
        performance_summary: summary(settings, ended, &measured),
        statistics,
        training_params: TrainingParams {
            num_steps: ended.num_steps,
            batch_size: settings.shape.batch_size as u64,
            learning_rate: settings.optimizer.learning_rate,
            use_amp: settings.precision != Precision::Fp32,
            gradient_accumulation_steps: settings.optimizer.accumulation as u64,
            clip: settings.optimizer.clip,
        },
        system_info: SystemInfo {
            device: settings.device.name().into(),
            gpu_name: settings.gpu.as_ref().map(|gpu| gpu.name.clone()),
            cpu_name: settings.machine.cpu_name.clone(),
            threads: settings.threads as u64,
            memory_total_mb: settings.machine.memory_total_bytes as f64 / MIB,
            driver_version: settings.gpu.as_ref().map(|gpu| gpu.driver_version.clone()),
            headroom_version: env!("CARGO_PKG_VERSION").into(),
            timestamp_iso: ended.timestamp.into(),
        },
        gpu_state: None,
        fp8: None,
        warnings: match settings.device {
            DeviceSpec::Null => vec![],
            _ => warnings(&ended.spikes, ended.other_load, &statistics),
        },
        provenance: PerformanceRecord::provenance(times_origin(settings), Origin::Computed),
    }
}

/// Times are measured unless the null device replays predicted ones.
pub fn times_origin(settings: &Settings) -> Origin {
    if settings.device == DeviceSpec::Null { Origin::Computed } else { Origin::Measured }
}

fn summary(settings: &Settings, ended: &Ended, measured: &[CompletedStep]) -> PerformanceSummary {
    let samples_per_step = settings.samples_per_step();
    let steps = &ended.outcome.steps;
    let total: f64 = measured.iter().map(|record| seconds(record.times.total)).sum();
    let speed = (total > 0.0).then(|| (measured.len() * samples_per_step) as f64 / total);
    let average = |part: fn(&StepTimes) -> Duration| {
        let sum: f64 = measured.iter().map(|record| seconds(part(&record.times))).sum();
        (!measured.is_empty()).then(|| sum / measured.len() as f64)
    };
    let losses: Vec<f64> = steps.iter().filter_map(|record| record.loss).map(f64::from).collect();
    let busy =
        measured.iter().map(|record| seconds(record.times.forward + record.times.backward + record.times.optimizer));
    PerformanceSummary {
        total_samples: (steps.len() * samples_per_step) as u64,
        avg_training_speed: speed,
        tokens_per_sec: speed.map(|speed| speed * settings.shape.seq_len as f64),
        steps_per_sec: speed.map(|speed| speed / samples_per_step as f64),
        final_loss: losses.last().copied(),
        avg_loss: (!losses.is_empty()).then(|| losses.iter().sum::<f64>() / losses.len() as f64),
        loss_floor: settings.floor_nats,
        avg_batch_time: average(|times| times.total),
        avg_forward_time: average(|times| times.forward),
        avg_backward_time: average(|times| times.backward),
        avg_optimizer_time: average(|times| times.optimizer),
        avg_data_time: average(|times| times.data),
        peak_memory_mb: Some(ended.memory.total() as f64 / MIB),
        process_peak_memory_mb: peak_resident_bytes().map(|bytes| bytes as f64 / MIB),
        avg_memory_mb: Some(ended.memory.average as f64 / MIB),
        device_utilization_percent: (total > 0.0).then(|| 100.0 * busy.sum::<f64>() / total),
        profiling_overhead_percent: None,
        profiling_overhead_ci95_low: None,
        profiling_overhead_ci95_high: None,
    }
}

/// Saturation and scale problems while rounding to fp8.
pub fn rounding(of: &Rounding) -> Fp8Rounding {
    Fp8Rounding {
        scaled_tensors: of.tensors as u64,
        saturated_values: of.saturated,
        most_saturated: of.most_saturated.clone(),
        scales_out_of_range: of.out_of_range,
    }
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_and_noise_are_said_and_a_quiet_run_has_no_warning() {
        let quiet = step_statistics(&[1.0, 1.01, 0.99, 1.0, 1.02, 1.0, 0.98, 1.0]);
        assert_eq!(warnings(&[], Some(0.02), &quiet), Vec::<String>::new());
        assert_eq!(warnings(&[], None, &StepStatistics::default()), Vec::<String>::new());
        let noisy = step_statistics(&[1.0, 2.0, 1.1, 1.9, 1.2, 1.0, 1.3, 1.8]);
        let said = warnings(&["the loss left its course".into()], Some(0.43), &noisy);
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[1].starts_with("other programs took 43% of the processors"), "{}", said[1]);
        assert!(said[2].contains("known only to ±40%"), "{}", said[2]);
    }
}
