//! The terminal report: trust first, then the step, findings by share, and what to do first.

use std::fmt::Write as _;

use headroom_diagnosis::Analysis;
use headroom_diagnosis::measures::breakdown::WhereWorkRuns;
use headroom_diagnosis::measures::trust::Verdict;

use super::facts::facts;
use super::ranks;
use super::{critical_path, device_of, effort, has_device_time, how_steps_were_found, milliseconds, parts, percent};
use super::{no_findings, place_of, together, true_step, withholds_idle};
use crate::names::{self, shortened};
use crate::numbers::{self, bytes};
use crate::targets;

pub fn text(analysis: &Analysis) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = head(&mut out, analysis);
    let _ = step(&mut out, analysis);
    out += &ranks::text(analysis);
    let _ = tables(&mut out, analysis);
    let _ = findings(&mut out, analysis);
    let _ = roadmap(&mut out, analysis);
    out
}

fn head(out: &mut String, analysis: &Analysis) -> std::fmt::Result {
    let trace = &analysis.trace;
    let device = device_of(analysis);
    writeln!(
        out,
        "{}: {} events, {device}, rank {} of {}",
        trace.name, trace.reading.events, trace.rank, trace.world_size
    )?;
    if analysis.trust.verdict != Verdict::Sound {
        let broken = analysis.trust.verdict == Verdict::Broken;
        let word = if broken { "cannot be trusted" } else { "needs caution" };
        writeln!(out, "\nThis trace {word}:")?;
        for note in &analysis.trust.notes {
            writeln!(out, "  - {note}")?;
        }
        if !analysis.trust.withheld.is_empty() {
            writeln!(out, "  withheld: {}", analysis.trust.withheld.join(", "))?;
        }
    } else {
        for note in &analysis.trust.notes {
            writeln!(out, "  {note}")?;
        }
    }
    Ok(())
}

fn step(out: &mut String, analysis: &Analysis) -> std::fmt::Result {
    let steps = &analysis.steps;
    let breakdown = &analysis.measures.breakdown;
    let wall = breakdown.wall_seconds / steps.count();
    if withholds_idle(analysis) {
        let (steps, found) = (steps.list.len(), how_steps_were_found(analysis));
        writeln!(out, "\n{steps} steps of {} ({found}); busy and idle time are withheld", milliseconds(wall))?;
        return Ok(());
    }
    let who = match breakdown.where_work_runs {
        WhereWorkRuns::Device => "the device is busy for",
        WhereWorkRuns::Host => "operators run for",
    };
    writeln!(
        out,
        "\n{} steps of {} ({}); {who} {}",
        steps.list.len(),
        milliseconds(wall),
        how_steps_were_found(analysis),
        percent(breakdown.busy_share)
    )?;
    writeln!(out, "  {}", true_step(analysis))?;
    for (name, seconds) in parts(analysis) {
        writeln!(
            out,
            "  {name:<28} {:>11}  {:>6}",
            milliseconds(seconds),
            percent(seconds / wall.max(f64::MIN_POSITIVE))
        )?;
    }
    let measures = &analysis.measures;
    if measures.kernels.count > 0 {
        let launches = &measures.launches;
        let graphs = match launches.graph_launches {
            0 => String::new(),
            graphs => format!(", {graphs} launches of whole graphs"),
        };
        let single = match launches.count {
            0 => String::new(),
            _ => format!(
                ", {:.0} launches of {:.1} µs, {} with nothing queued ahead",
                launches.per_step,
                launches.call_micros_median,
                percent(launches.nothing_ahead_share)
            ),
        };
        writeln!(
            out,
            "  {:.0} kernels per step (median {:.1} µs){single}{graphs}",
            measures.kernels.per_step, measures.kernels.median_micros
        )?;
    }
    if let Some(path) = critical_path(analysis) {
        writeln!(out, "  critical path: {path}")?;
    }
    if measures.roofline.flops_per_step > 0.0 {
        let mfu = measures.roofline.mfu_percent;
        let mfu = mfu.map(|mfu| format!(", MFU {}{}", numbers::mfu(mfu, 2), over_all_steps(analysis, wall)));
        let mfu = mfu.unwrap_or_default();
        let source = measures.roofline.peak_source.as_ref().map(|source| format!(" ({source})")).unwrap_or_default();
        writeln!(out, "  {:.2} GFLOP per step{mfu}{source}", measures.roofline.flops_per_step / 1e9)?;
    }
    if measures.memory.peak_bytes > 0 {
        let capacity = measures.memory.capacity_bytes.map(|all| format!(" of {}", bytes(all))).unwrap_or_default();
        writeln!(out, "  peak memory {}{capacity}", bytes(measures.memory.peak_bytes))?;
    }
    for (name, about) in facts(analysis) {
        writeln!(out, "  {name}: {}", about.replace('`', ""))?;
    }
    Ok(())
}

