//! The report of a trace as one HTML page, in the frame of the profile's: nothing is fetched.

mod tables;

use std::fmt::Write as _;

use headroom_diagnosis::Analysis;
use headroom_diagnosis::measures::memory::Point;
use headroom_diagnosis::measures::trust::Verdict;

use super::facts::{BANDS, facts};
use super::{critical_path, effort, how_steps_were_found, milliseconds, parts, percent, place_of, withholds_idle};
use crate::names::{self, shortened};
use crate::numbers::{self, bytes, grouped, metric};
use crate::page::{Page, code, list, note, table};
use crate::svg::{Axis, Frame, Scale, escape};
use crate::table::Table;

pub fn html(analysis: &Analysis) -> String {
    let trace = &analysis.trace;
    let device = trace.device.as_deref().unwrap_or("no device");
    let events = grouped(trace.reading.events);
    let about = format!("{events} events, {device}, rank {} of {}", trace.rank, trace.world_size);
    let mut page = Page::new(&trace.name, &about);
    let mut section = |title: &str, content: String| {
        if !content.is_empty() {
            page.section(title, &content);
        }
    };
    if analysis.trust.verdict != Verdict::Sound {
        let broken = analysis.trust.verdict == Verdict::Broken;
        section(if broken { "Cannot be trusted" } else { "With a reserve" }, reserve(analysis));
    }
    let facts = facts(analysis).into_iter().map(|(name, about)| vec![name.to_string(), about]).collect();
    let more = table(&Table { head: vec!["", ""], rows: facts }, "plain");
    section("Summary", table(&summary(analysis), "plain") + &more);
    if !withholds_idle(analysis) {
        section("Where a step goes", breakdown(analysis));
    }
    section("Findings, by the share of the step they cost", findings(analysis));
    section("Roadmap", roadmap(analysis));
    section("Operators", tables::operators(analysis));
    section("Kernels", kernels(analysis));
    section("Against the roofline", tables::roofline(analysis));
    if !withholds_idle(analysis) {
        section("Critical path", tables::path(analysis));
    }
    section("Waits for the device", tables::waits(analysis));
    section("Copies", tables::copies(analysis));
    section("Memory", memory(analysis));
    section("Ranks", ranks(analysis));
    page.finish()
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
            "kernels a step",
            grouped(measures.kernels.per_step.round() as u64),
            &format!("median {:.1} µs", measures.kernels.median_micros),
        ));
        let ahead = format!(
            "{:.1} µs each, {} with nothing queued ahead",
            launches.call_micros_median,
            percent(launches.nothing_ahead_share)
        );
        rows.push(row("launches a step", grouped(launches.per_step.round() as u64), &ahead));
    }
    if let Some(path) = critical_path(analysis).filter(|_| !withholds_idle(analysis)) {
        rows.push(row("critical path", String::new(), &path));
    }
    if measures.roofline.flops_per_step > 0.0 {
        let source = measures.roofline.peak_source.as_deref().unwrap_or("no peak is known for this device");
        let mfu =
            measures.roofline.mfu_percent.map(|mfu| format!("MFU {}, ", numbers::mfu(mfu, 2))).unwrap_or_default();
        rows.push(row("FLOP a step", metric(measures.roofline.flops_per_step, "FLOP"), &format!("{mfu}{source}")));
    }
    if measures.memory.peak_bytes > 0 {
        let capacity = measures.memory.capacity_bytes.map(|all| format!("of {}", bytes(all))).unwrap_or_default();
        rows.push(row("peak memory", bytes(measures.memory.peak_bytes), &capacity));
    }
    Table { head: vec!["", "", ""], rows }
}

