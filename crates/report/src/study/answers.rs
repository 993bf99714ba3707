//! The workshop's questions about growth, answered in sentences from the figures.

use crate::numbers::mfu;
use headroom_record::flops::is_possible_mfu;
use headroom_record::performance::PREDICTS;
use headroom_record::study::{SizeAnalysis, StudyRecord, StudyRow, VersionAnalysis, VersionComparison};

/// Upper end of the search for the largest batch that fits.
const MOST_SEARCHED: u64 = 1 << 12;

/// The questions, each with one answer per version.
pub fn answers(record: &StudyRecord) -> Vec<(&'static str, Vec<String>)> {
    let of_versions = |answer: fn(&StudyRecord, &VersionAnalysis) -> Option<String>| -> Vec<String> {
        record
            .analysis
            .iter()
            .filter_map(|analysis| answer(record, analysis).map(|text| format!("{}: {text}", analysis.version)))
            .collect()
    };
    let questions = [
        ("Does throughput fall with size?", of_versions(throughput)),
        ("Where does the device saturate?", of_versions(saturation)),
        ("Is a step bound by compute, memory or overhead?", of_versions(bounds)),
        ("Does memory grow with the parameters?", of_versions(memory)),
        ("Where does attention's memory take over?", of_versions(attention)),
        ("Best batch size?", of_versions(batch)),
        ("How do the versions differ?", versions(record)),
    ];
    questions.into_iter().filter(|(_, said)| !said.is_empty()).collect()
}

fn rows<'a>(record: &'a StudyRecord, version: &str) -> Vec<&'a StudyRow> {
    record.runs.iter().filter(|row| row.version == version).collect()
}

fn throughput(record: &StudyRecord, analysis: &VersionAnalysis) -> Option<String> {
    let exponent = analysis.throughput_exponent?;
    let measured: Vec<&StudyRow> =
        rows(record, &analysis.version).into_iter().filter(|row| row.measured.samples_per_sec.is_some()).collect();
    let (first, last) = (measured.first()?, measured.last()?);
    let grown = last.planned.parameters as f64 / first.planned.parameters as f64;
    let ratio = first.measured.samples_per_sec? / last.measured.samples_per_sec?;
    let samples = (analysis.throughput_exponent_low, analysis.throughput_exponent_high);
    let verdict = match samples {
        (Some(low), Some(high)) if falls(low) != falls(high) => {
            format!("not decided between \"{}\" and \"{}\"", falls(high), falls(low))
        }
        _ => falls(exponent).to_string(),
    };
    let tokens = analysis.token_exponent.map_or(String::new(), |exponent| {
        let ends = between((analysis.token_exponent_low, analysis.token_exponent_high), "");
        format!(", tokens/s as parameters^{exponent:.2}{ends}")
    });
    Some(format!(
        "{verdict}: from {} to {}, parameters grow {grown:.1}×, samples/s fall {ratio:.1}× (as parameters^{exponent:.2}{}{tokens})",
        first.size,
        last.size,
        between(samples, "")
    ))
}

fn falls(exponent: f64) -> &'static str {
    match exponent {
        exponent if exponent > -0.1 => "no",
        exponent if exponent > -0.9 => "yes, less than proportionally",
        exponent if exponent > -1.1 => "yes, proportionally",
        _ => "yes, more than proportionally (longer sequences cost too)",
    }
}

/// An interval behind its figure; nothing if there is none.
fn between(ends: (Option<f64>, Option<f64>), of: &str) -> String {
    match ends {
        (Some(low), Some(high)) => format!(" [{of}95% between {low:.2} and {high:.2}]"),
        _ => String::new(),
    }
}

fn saturation(record: &StudyRecord, analysis: &VersionAnalysis) -> Option<String> {
    let rows = rows(record, &analysis.version);
    let used = || rows.iter().filter_map(|row| row.measured.mfu_percent.map(|percent| (row, percent)));
    if let Some((row, percent)) = used().find(|(_, percent)| !is_possible_mfu(*percent)) {
        return Some(format!("unknown: MFU of {} is {}", row.size, mfu(percent, 1)));
    }
    let (size, best) = (analysis.saturates_at.as_ref()?, analysis.best_mfu_percent?);
    let each: Vec<String> = used()
        .map(|(row, percent)| {
            let ends = row.measured.mfu_percent_low.zip(row.measured.mfu_percent_high);
            let ends = ends.map_or(String::new(), |(low, high)| format!(" [{low:.1} to {high:.1}]"));
            format!("{} {percent:.1}%{ends}", row.size)
        })
        .collect();
    if each.len() < 2 {
        return Some(format!("one size shows no trend: MFU of {}", each.join(", ")));
    }
    let from = match (&analysis.saturates_at_low, &analysis.saturates_at_high) {
        (Some(low), Some(high)) if low != high => {
            format!("from {size} on, by the 95% intervals not before {low} and from {high} on at the latest")
        }
        (Some(_), Some(_)) => format!("from {size} on, also by the 95% intervals"),
        _ => format!("from {size} on"),
    };
    Some(format!("{from} (nine tenths of the best MFU, {best:.1}%): {}", each.join(", ")))
}

