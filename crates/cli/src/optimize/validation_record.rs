//! The record of a climbed ladder, the content of validation.json.

use headroom_engine::DeviceSpec;
use headroom_experiments::bench::Setting;
use headroom_experiments::gates::Gate;
use headroom_experiments::gates::LengthMemory;
use headroom_experiments::ladder::{Ladder, Rung, Surprise, accuracy};
use headroom_experiments::turns::Speedup;
use headroom_experiments::validation::growth;
use headroom_graph::passes::{Effort, PassList, offered};
use headroom_record::SCHEMA_VERSION;
use headroom_record::operators::BottleneckCategory;
use headroom_record::provenance::Provenance;
use headroom_record::timestamp::utc_iso;
use headroom_record::validation::{
    AsGood, FindingRow, GateRecord, Growth, LengthRow, OpSeconds, PredictionAccuracy, Targets, ValidationRecord,
    ValidationRow,
};
use headroom_report::numbers::seconds;
use headroom_training::program::StepConfig;
use std::time::SystemTime;

const MIB: f64 = 1024.0 * 1024.0;

/// Conditions that a ladder was climbed under.
pub struct Surroundings<'a> {
    pub size: &'a str,
    pub step: &'a StepConfig,
    pub setting: &'a Setting,
    pub device: &'a str,
}

pub fn record_of(about: &Surroundings, ladder: &Ladder, peak_flops: f64) -> ValidationRecord {
    let shape = about.step.shape;
    let lengths = &ladder.validation.memory_by_length;
    let mut widths: Vec<f64> =
        ladder.tried.iter().chain(&ladder.versions).map(|rung| rung.measured.half_width()).collect();
    widths.sort_by(f64::total_cmp);
    let timed = ladder.profile.findings.iter().filter(|row| row.percent_of_time.is_some());
    ValidationRecord {
        schema_version: SCHEMA_VERSION,
        timestamp: utc_iso(SystemTime::now()),
        size: about.size.into(),
        batch_size: shape.batch_size as u64,
        seq_len: shape.seq_len as u64,
        threads: match about.setting.device {
            DeviceSpec::Cuda(_) => 0,
            DeviceSpec::Cpu | DeviceSpec::Null => about.setting.opening.threads as u64,
        },
        device: about.device.into(),
        baseline_step_seconds: ladder.baseline_seconds,
        baseline_steps: ladder.baseline_steps as u64,
        baseline_by_op: ladder
            .baseline_by_op
            .iter()
            .map(|(op, seconds)| OpSeconds { op: op.to_string(), seconds: *seconds })
            .collect(),
        findings: (1..).zip(timed).map(finding).collect(),
        passes: ladder.tried.iter().map(row).collect(),
        not_tried: vec![],
        versions: ladder.versions.iter().map(row).collect(),
        ablation: ladder.ablation.iter().map(row).collect(),
        prediction: accuracy(&ladder.tried).map(|found| PredictionAccuracy {
            passes: found.passes as u64,
            median_error_percent_of_step: 100.0 * found.median_error,
            within_limit: found.within_limit as u64,
            large_savings: found.large as u64,
            right_sign: found.right_sign as u64,
        }),
        noise_percent: 100.0 * widths.get(widths.len() / 2).copied().unwrap_or(0.0),
        memory_by_length: lengths.iter().map(length).collect(),
        memory_growth: growths(lengths),
        targets: targets(ladder, shape.batch_size as f64, peak_flops),
        kept: names(&ladder.kept),
        kept_flag: ladder.kept.flag(),
        unproved: ladder.unproved.as_ref().map(as_good),
        race: Some(ladder.race.clone()),
        as_good: ladder.as_good.iter().map(as_good).collect(),
        gates: ladder.validation.gates.iter().map(gate).collect(),
        among_ranks: vec![],
        // Phase 3 is filled in after the precisions are tried.
        phase_3: vec![],
        reference_points: vec![],
        provenance: Provenance::default(),
    }
    .with_provenance()
}

fn names(list: &PassList) -> Vec<String> {
    list.names().iter().map(|name| name.to_string()).collect()
}

fn as_good((list, speed): &(PassList, Speedup)) -> AsGood {
    AsGood { passes: names(list), relative_speed: speed.ratio, ci95_low: speed.low, ci95_high: speed.high }
}