/// One bar for a step, left to right in the order of the table below it.
fn breakdown(analysis: &Analysis) -> String {
    let wall = (analysis.measures.breakdown.wall_seconds / analysis.steps.count()).max(f64::MIN_POSITIVE);
    let mut bar = String::from(r#"<svg viewBox="0 0 760 44" role="img" aria-label="Parts of a step">"#);
    let mut at = 0.0;
    let mut rows = Vec::new();
    for (index, (name, seconds)) in parts(analysis).into_iter().enumerate() {
        let (share, time) = (seconds / wall, milliseconds(seconds));
        let (width, part) = (760.0 * share, index % 7);
        let tip = escape(&format!("{name}\n{time}\n{} of the step", percent(share)));
        let drawn = (width - 1.0).max(0.4);
        let _ = write!(
            bar,
            r#"<rect class="part{part}" x="{at:.2}" y="4" width="{drawn:.2}" height="36" data-tip="{tip}"/>"#
        );
        if width > 130.0 {
            let middle = at + width / 2.0;
            let label = escape(&format!("{name} {}", percent(share)));
            let _ = write!(bar, r#"<text class="inside" x="{middle:.1}" y="27" text-anchor="middle">{label}</text>"#);
        }
        rows.push(vec![name.to_string(), time, percent(share)]);
        at += width;
    }
    bar + "</svg>" + &table(&Table { head: vec!["part", "a step", "share"], rows }, "narrow")
}

fn findings(analysis: &Analysis) -> String {
    if analysis.findings.is_empty() && analysis.trust.verdict == Verdict::Broken {
        return note("No finding can be made from this trace.");
    }
    if analysis.findings.is_empty() {
        return note("None: nothing stands out in this trace.");
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
    let row = |(number, item): (usize, &headroom_diagnosis::roadmap::RoadmapItem)| {
        let shares = [item.alone_share, item.additional_share].map(percent);
        let what = format!("{} {}", item.code, item.name);
        vec![
            (number + 1).to_string(),
            what,
            shares[0].clone(),
            shares[1].clone(),
            effort(item.effort).to_string(),
            item.advice.clone(),
        ]
    };
    let rows = roadmap.items.iter().enumerate().map(row).collect();
    let together = format!(
        "Together at most {}: from {} to no less than {} a step. {}.",
        percent(roadmap.total_saving_bound_share),
        milliseconds(roadmap.step_seconds_now),
        milliseconds(roadmap.step_seconds_at_best),
        roadmap.method
    );
    let head = vec!["", "what", "alone, at most", "beyond those above", "effort", "do"];
    table(&Table { head, rows }, "") + &note(&together)
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
            vec![
                format!("`{}`", names::kernel(&row.name, 160)),
                grouped(row.calls),
                seconds,
                percent(row.share),
                operator,
                module,
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    table(&Table { head: vec!["kernel", "calls", "a step", "share", "launched by", "module"], rows }, "")
}

fn memory(analysis: &Analysis) -> String {
    const FRAME: Frame = Frame { left: 78.0, top: 16.0, width: 650.0, height: 260.0 };
    let curve = &analysis.measures.memory.curve;
    let (Some(first), Some(last)) = (curve.first(), curve.last()) else { return String::new() };
    let mebibytes = |count: u64| count as f64 / f64::from(1 << 20);
    let most = mebibytes(analysis.measures.memory.peak_bytes).max(1e-9);
    let x = Axis {
        from: 1e3 * first.seconds,
        to: (1e3 * last.seconds).max(1e3 * first.seconds + 1e-6),
        scale: Scale::Linear,
    };
    let y = Axis { from: 0.0, to: 1.1 * most, scale: Scale::Linear };
    let mut out =
        String::from(r#"<figure><svg viewBox="0 0 760 326" role="img" aria-label="Live memory by what it is for">"#);
    out += &FRAME.grid((&x, "milliseconds from the first step"), (&y, "MiB live"), |tick| {
        // Sums of tenths have long tails.
        format!("{}", (tick * 1e6).round() / 1e6)
    });
    let mut below = vec![0u64; curve.len()];
    let mut legend = String::new();
    for (class, name, of) in BANDS {
        let above: Vec<u64> = curve.iter().zip(&below).map(|(point, base)| base + of(point)).collect();
        let place = |(point, height): (&Point, &u64)| {
            format!("{:.1},{:.1}", FRAME.x(&x, 1e3 * point.seconds), FRAME.y(&y, mebibytes(*height)))
        };
        let up: Vec<String> = curve.iter().zip(&above).map(place).collect();
        let back: Vec<String> = curve.iter().zip(&below).rev().map(place).collect();
        let _ = write!(out, r#"<path class="band {class}" d="M{} L{}Z"/>"#, up.join(" L"), back.join(" L"));
        let _ = write!(legend, r#"<span><i class="{class}"></i>{name}</span> "#);
        below = above;
    }
    let about = "Read from where an allocation began and ended: made in the backward pass and still there after it is a gradient.";
    out + "</svg><figcaption class=\"legend\">" + &legend + about + "</figcaption></figure>"
}

fn ranks(analysis: &Analysis) -> String {
    let Some(ranks) = &analysis.ranks else { return String::new() };
    let rows = ranks.ranks.iter().map(|row| {
        let [step, inside, waited] = [row.step_seconds, row.collective_seconds, row.waited_seconds].map(milliseconds);
        vec![row.rank.to_string(), step, row.collectives.to_string(), inside, waited, percent(row.last_share)]
    });
    let head = vec!["rank", "a step", "collectives", "time in them", "of that, waiting", "came last"];
    let table = table(&Table { head, rows: rows.collect() }, "narrow");
    let who = ranks.straggler.map(|rank| format!("Rank {rank} is the one the others wait for.")).unwrap_or_default();
    table + &note(&who)
}
