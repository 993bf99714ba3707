//! The overview of a run folder, from its files.

use headroom_diagnosis::Analysis;
use headroom_record::flops::{FLOPS_FILE, FlopsRecord};
use headroom_record::intensity::{INTENSITY_FILE, IntensityRecord};
use headroom_record::memory::MemoryRecord;
use headroom_record::operators::{OperatorRecord, StepBreakdown};
use headroom_record::performance::{PERFORMANCE_FILE, PerformanceRecord};
use headroom_record::provenance::Provenance;

use super::RunRecords;
use super::overview::{Figure, Finding, NOT_PROFILED, Overview, Part, RoadmapRow};
use super::overview_of_trace::findings;
use crate::numbers::{grouped, metric, mfu, seconds};

/// The overview; the run's trace, if it has one, adds findings of the trace rules.
pub fn overview(name: &str, records: &RunRecords, analysis: Option<&Analysis>) -> Overview {
    let mut overview = Overview { title: name.to_string(), notes: records.unreadable.clone(), ..Overview::default() };
    if let Some(config) = &records.config {
        let shape = &config.configuration;
        overview.title = format!("{} {}", config.family, config.size);
        overview.subtitle = format!(
            "{} · {} parameters · batch {} × {} tokens · {} steps · {}",
            config.version.replace(',', ", "),
            grouped(shape.parameters),
            shape.batch_size,
            shape.seq_len,
            grouped(shape.num_steps),
            config.timestamp
        );
    }
    if let Some(record) = &records.performance {
        let system = &record.system_info;
        overview.subtitle += &format!(" · {}, {} threads on {}", system.device, system.threads, system.cpu_name);
        if record.is_predicted() {
            overview.notes.push("Nothing was computed: times are predicted.".into());
        }
        overview.notes.extend(record.warnings.iter().cloned());
        speed(&mut overview.headline, record);
    } else {
        overview.notes.push("The run has left no summary: it is still running, or it was stopped.".into());
    }
    if let Some(flops) = &records.flops {
        efficiency(&mut overview.headline, flops);
    }
    if let Some(intensity) = &records.intensity {
        bound(&mut overview.headline, intensity);
    }
    if let Some(record) = &records.performance {
        peak(&mut overview.headline, record, records.memory.as_ref());
    }
    if let Some(operators) = &records.operators {
        overview.breakdown = parts(&operators.step_breakdown);
        overview.breakdown_note = format!("mean of {} recorded steps", operators.step_breakdown.steps);
        // The trace rules name the same passes, with codes.
        overview.findings = if analysis.is_some() { vec![] } else { bottlenecks(operators) };
        overview.roadmap = targets(operators);
        overview.roadmap_by = "priority";
        overview.roadmap_note =
            "upper bounds, as if the operator ran at its roof; each concerns a different operator, so they do not overlap".into();
    } else if let Some(record) = &records.performance {
        overview.breakdown = phases(record);
        overview.breakdown_note = "means over all steps after the warm-up".into();
    }
    if let Some(analysis) = analysis {
        overview.findings.extend(findings(analysis));
    }
    let looked = records.operators.is_some() || analysis.is_some();
    overview.no_findings = if looked { "Nothing stands out." } else { NOT_PROFILED };
    overview.no_roadmap = if looked { "Nothing to gain was found." } else { NOT_PROFILED };
    overview.findings.sort_by(|left, right| right.share.unwrap_or(0.0).total_cmp(&left.share.unwrap_or(0.0)));
    overview
}

/// Location of a figure: its file, that file's provenance, and its key there.
struct Place<'a>(&'static str, &'a Provenance, &'static str);

fn figure(name: &str, shown: Option<String>, number: Option<f64>, note: String, place: Place) -> Figure {
    Figure {
        name: name.to_string(),
        shown: shown.unwrap_or_else(|| "not known".into()),
        number,
        note,
        origin: place.1.origin_of(place.2),
        file: place.0.to_string(),
        key: place.2.to_string(),
    }
}

fn speed(list: &mut Vec<Figure>, record: &PerformanceRecord) {
    let place = |key| Place(PERFORMANCE_FILE, &record.provenance, key);
    let (summary, statistics) = (&record.performance_summary, &record.statistics);
    let interval = match (statistics.ci95_low, statistics.ci95_high) {
        _ if record.is_predicted() => "predicted".into(),
        (Some(low), Some(high)) => format!("95% between {} and {}", seconds(low), seconds(high)),
        _ => "too few steps for an interval".into(),
    };
    list.push(figure(
        "Step, median",
        statistics.median.map(seconds),
        statistics.median,
        interval,
        place("statistics.median"),
    ));
    list.push(figure(
        "Throughput",
        summary.tokens_per_sec.map(|rate| metric(rate, "tokens/s")),
        summary.tokens_per_sec,
        summary.avg_training_speed.map_or(String::new(), |rate| metric(rate, "samples/s")),
        place("performance_summary.tokens_per_sec"),
    ));
    let floor = summary.loss_floor.map_or(String::new(), |floor| format!("the data's entropy is {floor:.4}"));
    list.push(figure(
        "Final loss",
        summary.final_loss.map(|loss| format!("{loss:.4}")),
        summary.final_loss,
        floor,
        place("performance_summary.final_loss"),
    ));
    if let Some(share) = summary.profiling_overhead_percent {
        let note = "recorded steps against unrecorded ones, alternating".to_string();
        let shown = summary.overhead_words();
        list.push(figure(
            "Recording cost",
            shown,
            Some(share),
            note,
            place("performance_summary.profiling_overhead_percent"),
        ));
    }
}

