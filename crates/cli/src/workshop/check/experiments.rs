//! Experiments with many runs: studies, sweeps, the ladder of `optimize`, and K-1's.

use super::Answers;
use super::training::{above_zero, near, written};
use crate::k1::MARKDOWN_FILE;
use crate::k1::speed::SPEED_MARKDOWN_FILE;
use crate::k1::tree::TREE_MARKDOWN_FILE;
use crate::workshop::folders::record;
use headroom_record::k1::{K1_FILE, K1Record};
use headroom_record::k1_speed::{K1_SPEED_FILE, K1SpeedRecord};
use headroom_record::k1_tree::{K1_TREE_FILE, K1TreeRecord};
use headroom_record::scaling::{SCALING_FILE, ScalingPoint, ScalingRecord};
use headroom_record::study::{STUDY_FILE, StudyRecord, StudyRow, StudyStatus};
use headroom_record::validation::{VALIDATION_FILE, ValidationRecord, ValidationRow};
use std::path::Path;

/// Allowed relative error between the product of the kept passes' speed-ups and the kept list's: both are from one
/// race.
const PRODUCT: f64 = 0.1;

fn all_of(wanted: &[&str], there: &[String], what: &str) -> Result<(), String> {
    let missing: Vec<&str> = wanted.iter().copied().filter(|name| !there.iter().any(|have| have == name)).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("without the {what} {}", missing.join(", "))) }
}

pub fn study(sizes: &[&str], versions: &[&str], place: &Path) -> Result<Answers, String> {
    let study: StudyRecord = record(place, STUDY_FILE)?;
    let unfinished: Vec<String> = study
        .runs
        .iter()
        .filter(|run| !matches!(run.status, StudyStatus::Finished | StudyStatus::DoesNotFit))
        .map(|run| format!("{} {} is {}", run.size, run.version, run.status.name()))
        .collect();
    let complete = match (unfinished.is_empty(), study.analysis.is_empty()) {
        (true, false) => Ok(format!("{} runs", study.runs.len())),
        (true, true) => Err("there is no analysis: the study did not come to its end".to_string()),
        (false, _) => Err(unfinished.join("; ")),
    };
    let asked = all_of(sizes, &study.request.sizes, "sizes");
    let asked = asked.and_then(|()| all_of(versions, &study.request.versions, "versions"));
    Ok(Answers {
        complete,
        as_asked: asked.map(|()| format!("{}; {}", sizes.join(", "), versions.join(", "))),
        report: written(place, "study.html"),
        agree: study.runs.iter().try_for_each(row_agrees).map(|()| "memory by component, speed and loss".to_string()),
    })
}

fn row_agrees(row: &StudyRow) -> Result<(), String> {
    let name = format!("{} {}", row.size, row.version);
    let planned = &row.planned;
    near(&format!("{name}: components"), planned.memory_by_component.total(), "memory", planned.planned_memory_mb)?;
    if row.status != StudyStatus::Finished {
        return Ok(());
    }
    above_zero(&format!("{name}: samples per second"), row.measured.samples_per_sec.unwrap_or_default())?;
    match row.measured.final_loss {
        Some(loss) => above_zero(&format!("{name}: loss"), loss),
        None => Ok(()),
    }
}

pub fn sweep(size: &str, passes: &str, batches: &[u64], lengths: &[u64], place: &Path) -> Result<Answers, String> {
    let sweep: ScalingRecord = record(place, SCALING_FILE)?;
    let lacks = |wanted: &[u64], there: &[ScalingPoint], of: fn(&ScalingPoint) -> u64| {
        wanted.iter().find(|wanted| !there.iter().any(|point| of(point) == **wanted)).copied()
    };
    let wrong = [
        (sweep.size != size).then(|| format!("size {}, not {size}", sweep.size)),
        (sweep.version != passes).then(|| format!("passes {}, not {passes}", sweep.version)),
        lacks(batches, &sweep.batch_points, |point| point.batch_size).map(|batch| format!("without batch {batch}")),
        lacks(lengths, &sweep.sequence_points, |point| point.seq_len).map(|length| format!("without length {length}")),
    ];
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    let points = sweep.batch_points.len() + sweep.sequence_points.len();
    let agree = rises("batch", &sweep.batch_points).and_then(|()| rises("sequence", &sweep.sequence_points));
    Ok(Answers {
        complete: if points > 0 { Ok(format!("{points} points")) } else { Err("it has no point".to_string()) },
        as_asked: if wrong.is_empty() { Ok(format!("{size}, --passes {passes}")) } else { Err(wrong.join("; ")) },
        report: written(place, "scaling.html"),
        agree: agree.map(|()| "memory rises along both axes, and its factors are those of the first point".to_string()),
    })
}

