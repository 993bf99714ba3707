//! Growth of real plans, and what fits.

use super::*;
use headroom_engine::Target;
use headroom_graph::Precision;
use headroom_graph::passes::PassList;
use headroom_training::models::Size;
use headroom_training::optimizer::OptimizerConfig;

const RATES: Rates = Rates { product_flops: 3e11, bytes: 2e10, call_seconds: 1e-6 };

fn step(passes: &str, batch_size: usize, seq_len: usize) -> StepConfig {
    StepConfig {
        model: Size::named("nano").unwrap().model(),
        shape: BatchShape { batch_size, seq_len },
        optimizer: OptimizerConfig::default(),
        passes: PassList::parse(passes).unwrap(),
        recomputed_layers: 0,
        precision: Default::default(),
        target: Default::default(),
    }
}

fn sweep(passes: &str, shapes: &[(usize, usize)]) -> Vec<PlannedPoint> {
    let point = |(batch, seq): &(usize, usize)| plan_point(&step(passes, *batch, *seq), 2, &RATES).unwrap();
    let mut points: Vec<PlannedPoint> = shapes.iter().map(point).collect();
    set_scaling_factors(&mut points);
    points
}

fn component(growth: &Growth, name: &str) -> f64 {
    growth.components.iter().find(|part| part.component == name).unwrap().exponent.unwrap()
}

#[test]
fn memory_is_linear_in_the_batch() {
    let growth = growth(&sweep("v1", &[(8, 64), (16, 64), (32, 64), (64, 64)]), |point| point.batch_size);
    assert_eq!(growth.class, "linear", "{growth:?}");
    assert!((component(&growth, "attention") - 1.0).abs() < 1e-9);
    assert!((component(&growth, "activations") - 1.0).abs() < 0.05);
    assert_eq!(component(&growth, "parameters"), 0.0);
}

#[test]
fn materialised_attention_is_quadratic_in_the_sequence_and_the_whole_lies_between() {
    let growth = growth(&sweep("v1", &[(4, 64), (4, 128), (4, 256), (4, 512)]), |point| point.seq_len);
    assert!((component(&growth, "attention") - 2.0).abs() < 1e-9);
    assert!((component(&growth, "activations") - 1.0).abs() < 0.05);
    assert_eq!(growth.class, "between", "{growth:?}");
}

#[test]
fn the_growth_of_speed_has_the_interval_of_its_points() {
    let mut points = sweep("v1", &[(8, 64), (16, 64), (32, 64)]);
    for (planned, seconds) in points.iter_mut().zip([0.1, 0.2, 0.4]) {
        let point = &mut planned.point;
        (point.step_seconds, point.samples_per_sec) = (Some(seconds), Some(point.batch_size as f64 / seconds));
        (point.step_seconds_low, point.step_seconds_high) = (Some(seconds / 1.05), Some(seconds * 1.05));
    }
    let found = growth(&points, |point| point.batch_size);
    let (low, high) = (found.speed_exponent_low.unwrap(), found.speed_exponent_high.unwrap());
    assert!(found.speed_exponent.unwrap().abs() < 1e-9 && low < 0.0 && high > 0.0, "{found:?}");
    // The outer two points decide the slope: by hand, the root of two times 5%, over four times the batch.
    assert!((high - 2.0f64.sqrt() * 1.05f64.ln() / 4.0f64.ln()).abs() < 1e-9, "{high}");
    points[1].point.step_seconds_low = None;
    assert_eq!(growth(&points, |point| point.batch_size).speed_exponent_low, None);
}

#[test]
fn tiled_attention_leaves_nothing_quadratic() {
    let growth = growth(&sweep("v2", &[(4, 64), (4, 128), (4, 256), (4, 512)]), |point| point.seq_len);
    assert!(growth.components.iter().all(|part| part.component != "attention"));
    assert_eq!(growth.class, "linear", "{growth:?}");
}

#[test]
fn the_limits_fit_and_one_more_does_not() {
    let step = step("v1", 8, 64);
    let available = 48 << 20;
    let found = limits(&step, 64, 8, 2, available).unwrap();
    let fit = |batch_size: u64, seq_len: u64| {
        fits(&step, BatchShape { batch_size: batch_size as usize, seq_len: seq_len as usize }, 2, available).unwrap()
    };
    let (batch, sequence) = (found.largest_batch.unwrap(), found.longest_sequence.unwrap());
    assert!(fit(batch, 64) && !fit(batch + 1, 64), "{batch}");
    assert!(fit(8, sequence) && !fit(8, sequence + 1), "{sequence}");
    assert_eq!(limits(&step, 64, 8, 2, 1000).unwrap().largest_batch, None);
}

#[test]
fn savings_are_ranked_and_what_is_there_already_is_not_offered() {
    let found = savings(&step("v1", 4, 256), 2).unwrap();
    assert!(found.is_sorted_by(|left, right| left.memory_mb <= right.memory_mb));
    let names = |found: &[Saving]| {
        let mut names: Vec<&str> = found.iter().map(|saving| saving.name).collect();
        names.sort();
        names
    };
    assert_eq!(names(&found), ["bf16", "checkpointing", "flash attention", "fusion"]);
    let flash = found.iter().find(|saving| saving.name == "flash attention").unwrap();
    let before = plan_point(&step("v1", 4, 256), 2, &RATES).unwrap().point.peak_memory_mb;
    assert!(flash.memory_mb < before);
    assert_eq!(flash.how, Some(How::Passes("v1,+flash-attention".into())));
    assert!(!names(&savings(&step("v2", 4, 256), 2).unwrap()).contains(&"flash attention"));
}

#[test]
fn half_precision_can_be_run_where_halves_are_stored_and_is_not_offered_twice() {
    let bf16 = |step: &StepConfig| savings(step, 2).unwrap().into_iter().find(|saving| saving.name == "bf16");
    let on_cpu = step("v2", 4, 256);
    let on_gpu = StepConfig { target: Target::Cuda, ..on_cpu.clone() };
    assert_eq!(bf16(&on_cpu).unwrap().how, None);
    let saving = bf16(&on_gpu).unwrap();
    assert_eq!((saving.how, saving.note), (Some(How::Precision("bf16")), None));
    assert!(bf16(&StepConfig { precision: Precision::Bf16, ..on_gpu }).is_none());
}
