//! Figures that several steps of the course use.

use super::Unit::{Count, Mebibytes, Number, Percent, Rate, Seconds, Times, Words};
use super::{Document, Figure, Unit};
use headroom_record::flops::FLOPS_FILE as FLOPS;
use headroom_record::memory::MEMORY_FILE as MEMORY;
use headroom_record::operators::OPERATORS_FILE as OPERATORS;
use headroom_record::performance::PERFORMANCE_FILE as PERFORMANCE;
use headroom_record::scaling::SCALING_FILE as SCALING;
use headroom_record::study::STUDY_FILE as STUDY;

pub const fn kept(name: &'static str, file: &'static str, key: &'static str, unit: Unit) -> Figure {
    Figure { name, source: Some((Document::File(file), key, unit)) }
}

pub const fn answered(name: &'static str) -> Figure {
    Figure { name, source: Some((Document::Reader, "", Unit::Words)) }
}

pub const fn analyzed(name: &'static str, key: &'static str, unit: Unit) -> Figure {
    Figure { name, source: Some((Document::Analysis, key, unit)) }
}

pub const fn compared(name: &'static str, [before, after]: [&'static str; 2], key: &'static str, unit: Unit) -> Figure {
    Figure { name, source: Some((Document::Comparison(before, after), key, unit)) }
}

pub const fn printed(name: &'static str) -> Figure {
    Figure { name, source: None }
}

/// Speed, memory and loss of a run.
pub const SPEED: &[Figure] = &[
    kept("average time per step", PERFORMANCE, "performance_summary.avg_batch_time", Seconds),
    kept("median time per step", PERFORMANCE, "statistics.median", Seconds),
    kept("95% interval from", PERFORMANCE, "statistics.ci95_low", Seconds),
    kept("to", PERFORMANCE, "statistics.ci95_high", Seconds),
    kept("samples per second", PERFORMANCE, "performance_summary.avg_training_speed", Rate),
    kept("tokens per second", PERFORMANCE, "performance_summary.tokens_per_sec", Rate),
    kept("memory reserved", PERFORMANCE, "performance_summary.peak_memory_mb", Mebibytes),
    kept("final loss", PERFORMANCE, "performance_summary.final_loss", Number),
];

/// The step of a recorded script.
pub const RECORDED: &[Figure] = &[
    analyzed("time per step without the profiler", "true_step.seconds", Seconds),
    analyzed("95% interval from", "true_step.lower_seconds", Seconds),
    analyzed("to", "true_step.upper_seconds", Seconds),
];

/// Efficiency of a profiled run.
pub const PROFILE: &[Figure] = &[
    kept("median time per step", PERFORMANCE, "statistics.median", Seconds),
    kept("samples per second", PERFORMANCE, "performance_summary.avg_training_speed", Rate),
    kept("MFU", FLOPS, "efficiency_metrics.mfu_percent", Percent),
    kept("kernels per step", OPERATORS, "patterns.kernels_per_step", Count),
    kept("distinct kernels", OPERATORS, "patterns.distinct_kernels", Count),
    kept("launch overhead", OPERATORS, "patterns.launch_overhead_percent", Percent),
    kept("peak memory", MEMORY, "peak_memory_mb", Mebibytes),
    kept("cost of recording", PERFORMANCE, "performance_summary.profiling_overhead_percent", Percent),
];

/// Points of a sweep, by index in the record.
macro_rules! points {
    ($list:literal: $($at:literal $name:literal),*) => {
        &[$(
            kept(concat!($name, ": peak memory"), SCALING, concat!($list, ".", $at, ".peak_memory_mb"), Mebibytes),
            kept(concat!($name, ": peak over average"), SCALING, concat!($list, ".", $at, ".peak_to_average"), Times),
            kept(concat!($name, ": KiB per token"), SCALING, concat!($list, ".", $at, ".memory_per_token_kb"), Number),
            kept(concat!($name, ": samples per second"), SCALING, concat!($list, ".", $at, ".samples_per_sec"), Rate),
        )*]
    };
}

pub const BATCH_POINTS: &[Figure] = points!("batch_points": 0 "batch 4", 1 "batch 8", 2 "batch 16");
pub const SEQUENCE_POINTS: &[Figure] =
    points!("sequence_points": 0 "length 64", 1 "length 128", 2 "length 256", 3 "length 512");

/// Runs of a study, by index in the record.
macro_rules! study_rows {
    ($($at:literal $name:literal),*) => {
        &[$(
            kept(concat!($name, ": parameters"), STUDY, concat!("runs.", $at, ".parameters"), Count),
            kept(concat!($name, ": kernels per step"), STUDY, concat!("runs.", $at, ".kernels_per_step"), Count),
            kept(concat!($name, ": time per step"), STUDY, concat!("runs.", $at, ".step_seconds"), Seconds),
            kept(concat!($name, ": samples per second"), STUDY, concat!("runs.", $at, ".samples_per_sec"), Rate),
            kept(concat!($name, ": memory"), STUDY, concat!("runs.", $at, ".peak_memory_mb"), Mebibytes),
            kept(concat!($name, ": MFU"), STUDY, concat!("runs.", $at, ".mfu_percent"), Percent),
        )*]
    };
}

pub const SIZES: &[Figure] = study_rows!(0 "tiny", 1 "small");
pub const SIZES_OF_A_GPU: &[Figure] = study_rows!(0 "small", 1 "medium");
pub const VERSIONS: &[Figure] = study_rows!(0 "Version 1", 1 "Version 2", 2 "all kernels fused", 3 "all passes");

/// Operators of a profile, longest first.
macro_rules! operators {
    ($($at:literal $name:literal),*) => {
        &[$(
            kept(concat!("operator ", $name), OPERATORS, concat!("operator_stats.", $at, ".name"), Words),
            kept(concat!("operator ", $name, ": calls in the recorded steps"), OPERATORS, concat!("operator_stats.", $at, ".count"), Count),
        )*]
    };
}

pub const TOP_THREE: &[Figure] = operators!(0 "1", 1 "2", 2 "3");
pub const TOP_TEN: &[Figure] = operators!(0 "1", 1 "2", 2 "3", 3 "4", 4 "5", 5 "6", 6 "7", 7 "8", 8 "9", 9 "10");

/// Bottlenecks by priority.
macro_rules! bottlenecks {
    ($($at:literal $name:literal),*) => {
        &[$(
            kept(concat!("bottleneck ", $name), OPERATORS, concat!("bottlenecks.categories.", $at, ".category"), Words),
            kept(
                concat!("bottleneck ", $name, ": share of the step"),
                OPERATORS,
                concat!("bottlenecks.categories.", $at, ".percent_of_time"),
                Percent
            ),
            kept(
                concat!("bottleneck ", $name, ": speed-up at most"),
                OPERATORS,
                concat!("bottlenecks.categories.", $at, ".speedup_at_most"),
                Times
            ),
            kept(
                concat!("bottleneck ", $name, ": effort"),
                OPERATORS,
                concat!("bottlenecks.categories.", $at, ".effort"),
                Words
            ),
        )*]
    };
}

pub const BOTTLENECKS: &[Figure] = bottlenecks!(0 "1", 1 "2", 2 "3", 3 "4", 4 "5", 5 "6");