fn rises(axis: &str, points: &[ScalingPoint]) -> Result<(), String> {
    for pair in points.windows(2) {
        if pair[1].peak_memory_mb < pair[0].peak_memory_mb {
            return Err(format!("memory falls along the {axis}"));
        }
    }
    let Some(first) = points.first() else { return Ok(()) };
    points.iter().try_for_each(|point| {
        near(axis, point.scaling_factor * first.peak_memory_mb, "peak memory", point.peak_memory_mb)
    })
}

pub fn ladder(size: &str, place: &Path) -> Result<Answers, String> {
    let found: ValidationRecord = record(place, VALIDATION_FILE)?;
    let complete = match found.passes.is_empty() || found.versions.is_empty() {
        true => Err("no pass was measured".to_string()),
        false => Ok(format!("{} passes, {} kept", found.passes.len(), found.kept.len())),
    };
    let asked = if found.size == size { Ok(size.to_string()) } else { Err(format!("size {}, not {size}", found.size)) };
    Ok(Answers {
        complete,
        as_asked: asked,
        report: written(place, "optimize.html"),
        agree: ladder_agrees(&found).map(|()| "gates of exactness pass, and speed-ups multiply".to_string()),
    })
}

/// Checks that the kept passes multiply to the kept list, and that the optimized model is still the same.
fn ladder_agrees(found: &ValidationRecord) -> Result<(), String> {
    if let Some((name, gate)) = found.gates.iter().find(|(name, gate)| *name != "throughput" && gate.result == "fail") {
        return Err(format!("the gate {name} fails: {} beyond {}", gate.figure, gate.limit));
    }
    let product: f64 = found.passes.iter().filter(|row| row.kept).map(|row| row.measured_speedup).product();
    let is_kept = |row: &&ValidationRow| row.passes == found.kept;
    let Some(list) = found.versions.iter().find(is_kept) else { return Ok(()) };
    let off = (product / list.measured_speedup - 1.0).abs();
    match off <= PRODUCT {
        true => Ok(()),
        false => Err(format!("kept passes multiply to {product:.2}×, the kept list has {:.2}×", list.measured_speedup)),
    }
}

pub fn rules(place: &Path) -> Result<Answers, String> {
    let found: K1Record = record(place, K1_FILE)?;
    let unfinished = found.runs.iter().filter(|run| !run.complete).count();
    let arms: Vec<String> = found.arms.iter().map(|arm| arm.update.clone()).collect();
    let floor = found.design.loss_floor;
    let low = found.runs.iter().find(|run| !(run.loss.is_finite() && run.loss >= 0.9 * floor));
    Ok(Answers {
        complete: match unfinished {
            0 if !arms.is_empty() => Ok(format!("{} runs", found.runs.len())),
            _ => Err(format!("{unfinished} of {} runs did not reach their budget", found.runs.len())),
        },
        as_asked: all_of(&["dense"], &arms, "arm").map(|()| format!("{} seeds", found.design.seeds.len())),
        report: written(place, MARKDOWN_FILE),
        agree: match low {
            Some(run) => Err(format!("{}: loss {} below the sources' entropy {floor:.4}", run.update, run.loss)),
            None => Ok("losses are finite and above the sources' entropy".to_string()),
        },
    })
}

pub fn tree(place: &Path) -> Result<Answers, String> {
    let found: K1TreeRecord = record(place, K1_TREE_FILE)?;
    let arms: Vec<String> = found.arms.iter().map(|arm| arm.arm.clone()).collect();
    let unsound = found.runs.iter().find(|run| !run.loss.is_finite());
    Ok(Answers {
        complete: match found.answers.is_empty() {
            true => Err(format!("{} runs are there; `--resume` runs those that are left", found.runs.len())),
            false => Ok(format!("{} runs, {} answers", found.runs.len(), found.answers.len())),
        },
        as_asked: all_of(&["dense", "llama"], &arms, "arms").map(|()| format!("{} seeds", found.design.seeds.len())),
        report: written(place, TREE_MARKDOWN_FILE),
        agree: match unsound {
            Some(run) => Err(format!("{}: the loss is not a number", run.arm)),
            None => Ok("losses are finite".to_string()),
        },
    })
}

pub fn tree_speed(place: &Path) -> Result<Answers, String> {
    let found: K1SpeedRecord = record(place, K1_SPEED_FILE)?;
    let outside = found.rows.iter().find(|row| !(row.ci95_low <= row.speedup && row.speedup <= row.ci95_high));
    Ok(Answers {
        complete: match found.rows.len() {
            0 => Err("no habit was timed".to_string()),
            count => Ok(format!("{count} habits timed")),
        },
        as_asked: above_zero("rounds", found.rows.iter().map(|row| row.rounds).min().unwrap_or(0) as f64)
            .map(|()| format!("{} nodes", found.nodes)),
        report: written(place, SPEED_MARKDOWN_FILE),
        agree: match outside {
            Some(row) => Err(format!("{}: the speed-up lies outside its interval", row.habit)),
            None => Ok("every speed-up lies inside its interval".to_string()),
        },
    })
}
