//! Runs of `train` and `profile`: compares settings with the page's, and figures with each other.

use super::Answers;
use crate::profile::files::REPORT_HTML;
use crate::train::folder::LOG_FILE;
use crate::workshop::course::{Training, Writes};
use crate::workshop::folders::record;
use headroom_graph::passes::PassList;
use headroom_record::config::{CONFIG_FILE, ConfigRecord, version_of_passes};
use headroom_record::flops::{FLOPS_FILE, FlopsRecord};
use headroom_record::intensity::{INTENSITY_FILE, IntensityRecord};
use headroom_record::memory::{MEMORY_FILE, MemoryRecord};
use headroom_record::operators::{OPERATORS_FILE, OperatorRecord};
use headroom_record::performance::{PERFORMANCE_FILE, PerformanceRecord};
use headroom_record::progress::{PROGRESS_FILE, ProgressLine};
use headroom_record::reading;
use headroom_training::models::Size;
use std::fs;
use std::path::Path;

/// Nats by which the last loss may exceed the first recorded one: single-batch losses scatter.
const LOSS_MAY_RISE: f64 = 0.1;

/// Share by which a batch's loss may be below the entropy of the whole data.
const BELOW_FLOOR: f64 = 0.02;

/// Allowed relative difference between two figures of one quantity.
const SAME: f64 = 0.02;

pub fn answers(asked: &Training, place: &Path) -> Result<Answers, String> {
    let config: ConfigRecord = record(place, CONFIG_FILE)?;
    let performance: PerformanceRecord = record(place, PERFORMANCE_FILE)?;
    let ran = performance.statistics.steps;
    Ok(Answers {
        complete: Ok(format!("{} steps on {}", performance.training_params.num_steps, performance.system_info.device)),
        as_asked: as_asked(asked, &config, &performance),
        report: report(asked.writes, place),
        agree: agree(asked.writes, place, &config, &performance).map(|()| match asked.writes {
            Writes::Profile => format!("loss, speed over {ran} steps, parameters, kernels, FLOPs and memory"),
            _ => format!("loss, speed over {ran} steps and parameters"),
        }),
    })
}

/// The number of steps of the run in the folder.
pub fn steps_of(place: &Path) -> Option<u64> {
    let performance: PerformanceRecord = record(place, PERFORMANCE_FILE).ok()?;
    Some(performance.training_params.num_steps)
}

fn as_asked(asked: &Training, config: &ConfigRecord, performance: &PerformanceRecord) -> Result<String, String> {
    let passes = PassList::parse(asked.passes)?;
    let size = Size::named(asked.size).ok_or_else(|| format!("there is no size {}", asked.size))?;
    let (settings, steps) = (&config.configuration, performance.training_params.num_steps);
    let batch = (settings.batch_size, settings.seq_len);
    let wanted = (size.batch_size as u64, size.seq_len as u64);
    let reserved = performance.performance_summary.peak_memory_mb;
    let within = asked.within_mb.filter(|most| reserved.is_none_or(|reserved| reserved > *most));
    let said = format!("{}, --passes {}, {} steps", asked.size, asked.passes, asked.steps);
    let wrong = [
        (config.size != asked.size).then(|| format!("size {}, not {}", config.size, asked.size)),
        (config.version != version_of_passes(passes.names()))
            .then(|| format!("passes {}, not {}", config.version, asked.passes)),
        (batch != wanted).then(|| format!("batch {} × {}, not {} × {}", batch.0, batch.1, wanted.0, wanted.1)),
        (steps < asked.steps).then(|| format!("{steps} steps, not {}", asked.steps)),
        (asked.writes != Writes::Profile && config.profilers_enabled.trace)
            .then(|| "recorded by the profiler, where the page asks for a plain run".to_string()),
        within.map(|most| format!("reserved {:.1} MiB, more than {most}", reserved.unwrap_or(f64::NAN))),
    ];
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    if wrong.is_empty() { Ok(said) } else { Err(wrong.join("; ")) }
}

fn report(writes: Writes, place: &Path) -> Result<String, String> {
    let file = match writes {
        Writes::Nothing => LOG_FILE,
        Writes::Intensity => INTENSITY_FILE,
        Writes::Profile => REPORT_HTML,
    };
    written(place, file)
}

/// The file's name if it is not empty.
pub fn written(place: &Path, file: &str) -> Result<String, String> {
    let length = fs::metadata(place.join(file)).map_or(0, |about| about.len());
    if length > 0 { Ok(file.to_string()) } else { Err(format!("{file} is missing or empty")) }
}