fn tables(out: &mut String, analysis: &Analysis) -> std::fmt::Result {
    let measures = &analysis.measures;
    let steps = analysis.steps.count();
    let device = has_device_time(analysis);
    let column = |text: String| if device { format!("{text:>12} ") } else { String::new() };
    let head = column("device/step".into());
    let target = |name: &str| targets::of_operator(analysis, name);
    let last =
        if measures.operators.rows.iter().take(10).all(|row| target(&row.name).is_empty()) { "" } else { "  target" };
    writeln!(out, "\n{:<44} {:>8} {head}{:>12} {:>7}{last}", "operator", "calls", "host/step", "share")?;
    for row in measures.operators.rows.iter().take(10) {
        let line = format!(
            "{:<44} {:>8} {}{:>12} {:>7}  {}",
            shortened(&row.name, 44),
            row.calls,
            column(milliseconds(row.device_self_seconds / steps)),
            milliseconds(row.host_self_seconds / steps),
            percent(row.share),
            target(&row.name)
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    writeln!(out, "  Share: of the time of all operators together.")?;
    if !last.is_empty() {
        writeln!(out, "  {}", targets::note(device))?;
    }
    if measures.kernels.rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{:<60} {:>6} {:>11} {:>7}  launched by", "kernel", "calls", "per step", "share")?;
    for row in measures.kernels.rows.iter().take(8) {
        writeln!(
            out,
            "{:<60} {:>6} {:>11} {:>7}  {}",
            names::kernel(&row.name, 60),
            row.calls,
            milliseconds(row.seconds / steps),
            percent(row.share),
            row.operator.as_deref().unwrap_or("-")
        )?;
    }
    Ok(())
}

fn findings(out: &mut String, analysis: &Analysis) -> std::fmt::Result {
    if analysis.findings.is_empty() {
        return writeln!(out, "\n{}", no_findings(analysis));
    }
    writeln!(out, "\nFindings, by the share of the step they cost:")?;
    for finding in &analysis.findings {
        let share = finding.share_of_step.map(percent).unwrap_or_else(|| "-".into());
        writeln!(out, "\n  {share:>6}  {} {} ({})", finding.code, finding.name, finding.severity)?;
        writeln!(out, "          {}", finding.message)?;
        if let Some(place) = place_of(finding) {
            writeln!(out, "          {place}")?;
        }
        for evidence in &finding.evidence {
            writeln!(out, "          · {}", shortened(evidence, 140))?;
        }
        writeln!(out, "          → {}", finding.advice)?;
    }
    Ok(())
}

/// The step that a run's MFU refers to, where its recorded steps took another time: recording slows them.
fn over_all_steps(analysis: &Analysis, recorded: f64) -> String {
    const DIFFERS: f64 = 0.01;
    let mean = analysis.run.as_ref().and_then(|run| run.header.run.mean_step_seconds);
    let other = mean.filter(|mean| (mean / recorded - 1.0).abs() > DIFFERS);
    other.map(|mean| format!(" over the run's mean step of {}", milliseconds(mean))).unwrap_or_default()
}

fn roadmap(out: &mut String, analysis: &Analysis) -> std::fmt::Result {
    let roadmap = &analysis.roadmap;
    if roadmap.items.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nRoadmap ({}):", roadmap.method)?;
    for (number, item) in roadmap.items.iter().enumerate() {
        writeln!(
            out,
            "  {}. {} {}: {} of the step expected{} ({} beyond those above); effort {}",
            number + 1,
            item.code,
            item.name,
            percent(item.expected_share),
            item.alone_share.map(|most| format!(", at most {}", percent(most))).unwrap_or_default(),
            percent(item.additional_share),
            effort(item.effort)
        )?;
    }
    writeln!(out, "  {}", together(analysis))?;
    if !roadmap.outside_bound.is_empty() {
        writeln!(out, "  not in the bound, because no model covers it: {}", roadmap.outside_bound.join(", "))?;
    }
    Ok(())
}