fn efficiency(list: &mut Vec<Figure>, flops: &FlopsRecord) {
    let metrics = &flops.efficiency_metrics;
    let note = format!("of {} ({})", metric(metrics.device_peak_flops, "FLOP/s"), metrics.device_peak_source);
    let place = Place(FLOPS_FILE, &flops.provenance, "efficiency_metrics.mfu_percent");
    list.push(figure("MFU", Some(mfu(metrics.mfu_percent, 1)), Some(metrics.mfu_percent), note, place));
}

fn bound(list: &mut Vec<Figure>, intensity: &IntensityRecord) {
    let note = format!(
        "{} FLOPs per byte, ridge at {:.1}; nothing ran for {:.1}% of the step",
        metric(intensity.arithmetic_intensity_flops_per_byte, "").trim(),
        intensity.ridge_point_flops_per_byte,
        intensity.idle_percent
    );
    let name = intensity.memory_bound_vs_compute_bound.word().to_string();
    let number = Some(intensity.arithmetic_intensity_flops_per_byte);
    let place = Place(INTENSITY_FILE, &intensity.provenance, "arithmetic_intensity_flops_per_byte");
    list.push(figure("Bound by", Some(name), number, note, place));
}

fn peak(list: &mut Vec<Figure>, record: &PerformanceRecord, memory: Option<&MemoryRecord>) {
    let peak = record.performance_summary.peak_memory_mb;
    let place = Place(PERFORMANCE_FILE, &record.provenance, "performance_summary.peak_memory_mb");
    let live = memory.map_or(String::new(), |memory| {
        let size = mebibytes(memory.peak_memory_mb);
        format!("; {size} of it live in {}, at {}", memory.peak_phase, memory.peak_operator)
    });
    let note = format!("reserved: arena and kernel scratch{live}");
    list.push(figure("Peak memory", peak.map(mebibytes), peak, note, place));
}

fn mebibytes(size: f64) -> String {
    if size >= 1024.0 { format!("{:.2} GiB", size / 1024.0) } else { format!("{size:.1} MiB") }
}

fn parts(breakdown: &StepBreakdown) -> Vec<Part> {
    let whole = breakdown.wall.max(f64::MIN_POSITIVE);
    let part = |(name, seconds): (&str, f64)| Part { name: name.to_string(), seconds, share: seconds / whole };
    breakdown.parts().into_iter().map(part).collect()
}

/// Without a profile: the phases that the training loop itself times, and the rest.
fn phases(record: &PerformanceRecord) -> Vec<Part> {
    let summary = &record.performance_summary;
    let Some(whole) = summary.avg_batch_time.filter(|whole| *whole > 0.0) else { return vec![] };
    let known = [
        ("forward", summary.avg_forward_time),
        ("backward", summary.avg_backward_time),
        ("optimizer", summary.avg_optimizer_time),
        ("data wait and copy", summary.avg_data_time),
    ];
    let named: Vec<(&str, f64)> = known.into_iter().filter_map(|(name, time)| Some((name, time?))).collect();
    let rest = whole - named.iter().map(|(_, time)| time).sum::<f64>();
    let all = named.into_iter().chain([("other", rest.max(0.0))]);
    all.map(|(name, seconds)| Part { name: name.to_string(), seconds, share: seconds / whole }).collect()
}

fn bottlenecks(operators: &OperatorRecord) -> Vec<Finding> {
    let severity = |share: Option<f64>| match share {
        Some(share) => headroom_diagnosis::finding::Severity::of_share(share / 100.0).name(),
        None => "low",
    };
    let rows = operators.bottlenecks.categories.iter().filter(|row| row.has_remedy());
    let finding = |row: &headroom_record::operators::BottleneckCategory| Finding {
        code: String::new(),
        name: row.category.clone(),
        severity: severity(row.percent_of_time).to_string(),
        share: row.percent_of_time.map(|percent| percent / 100.0),
        message: match row.speedup_at_most {
            Some(speedup) => format!("A step would be at most {speedup:.2}× as fast without it."),
            None => "Nothing to gain in speed.".into(),
        },
        place: None,
        evidence: vec![row.evidence.clone()],
        advice: row.remedy.clone(),
    };
    rows.map(finding).collect()
}

fn targets(operators: &OperatorRecord) -> Vec<RoadmapRow> {
    let rows = operators.bottlenecks.optimization_targets.iter();
    let row = |target: &headroom_record::operators::OptimizationTarget| RoadmapRow {
        name: target.operation.clone(),
        advice: target.optimization.clone(),
        effort: target.priority.clone(),
        expected_share: None,
        alone_share: Some(target.saves_at_most_percent / 100.0),
        additional_share: Some(target.saves_at_most_percent / 100.0),
    };
    rows.map(row).collect()
}