fn bounds(record: &StudyRecord, analysis: &VersionAnalysis) -> Option<String> {
    let ridge = record.machine.peak_flops / record.machine.peak_bandwidth;
    let each: Vec<String> = rows(record, &analysis.version)
        .iter()
        .filter_map(|row| {
            let bound = row.measured.bound?.word();
            Some(format!("{} {bound} ({:.1} FLOPs per byte)", row.size, row.planned.arithmetic_intensity))
        })
        .collect();
    (!each.is_empty()).then(|| format!("{}; the machine's ridge lies at {ridge:.1}", each.join(", ")))
}

fn memory(_: &StudyRecord, analysis: &VersionAnalysis) -> Option<String> {
    let each: Vec<String> =
        analysis.sizes.iter().map(|size| format!("{} {:.1}×", size.size, size.memory_over_parameters)).collect();
    if each.is_empty() {
        return None;
    }
    let ends = between((analysis.memory_exponent_low, analysis.memory_exponent_high), "of the fit, ");
    let grows =
        analysis.memory_exponent.map_or(String::new(), |exponent| format!("as parameters^{exponent:.2}{ends}; "));
    Some(format!("{grows}peak memory divided by the parameters' bytes: {}", each.join(", ")))
}

fn attention(_: &StudyRecord, analysis: &VersionAnalysis) -> Option<String> {
    let say = |size: &SizeAnalysis| match size.attention_takes_over_at {
        Some(length) => {
            format!("{}: {:.0}% of its memory, half from seq {length} on", size.size, size.attention_share_percent)
        }
        None if size.attention_share_percent > 0.0 => {
            format!("{}: {:.0}% of its memory and never half", size.size, size.attention_share_percent)
        }
        None => format!("{}: none of its memory", size.size),
    };
    if analysis.sizes.is_empty() {
        return None;
    }
    if analysis.sizes.iter().all(|size| size.attention_share_percent == 0.0) {
        return Some("nowhere: tiled attention keeps no seq × seq tensor".into());
    }
    Some(analysis.sizes.iter().map(say).collect::<Vec<_>>().join("; "))
}

fn batch(_: &StudyRecord, analysis: &VersionAnalysis) -> Option<String> {
    let say = |size: &SizeAnalysis| {
        let most = size.largest_batch_that_fits.map_or(String::new(), |most| match most {
            MOST_SEARCHED => format!(" ({most} and more fit)"),
            most => format!(" (up to {most} fit)"),
        });
        match size.best_batch {
            Some(best) => format!("{} {best}{most}", size.size),
            None => format!("{}: none fits", size.size),
        }
    };
    let each: Vec<String> = analysis.sizes.iter().map(say).collect();
    (!each.is_empty()).then(|| {
        format!("{}; predicted, the smallest within 5% of the best speed (`headroom scale` measures)", each.join("; "))
    })
}

/// Compares every later version with the first, size by size.
fn versions(record: &StudyRecord) -> Vec<String> {
    let is_predicted = record.request.device == PREDICTS;
    let row = |version: &str, size: &str| record.runs.iter().find(|row| row.version == version && row.size == size);
    let say = |one: &VersionComparison| {
        let (old, new) = (row(&one.against, &one.size)?, row(&one.version, &one.size)?);
        let memory = new.planned.planned_memory_mb / old.planned.planned_memory_mb;
        let sure = match (one.verdict.as_str(), one.ci95_low, one.ci95_high) {
            _ if is_predicted => " (predicted)".into(),
            ("within the noise", Some(low), Some(high)) => {
                format!(", which is within the noise (95% between {low:.2} and {high:.2})")
            }
            (_, Some(low), Some(high)) => format!(" (95% between {low:.2} and {high:.2})"),
            _ => " (too few steps for an interval)".into(),
        };
        Some(format!(
            "{}: {} takes {:.2}× the time per step of {}{sure}; {memory:.2}× the memory, {} kernels instead of {}",
            one.size,
            one.version,
            one.step_ratio,
            one.against,
            new.planned.kernels_per_step,
            old.planned.kernels_per_step
        ))
    };
    let mut said: Vec<String> = record.comparisons.iter().filter_map(say).collect();
    if !said.is_empty() && !is_predicted && record.race.is_empty() {
        said.push(
            "runs followed one another: the intervals leave out changes of the machine between them (`headroom \
             optimize` alternates its runs)"
                .into(),
        );
    }
    said
}
