//! The target of an operator: the time it could be reduced to, and the pass that does it. A bound, never a promise.

use crate::numbers::seconds;
use headroom_diagnosis::Analysis;
use headroom_record::operators::PlaceStats;
use headroom_trace::run::Timing;

const WITH_PASSES: &str = "Target: the time that would stay with the named passes, which are not applied yet, else at the \
    machine's roof. It is a bound, not a promise.";
const ROOF_ALONE: &str = "Target: the time at the machine's roof. It is a bound, not a promise.";

/// Explains why two columns are equal on a CPU.
const ON_A_CPU: &str = "On a CPU device time is the CPU's own, so host time is the same.";

/// Passes named in one cell; any others are only counted.
const NAMED: usize = 2;

/// Operators that reached this share of their target have nothing more to gain.
const REACHED: f64 = 0.98;

/// The note below a table of operators.
pub fn note(analysis: &Analysis) -> String {
    let mut places = analysis.run.iter().flat_map(|run| &run.operator_analysis.by_place);
    let about = if places.any(|place| !place.target_passes.is_empty()) { WITH_PASSES } else { ROOF_ALONE };
    let on_a_cpu = analysis.run.as_ref().is_some_and(|run| run.header.timing == Timing::HostClock);
    if on_a_cpu { format!("{about} {ON_A_CPU}") } else { about.into() }
}

pub fn of_place(place: &PlaceStats) -> String {
    target(place.time, place.target_time, &place.target_passes)
}

/// An operator of any trace, over all its places; empty if no roof is known.
pub fn of_operator(analysis: &Analysis, name: &str) -> String {
    if let Some(run) = &analysis.run {
        let own: Vec<&PlaceStats> = run.operator_analysis.by_place.iter().filter(|place| place.name == name).collect();
        let sum = |of: fn(&PlaceStats) -> f64| own.iter().map(|place| of(place)).sum::<f64>();
        let mut passes: Vec<String> = vec![];
        for pass in own.iter().flat_map(|place| &place.target_passes) {
            if !passes.contains(pass) {
                passes.push(pass.clone());
            }
        }
        return target(sum(|place| place.time), sum(|place| place.target_time), &passes);
    }
    let row = analysis.measures.roofline.rows.iter().find(|row| row.name == name && row.roof_seconds > 0.0);
    let steps = analysis.steps.count();
    row.map_or(String::new(), |row| target(row.seconds / steps, row.roof_seconds / steps, &[]))
}

fn target(time: f64, least: f64, passes: &[String]) -> String {
    let named = match passes.len() {
        0..=NAMED => passes.join(", "),
        more => format!("{}, {} more", passes[..NAMED].join(", "), more - NAMED),
    };
    match passes {
        _ if time <= 0.0 => String::new(),
        [] if least >= REACHED * time => "at its roof".into(),
        [] => format!("roof {}", seconds(least)),
        _ if least <= 0.0 => format!("{named}: gone"),
        _ => format!("{named}: {}", seconds(least)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_names_the_missing_pass_or_the_roof() {
        let check = |passes: &[&str], least: f64, wanted: &str| {
            let passes: Vec<String> = passes.iter().map(|pass| pass.to_string()).collect();
            assert_eq!(target(2e-3, least, &passes), wanted);
        };
        check(&[], 1e-3, "roof 1.00 ms");
        check(&[], 1.99e-3, "at its roof");
        check(&[], 3e-3, "at its roof");
        check(&["fuse-qkv"], 1e-3, "fuse-qkv: 1.00 ms");
        check(&["fuse-swiglu"], 0.0, "fuse-swiglu: gone");
        check(&["a", "b", "c", "d"], 1e-3, "a, b, 2 more: 1.00 ms");
        assert_eq!(target(0.0, 0.0, &[]), "");
    }
}
