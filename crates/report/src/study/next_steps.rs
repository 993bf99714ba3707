//! Commands to type after a study, each with its reason: the course's own list ends every study.

use headroom_record::study::{StudyRecord, StudyRow, StudyStatus};

/// The course's baseline.
pub const BASELINE: &str = "v1";

pub fn next_steps(record: &StudyRecord) -> Vec<String> {
    let request = &record.request;
    let finished: Vec<&StudyRow> = record.runs.iter().filter(|row| row.status == StudyStatus::Finished).collect();
    let Some(largest) = finished.iter().max_by_key(|row| row.planned.parameters) else { return vec![] };
    let mut steps = vec!["Keep this table: `headroom runs compare` sets later runs beside it.".to_string()];
    if !request.versions.iter().any(|version| version == BASELINE) {
        steps.push(format!(
            "Measure the course's baseline beside it: `headroom study {} --passes {BASELINE},{}`.",
            request.sizes.join(" "),
            request.versions.join(",")
        ));
    }
    if let ([size], Some(larger)) = (request.sizes.as_slice(), larger_than(&request.sizes)) {
        steps.push(format!(
            "See how it grows: `headroom study {size} {larger} --passes {}`.",
            request.versions.join(",")
        ));
    }
    match (&largest.folder, request.enable_profilers) {
        (Some(folder), true) => {
            steps.push(format!("Read the profile: `headroom analyze DIR/{folder}`, where DIR is this study's folder."))
        }
        _ => steps.push(format!(
            "Find the three operators that take the most time: `headroom study {} --passes {} --enable-profilers`.",
            largest.size, largest.version
        )),
    }
    steps.push(format!("Measure which optimisations pay: `headroom optimize --size {}`.", largest.size));
    steps.push(format!("See how memory grows with batch and sequence: `headroom scale --size {}`.", largest.size));
    steps
}

/// The size after the only one.
fn larger_than(sizes: &[String]) -> Option<&'static str> {
    const ORDER: [&str; 6] = ["nano", "tiny", "small", "medium", "large", "very_large"];
    let at = ORDER.iter().position(|name| sizes.last().is_some_and(|size| size == name))?;
    ORDER.get(at + 1).copied()
}