fn agree(writes: Writes, place: &Path, config: &ConfigRecord, performance: &PerformanceRecord) -> Result<(), String> {
    same_settings(config, performance)?;
    loss_is_sound(place, performance)?;
    let summary = &performance.performance_summary;
    let batch = config.configuration.batch_size * performance.training_params.gradient_accumulation_steps;
    if let Some((speed, time)) = summary.avg_training_speed.zip(summary.avg_batch_time) {
        near("samples per second times seconds per step", speed * time, "the batch", batch as f64)?;
    }
    match writes {
        Writes::Nothing => Ok(()),
        Writes::Intensity => {
            let intensity: IntensityRecord = record(place, INTENSITY_FILE)?;
            above_zero("FLOPs per byte", intensity.arithmetic_intensity_flops_per_byte)
        }
        Writes::Profile => profile_agrees(place, config, &performance.system_info.device),
    }
}

/// Checks that both records are from one run: the sizes, and the parameters counted from them.
fn same_settings(config: &ConfigRecord, performance: &PerformanceRecord) -> Result<(), String> {
    let (settings, model) = (&config.configuration, &performance.config);
    let left = [settings.hidden_dim, settings.num_layers, settings.vocab_size, settings.batch_size, settings.num_steps];
    let trained = &performance.training_params;
    let right = [model.hidden_dim, model.n_layers, model.vocab_size, trained.batch_size, trained.num_steps];
    if left != right || config.version != performance.version {
        return Err(format!("{CONFIG_FILE} and {PERFORMANCE_FILE} are not of one run"));
    }
    let counted = Size::named(&config.size).map(|size| size.model().parameters().total());
    match counted {
        Some(counted) if counted != settings.parameters => {
            Err(format!("{} parameters, and the size {} has {counted}", settings.parameters, config.size))
        }
        _ => Ok(()),
    }
}

/// Checks that the loss is finite, not above the first by more than noise, and not below what the data allows.
fn loss_is_sound(place: &Path, performance: &PerformanceRecord) -> Result<(), String> {
    let summary = &performance.performance_summary;
    if performance.system_info.device == "null" {
        return Ok(());
    }
    let last = summary.final_loss.filter(|loss| loss.is_finite()).ok_or("the final loss is not a number")?;
    let text = reading::read_text(&place.join(PROGRESS_FILE), reading::RECORD)
        .map_err(|_| format!("there is no {PROGRESS_FILE}"))?;
    let losses: Vec<f64> =
        text.lines().filter_map(|line| serde_json::from_str::<ProgressLine>(line).ok()?.loss).collect();
    let first = *losses.first().ok_or_else(|| format!("{PROGRESS_FILE} holds no loss"))?;
    if last > first + LOSS_MAY_RISE {
        return Err(format!("the loss rose from {first:.4} to {last:.4}"));
    }
    match summary.loss_floor {
        Some(floor) if last < floor * (1.0 - BELOW_FLOOR) => {
            Err(format!("the final loss {last:.4} is below the data's entropy {floor:.4}"))
        }
        _ => Ok(()),
    }
}

/// Checks that kernels counted one by one, FLOPs by phase, memory by category and times by part add up to their totals.
fn profile_agrees(place: &Path, config: &ConfigRecord, device: &str) -> Result<(), String> {
    let operators: OperatorRecord = record(place, OPERATORS_FILE)?;
    let flops: FlopsRecord = record(place, FLOPS_FILE)?;
    let memory: MemoryRecord = record(place, MEMORY_FILE)?;
    let patterns = &operators.patterns;
    let counted: u64 = operators.operator_stats.iter().map(|operator| operator.count).sum();
    let steps = operators.step_breakdown.steps;
    let told = (patterns.kernels_per_step + patterns.instrumentation_kernels) * steps;
    // A GPU's kernels are counted by the driver, and a call may launch several.
    if device == "cpu" && counted != told {
        return Err(format!("{counted} kernels are listed, and {told} are told for {steps} steps"));
    }
    if flops.model_info.total_params != config.configuration.parameters {
        return Err(format!("{FLOPS_FILE} and {CONFIG_FILE} are not of one model"));
    }
    let analysis = &flops.flops_analysis;
    let parts = analysis.forward_flops + analysis.backward_flops + analysis.optimizer_flops;
    if parts != analysis.avg_flops_per_step {
        return Err(format!("FLOPs by phase are {parts}, and the step's {}", analysis.avg_flops_per_step));
    }
    let breakdown = &operators.step_breakdown;
    let together = breakdown.parts().iter().map(|(_, seconds)| seconds).sum();
    near("times by part", together, "the step", breakdown.wall)?;
    above_zero("kernels per step", patterns.kernels_per_step as f64)?;
    near("memory by category", memory.by_category.total(), "the peak", memory.peak_memory_mb)
}

pub fn near(what: &str, left: f64, of: &str, right: f64) -> Result<(), String> {
    let close = (left - right).abs() <= SAME * right.abs();
    if close { Ok(()) } else { Err(format!("{what}: {left:.4}, and {of}: {right:.4}")) }
}

pub fn above_zero(what: &str, number: f64) -> Result<(), String> {
    if number > 0.0 && number.is_finite() { Ok(()) } else { Err(format!("{what}: {number}")) }
}
