//! The report on a trace as one HTML page, in the same frame as the profile's: nothing is fetched.

mod tables;

use std::fmt::Write as _;

use headroom_diagnosis::Analysis;
use headroom_diagnosis::measures::trust;

use super::facts::{BANDS, Band, facts};
use super::verdict::Verdict;
use super::{counters, queue, ranks};
use super::{
    critical_path, device_of, how_steps_were_found, milliseconds, no_findings, part_table, parts, percent, place_of,
    roadmap_table, together, withholds_idle,
};
use crate::breakdown_bar::breakdown_bar;
use crate::memory_plot::{MemoryPoint, legend, memory_plot};
use crate::names::shortened;
use crate::numbers::{self, bytes, grouped, metric};
use crate::page::{Page, code, kernel_cell, list, note, table};
use crate::profile::{self, Profile};
use crate::roofline_plot::{RooflinePoint, Roofs, roofline_plot};
use crate::svg::escape;
use crate::table::Table;

pub fn html(analysis: &Analysis) -> String {
    page(analysis, Profile::of(analysis, None).as_ref())
}

/// A section appears if its data exists; headroom's own runs have some more.
pub fn page(analysis: &Analysis, run: Option<&Profile>) -> String {
    let trace = &analysis.trace;
    let (title, about) = match run {
        Some(run) => (profile::title(run), profile::subtitle(run)),
        None => {
            let device = device_of(analysis);
            let events = grouped(trace.reading.events);
            let about = format!("{events} events, {device}, rank {} of {}", trace.rank, trace.world_size);
            (trace.name.clone(), about)
        }
    };
    let mut page = Page::new(&title, &about);
    let mut section = |title: &str, content: String| {
        if !content.is_empty() {
            page.section(title, &content);
        }
    };
    section("In short", list(&Verdict::of(analysis).sentences("")));
    if analysis.trust.verdict != trust::Verdict::Sound {
        let broken = analysis.trust.verdict == trust::Verdict::Broken;
        section(if broken { "Cannot be trusted" } else { "Read with caution" }, reserve(analysis));
    } else if !analysis.trust.notes.is_empty() {
        section("Note", list(&analysis.trust.notes));
    }
    match run {
        Some(run) => profile::before(run).into_iter().for_each(|(title, content)| section(title, content)),
        None => {
            let facts = facts(analysis).into_iter().map(|(name, about)| vec![name.to_string(), about]).collect();
            let more = table(&Table { head: vec!["", ""], rows: facts }, "plain");
            section("Summary", table(&summary(analysis), "plain") + &more);
            if !withholds_idle(analysis) {
                section("Where a step goes", breakdown(analysis));
            }
        }
    }
    section("Ranks", ranks::html(analysis));
    section("Findings, by the share of the step they cost", findings(analysis));
    section("Roadmap", roadmap(analysis));
    match run {
        Some(run) => profile::after(run).into_iter().for_each(|(title, content)| section(title, content)),
        None => {
            section("Operators", tables::operators(analysis));
            section("Roofline", roofline(analysis) + &tables::roofline(analysis));
            section("Efficiency by shape", tables::efficiency(analysis));
            section("Memory", memory(analysis));
        }
    }
    section("Kernels", kernels(analysis) + &tables::sequences(analysis));
    section("Queue", queue::html(analysis));
    section("Counters", counters::html(analysis));
    if !withholds_idle(analysis) && analysis.measures.critical_path.device_seconds > 0.0 {
        section("Critical path", tables::path(analysis));
    }
    section("Waits for the device", tables::waits(analysis));
    section("Copies", tables::copies(analysis));
    page.finish()
}

/// One point per operator, if the device's peaks are known.
fn roofline(analysis: &Analysis) -> String {
    let measure = &analysis.measures.roofline;
    let (Some(flops), Some(bandwidth)) = (measure.peak_flops_per_second, measure.peak_bytes_per_second) else {
        return String::new();
    };
    let steps = analysis.steps.count();
    let wall = (analysis.measures.breakdown.wall_seconds / steps).max(f64::MIN_POSITIVE);
    let timed = measure.rows.iter().filter(|row| row.seconds > 0.0 && row.bytes > 0.0);
    let mut points: Vec<RooflinePoint> = timed
        .map(|row| RooflinePoint {
            label: row.name.clone(),
            short: shortened(&row.name, 40),
            intensity: row.intensity,
            flops_per_second: row.flops / row.seconds,
            seconds: row.seconds / steps,
            percent_of_step: 100.0 * row.seconds / steps / wall,
            calls: row.calls as f64 / steps,
            percent_of_roof: row.percent_of_roof,
            bound: row.bound,
        })
        .collect();
    points.sort_by(|left, right| right.seconds.total_cmp(&left.seconds));
    if points.is_empty() {
        return String::new();
    }
    format!("<figure>{}</figure>", roofline_plot(&points, &Roofs { flops, bandwidth, step: None }))
}

fn reserve(analysis: &Analysis) -> String {
    let withheld = &analysis.trust.withheld;
    let kept_back =
        if withheld.is_empty() { String::new() } else { note(&format!("Withheld: {}.", withheld.join(", "))) };
    list(&analysis.trust.notes) + &kept_back
}