fn finding((rank, row): (u64, &BottleneckCategory)) -> FindingRow {
    FindingRow {
        rank,
        finding: row.category.clone(),
        percent_of_step: row.percent_of_time,
        speedup_at_most: row.speedup_at_most,
        evidence: row.evidence.clone(),
        asks_for: row.passes.clone(),
    }
}

fn row(rung: &Rung) -> ValidationRow {
    ValidationRow {
        name: rung.name.clone(),
        passes: names(&rung.list),
        predicted_speedup: rung.predicted,
        measured_speedup: rung.measured.ratio,
        measured_ci95_low: rung.measured.low,
        measured_ci95_high: rung.measured.high,
        rounds: rung.measured.rounds as u64,
        memory_before_mb: rung.memory.0 as f64 / MIB,
        memory_after_mb: rung.memory.1 as f64 / MIB,
        kernels_before: rung.kernels.0 as u64,
        kernels_after: rung.kernels.1 as u64,
        loss_difference: rung.loss_difference,
        gradient_difference: rung.gradient_difference,
        curve_difference: rung.curve_difference,
        kept: rung.verdict.is_kept(),
        verdict: rung.verdict.words().into(),
        effort: offered(&rung.name).map_or(Effort::Low, |pass| pass.effort).name().into(),
        phase: offered(&rung.name).map(|pass| pass.phase),
        note: rung.surprise.as_ref().map(explained),
    }
}

fn explained(surprise: &Surprise) -> String {
    let saved = |share: f64| match share >= 0.0 {
        true => format!("save {:.1}%", 100.0 * share),
        false => format!("cost {:.1}%", -100.0 * share),
    };
    format!(
        "predicted to {} of the step, measured to {}. By its fastest call, {} went {} → {}, predicted {} → {}.",
        saved(surprise.predicted_saving),
        saved(surprise.measured_saving),
        surprise.op,
        seconds(surprise.measured_seconds.0),
        seconds(surprise.measured_seconds.1),
        seconds(surprise.predicted_seconds.0),
        seconds(surprise.predicted_seconds.1)
    )
}

fn length(at: &LengthMemory) -> LengthRow {
    LengthRow { seq_len: at.seq_len as u64, baseline_mb: at.baseline as f64 / MIB, kept_mb: at.kept as f64 / MIB }
}

fn growths(lengths: &[LengthMemory]) -> Growth {
    let of = |bytes: fn(&LengthMemory) -> usize| {
        let points: Vec<(usize, usize)> =
            lengths.iter().map(|at| (at.seq_len, bytes(at).saturating_sub(at.fixed))).collect();
        growth(&points)
    };
    Growth { baseline_exponent: of(|at| at.baseline), kept_exponent: of(|at| at.kept) }
}

fn targets(ladder: &Ladder, batch_size: f64, peak_flops: f64) -> Targets {
    let (before, after) = ladder.raced_seconds;
    let kept = ladder.versions.last();
    let mfu = |seconds: f64| 100.0 * ladder.profile.needed_flops / seconds / peak_flops;
    let (memory, kernels) = kept.map_or(((0, 0), (0, 0)), |rung| (rung.memory, rung.kernels));
    Targets {
        samples_per_sec_before: batch_size / before,
        samples_per_sec_after: batch_size / after,
        mfu_percent_before: mfu(before),
        mfu_percent_after: mfu(after),
        memory_mb_before: memory.0 as f64 / MIB,
        memory_mb_after: memory.1 as f64 / MIB,
        kernels_before: kernels.0 as u64,
        kernels_after: kernels.1 as u64,
    }
}

pub fn gate(gate: &Gate) -> (String, GateRecord) {
    // JSON has no infinity.
    let finite = |figure: f64| figure.clamp(f64::MIN, f64::MAX);
    let record = GateRecord {
        result: gate.answer.name().into(),
        figure: finite(gate.figure),
        limit: gate.limit,
        about: gate.about.clone(),
        ci95_low: gate.interval.map(|(low, _)| finite(low)),
        ci95_high: gate.interval.map(|(_, high)| finite(high)),
    };
    (gate.name.to_string(), record)
}
