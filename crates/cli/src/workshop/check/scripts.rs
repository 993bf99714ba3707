//! Folders of a PyTorch script: its recordings, the remedies tried on it, and the report of a re-analysed folder.

use super::Answers;
use super::training::written;
use crate::analyze;
use crate::workshop::folders::record;
use headroom_record::script::ScriptRecord;
use headroom_record::validation::VALIDATION_FILE;
use headroom_report::numbers::counted;
use headroom_trace::GzipRatio;
use serde_json::Value;
use std::path::Path;

const ANALYSIS_FILE: &str = "analysis.json";

pub fn report(place: &Path) -> Result<Answers, String> {
    let analysis: Value = record(place, ANALYSIS_FILE)?;
    let findings = analysis["findings"].as_array().ok_or_else(|| format!("{ANALYSIS_FILE} has no findings"))?;
    let steps = analysis["steps"]["list"].as_array().map_or(0, Vec::len);
    Ok(Answers {
        complete: Ok(counted(findings.len(), "finding")),
        as_asked: written(place, "report.md"),
        report: written(place, "report.html"),
        agree: match analysis["measures"].is_object() {
            true => Ok(format!("measures of {}", counted(steps, "step"))),
            false => Err(format!("{ANALYSIS_FILE} holds no measures")),
        },
    })
}

/// Traces that `headroom record` wrote: read and measured here, whatever the folder's name.
pub fn recording(place: &Path) -> Result<Answers, String> {
    let analysis = analyze::of_one_run(place, GzipRatio::Usual).map_err(|error| error.to_string())?;
    let (steps, operators) = (&analysis.steps.list, analysis.measures.operators.rows.len());
    // Any list of objects parses as a trace without events.
    if operators == 0 {
        return Err("no operator was recorded".to_string());
    }
    Ok(Answers {
        complete: Ok(format!("{operators} operators")),
        as_asked: match &analysis.run {
            Some(_) => Err("the trace is of a run of headroom's own, not of a script".to_string()),
            None => Ok(format!("a trace of {} of a script", counted(steps.len(), "step"))),
        },
        report: Ok(format!("`headroom analyze` reads it: {}", counted(analysis.findings.len(), "finding"))),
        agree: match steps.iter().all(|step| step.seconds > 0.0) && !steps.is_empty() {
            true => Ok("every step took time".to_string()),
            false => Err("no step is found in it".to_string()),
        },
    })
}

/// `headroom optimize -- python …`.
pub fn remedies(place: &Path) -> Result<Answers, String> {
    let found: ScriptRecord = record(place, VALIDATION_FILE)?;
    let tried = found.remedies.iter().filter(|row| row.has_run()).count();
    let failed = found.gates.iter().find(|(name, gate)| *name != "throughput" && gate.result == "fail");
    Ok(Answers {
        complete: match tried {
            0 => Err("no remedy was tried".to_string()),
            _ => Ok(format!("tried {}, kept {}", counted(tried, "remedy"), found.kept.len())),
        },
        as_asked: match found.command.iter().any(|word| word.ends_with(".py")) {
            true => Ok(found.command.join(" ")),
            false => Err(format!("`{}` names no script", found.command.join(" "))),
        },
        report: written(place, "optimize.html"),
        agree: match failed {
            Some((name, gate)) => Err(format!("the gate {name} fails: {} beyond {}", gate.figure, gate.limit)),
            None if found.kept.is_empty() => Ok("nothing was kept".to_string()),
            None if found.ci95_low <= found.speedup && found.speedup <= found.ci95_high => {
                Ok(format!("{:.2}× inside its interval, losses agree", found.speedup))
            }
            None => Err("the speed-up lies outside its interval".to_string()),
        },
    })
}
