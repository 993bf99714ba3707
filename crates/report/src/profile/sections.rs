//! Sections of a trace's page that only headroom's own runs have.

use super::{Profile, tables};
use crate::attribution;
use crate::breakdown_bar::breakdown_bar;
use crate::memory_plot::{MemoryPoint, legend, memory_plot};
use crate::page::{list, matrix, note, table};
use crate::roofline_plot::{RooflinePoint, Roofs, roofline_plot};

/// Title and HTML of the sections before the findings.
pub fn before(profile: &Profile) -> Vec<(&'static str, String)> {
    let breakdown = &profile.run.operator_analysis.step_breakdown;
    let bar = breakdown_bar(&breakdown.parts(), breakdown.wall);
    vec![
        ("Summary", table(&tables::summary(profile), "plain")),
        ("Where a step goes", bar + &table(&tables::breakdown(profile), "narrow")),
    ]
}

/// Title and HTML of the sections after the findings.
pub fn after(profile: &Profile) -> Vec<(&'static str, String)> {
    let mut sections = vec![
        ("Bottlenecks", bottlenecks(profile)),
        ("Impact against effort", quadrants(profile) + &note(tables::EFFORT_NOTE)),
        (
            "Top operators by self time",
            table(&tables::top_operators(profile), "")
                + &note(&tables::target_note(profile))
                + &note(tables::ROOF_NOTE),
        ),
        ("Patterns", table(&tables::patterns(profile), "narrow")),
        ("Roofline", roofline(profile)),
        ("Memory", memory(profile)),
        ("Furthest from the roof", table(&tables::targets(profile), "")),
        (
            "The original course's classes",
            table(&tables::workshop_classes(profile), "narrow") + &note(tables::CLASS_NOTE),
        ),
    ];
    if let Some(nodes) = tables::nodes(profile) {
        sections.push((tables::NODES, table(&nodes, "")));
    }
    if let Some(record) = profile.about.and_then(|about| about.attribution) {
        sections.push(("Updated nodes", attribution::html(record)));
    }
    sections
}

fn roofline(profile: &Profile) -> String {
    let record = &profile.run.roofline_data;
    let places = profile.run.operator_analysis.by_place.iter().filter(|place| place.flops > 0 && place.time > 0.0);
    let points: Vec<RooflinePoint> = places
        .map(|place| RooflinePoint {
            label: place.label(),
            short: format!("{} {}, {}", place.name, place.module.rsplit('.').next().unwrap_or_default(), place.phase),
            intensity: place.intensity,
            flops_per_second: place.flops as f64 / place.time,
            seconds: place.time,
            percent_of_step: place.percent_of_step,
            calls: place.count as f64,
            percent_of_roof: place.percent_of_roof,
            bound: Some(place.bound),
        })
        .collect();
    let whole = &record.performance_point;
    let roofs = Roofs {
        flops: record.device_info.peak_flops,
        bandwidth: record.device_info.peak_memory_bandwidth,
        step: Some((whole.arithmetic_intensity, whole.achieved_performance, whole.mfu_percent)),
    };
    format!("<figure>{}{ROOFLINE_LEGEND}</figure>", roofline_plot(&points, &roofs))
}

const ROOFLINE_LEGEND: &str = "<figcaption class=\"legend\"><span><i class=\"compute_bound\"></i>compute roof</span> \
    <span><i class=\"memory_bound\"></i>memory roof</span> <span><i class=\"overhead_bound\"></i>cost of the call \
    itself</span> <span><i class=\"whole\"></i>the whole step</span> A point is one operator at one kind of place in \
    the model; its area stands for time. Points above the memory roof found their data in a cache.</figcaption>";

/// Memory over the first recorded step.
fn memory(profile: &Profile) -> String {
    const BANDS: [(&str, &str); 5] = [
        ("parameters", "parameters"),
        ("gradients", "gradients"),
        ("optimizer_state", "optimizer state"),
        ("activations", "activations"),
        ("temporaries", "temporaries"),
    ];
    let timeline = &profile.run.memory_timeline.points;
    let first = timeline.first().map(|point| point.step);
    let points: Vec<MemoryPoint> = timeline
        .iter()
        .filter(|point| Some(point.step) == first)
        .map(|point| MemoryPoint {
            millis: point.time_us / 1e3,
            phase: point.phase.clone(),
            label: point.operator.clone(),
            bands: { BANDS }
                .iter()
                .zip(point.live_mb.entries())
                .map(|((class, name), (_, size))| (*class, *name, size))
                .collect(),
        })
        .collect();
    let step = first.map_or_else(String::new, |step| format!("Step {step}."));
    let caption = format!("<figcaption class=\"legend\">{}{step}</figcaption>", legend(&points));
    format!("<figure>{}{caption}</figure>", memory_plot(&points, "milliseconds of the step"))
        + &table(&tables::memory(profile), "narrow")
        + &list(&tables::memory_notes(profile))
}

fn bottlenecks(profile: &Profile) -> String {
    let (ranked, rest) = (tables::bottlenecks(profile), tables::without_remedy(profile));
    let mut out = match ranked.rows.is_empty() {
        true => note(tables::NO_PRIORITY),
        false => table(&ranked, "") + &note(tables::RANKING_NOTE) + &note(tables::BOUND_NOTE),
    };
    if !rest.rows.is_empty() {
        out += &(note(&format!("{}:", tables::NO_FLAG)) + &table(&rest, ""));
    }
    out
}

fn quadrants(profile: &Profile) -> String {
    let items = tables::matrix(profile)
        .map(|(title, rows)| (title, rows.iter().map(|row| format!("{}: `{}`", row.category, row.remedy)).collect()));
    matrix(&items)
}
