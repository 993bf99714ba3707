//! The report of a trace as Markdown.

use std::fmt::Write as _;

use headroom_diagnosis::Analysis;
use headroom_diagnosis::measures::trust;

use super::facts::facts;
use super::ranks;
use super::verdict::Verdict;
use super::{counted_steps, how_steps_were_found, milliseconds, no_findings, operator_table, part_table, percent};
use super::{roadmap_table, together, withholds_idle};
use crate::names;
use crate::table::markdown_table;
use crate::targets;

pub fn markdown(analysis: &Analysis) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = head(&mut out, analysis);
    let _ = findings(&mut out, analysis);
    out += &ranks::markdown(analysis);
    let _ = tables(&mut out, analysis);
    out
}

fn head(out: &mut String, analysis: &Analysis) -> std::fmt::Result {
    let breakdown = &analysis.measures.breakdown;
    let wall = breakdown.wall_seconds / analysis.steps.count();
    writeln!(out, "# {}\n", analysis.trace.name)?;
    if analysis.trust.verdict != trust::Verdict::Sound {
        for note in &analysis.trust.notes {
            writeln!(out, "> **Caution:** {note}\n")?;
        }
    } else {
        for note in &analysis.trust.notes {
            writeln!(out, "> {note}\n")?;
        }
    }
    writeln!(out, "{}\n", verdict(analysis))?;
    if withholds_idle(analysis) {
        return writeln!(out, "Busy and idle time are withheld.");
    }
    writeln!(
        out,
        "{} of {} ({}), busy for {}.\n",
        counted_steps(analysis),
        milliseconds(wall),
        how_steps_were_found(analysis),
        percent(breakdown.busy_share)
    )?;
    writeln!(out, "{}", markdown_table(&part_table(analysis)))?;
    for (name, about) in facts(analysis) {
        writeln!(out, "- {name}: {about}")?;
    }
    Ok(())
}

/// Pace and saving; the notes on trust stand above.
fn verdict(analysis: &Analysis) -> String {
    let Verdict { pace, saving, ranks, .. } = Verdict::of(analysis);
    [pace, saving, ranks].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Findings and roadmap, as a section of another report.
pub fn findings_section(analysis: &Analysis) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = findings(&mut out, analysis);
    out
}

fn findings(out: &mut String, analysis: &Analysis) -> std::fmt::Result {
    writeln!(out, "\n## Findings\n")?;
    if analysis.findings.is_empty() {
        writeln!(out, "{}", no_findings(analysis))?;
    }
    for finding in &analysis.findings {
        let share = finding.share_of_step.map(|share| format!(", {} of the step", percent(share))).unwrap_or_default();
        writeln!(out, "### {} {} ({}{share})\n", finding.code, finding.name, finding.severity)?;
        writeln!(out, "{}\n", finding.message)?;
        if let Some(place) = &finding.place {
            writeln!(out, "At `{}`.\n", place.shown())?;
        } else if let Some(function) = &finding.function {
            writeln!(out, "In `{function}`.\n")?;
        }
        for evidence in &finding.evidence {
            writeln!(out, "- {evidence}")?;
        }
        writeln!(out, "\n**Do:** {}\n", finding.advice)?;
    }
    let roadmap = &analysis.roadmap;
    if roadmap.items.is_empty() {
        return Ok(());
    }
    writeln!(out, "## Roadmap\n\n{}.\n", roadmap.method)?;
    writeln!(out, "{}\n{}", markdown_table(&roadmap_table(analysis)), together(analysis))
}

fn tables(out: &mut String, analysis: &Analysis) -> std::fmt::Result {
    let steps = analysis.steps.count();
    writeln!(out, "\n## Operators\n\n{}", markdown_table(&operator_table(analysis)))?;
    writeln!(out, "{}", targets::note(analysis))?;
    if analysis.measures.kernels.rows.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n## Kernels\n\n| kernel | calls | per step | share | launched by | module |\n|---|---|---|---|---|---|"
    )?;
    for row in analysis.measures.kernels.rows.iter().take(25) {
        writeln!(
            out,
            "| `{}` | {} | {} | {} | {} | {} |",
            names::kernel(&row.name.replace('|', "/"), 100),
            row.calls,
            milliseconds(row.seconds / steps),
            percent(row.share),
            row.operator.as_deref().unwrap_or(""),
            row.module.as_deref().unwrap_or("")
        )?;
    }
    Ok(())
}