fn summary(analysis: &Analysis) -> Table {
    let (measures, steps) = (&analysis.measures, &analysis.steps);
    let wall = measures.breakdown.wall_seconds / steps.count();
    let row = |name: &str, value: String, about: &str| vec![name.to_string(), value, about.to_string()];
    let mut rows = vec![row(
        "step",
        milliseconds(wall),
        &format!("{} found {}", steps.list.len(), how_steps_were_found(analysis)),
    )];
    if !withholds_idle(analysis) {
        rows.push(row("busy", percent(measures.breakdown.busy_share), "of the step"));
    }
    if measures.kernels.count > 0 {
        let launches = &measures.launches;
        rows.push(row(
            "kernels per step",
            grouped(measures.kernels.per_step.round() as u64),
            &format!("median {:.1} µs", measures.kernels.median_micros),
        ));
        let ahead = format!(
            "{:.1} µs each, {} with nothing queued ahead",
            launches.call_micros_median,
            percent(launches.nothing_ahead_share)
        );
        rows.push(row("launches per step", grouped(launches.per_step.round() as u64), &ahead));
    }
    if let Some(path) = critical_path(analysis).filter(|_| !withholds_idle(analysis)) {
        rows.push(row("critical path", String::new(), &path));
    }
    if measures.roofline.flops_per_step > 0.0 {
        let source = measures.roofline.peak_source.as_deref().unwrap_or("no peak is known for this device");
        let mfu =
            measures.roofline.mfu_percent.map(|mfu| format!("MFU {}, ", numbers::mfu(mfu, 2))).unwrap_or_default();
        rows.push(row("FLOPs per step", metric(measures.roofline.flops_per_step, "FLOP"), &format!("{mfu}{source}")));
    }
    if measures.memory.peak_bytes > 0 {
        let capacity = measures.memory.capacity_bytes.map(|all| format!("of {}", bytes(all))).unwrap_or_default();
        rows.push(row("peak memory", bytes(measures.memory.peak_bytes), &capacity));
    }
    Table { head: vec!["", "", ""], rows }
}

/// One bar for a step, from left to right in the order of the table below it.
fn breakdown(analysis: &Analysis) -> String {
    let wall = (analysis.measures.breakdown.wall_seconds / analysis.steps.count()).max(f64::MIN_POSITIVE);
    breakdown_bar(&parts(analysis), wall) + &table(&part_table(analysis), "narrow")
}

fn findings(analysis: &Analysis) -> String {
    if analysis.findings.is_empty() {
        return note(no_findings(analysis));
    }
    let mut out = String::new();
    for finding in &analysis.findings {
        let share = finding.share_of_step.map(|share| format!("{} · ", percent(share))).unwrap_or_default();
        let _ = write!(
            out,
            "<h3 style=\"margin-top: 18px\">{share}{} {} ({})</h3>",
            finding.code, finding.name, finding.severity
        );
        let place = place_of(finding).map(|place| format!(" <code>{}</code>", escape(&place))).unwrap_or_default();
        let _ = write!(out, "<p>{}{place}</p>", code(&finding.message));
        let mut lines: Vec<String> = finding.evidence.iter().map(|evidence| shortened(evidence, 300)).collect();
        lines.push(format!("Do: {}", finding.advice));
        out += &list(&lines);
    }
    out
}

fn roadmap(analysis: &Analysis) -> String {
    let roadmap = &analysis.roadmap;
    if roadmap.items.is_empty() {
        return String::new();
    }
    table(&roadmap_table(analysis), "") + &note(&format!("{} {}.", together(analysis), roadmap.method))
}

fn kernels(analysis: &Analysis) -> String {
    let rows: Vec<Vec<String>> = analysis
        .measures
        .kernels
        .rows
        .iter()
        .take(25)
        .map(|row| {
            let seconds = milliseconds(row.seconds / analysis.steps.count());
            let as_code = |name: &String| format!("`{name}`");
            let [operator, module] =
                [&row.operator, &row.module].map(|name| name.as_ref().map(as_code).unwrap_or_default());
            vec![kernel_cell(&row.name, 100), grouped(row.calls), seconds, percent(row.share), operator, module]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    table(&Table { head: vec!["kernel", "calls", "per step", "share", "launched by", "module"], rows }, "")
}

fn memory(analysis: &Analysis) -> String {
    let curve = &analysis.measures.memory.curve;
    if curve.is_empty() {
        return String::new();
    }
    let used: Vec<&Band> = BANDS
        .iter()
        // Only headroom's own runs tell parameters apart from memory allocated before the trace.
        .filter(|(class, _, of)| *class != "parameters" || curve.iter().any(|point| of(point) > 0))
        .collect();
    let mebibytes = |count: u64| count as f64 / f64::from(1 << 20);
    let points: Vec<MemoryPoint> = curve
        .iter()
        .map(|point| MemoryPoint {
            millis: 1e3 * point.seconds,
            phase: String::new(),
            label: String::new(),
            bands: used.iter().map(|(class, name, of)| (*class, *name, mebibytes(of(point)))).collect(),
        })
        .collect();
    let about = "Inferred from when memory was allocated and freed: a gradient is allocated in the backward pass and still live after it.";
    let caption = format!("<figcaption class=\"legend\">{}{about}</figcaption>", legend(&points));
    format!("<figure>{}{caption}</figure>", memory_plot(&points, "milliseconds since the first step"))
}
