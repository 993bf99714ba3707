//! The first screen of a terminal: the verdict, the largest findings, and what to type next.

use std::fmt::Write as _;

use headroom_diagnosis::Analysis;
use headroom_diagnosis::finding::{Cause, Confidence, Severity};
use headroom_diagnosis::measures::steps::FoundBy;
use headroom_diagnosis::trace_rules::TraceFinding;

use super::verdict::{Verdict, is_doubtful};
use super::{counted_steps, device_of, no_findings, percent, place_of};
use crate::names::shortened;
use crate::numbers::{counted, seconds};
use crate::wrap::wrapped_at;

/// Columns of a small terminal.
const WIDTH: usize = 80;
const MOST_FINDINGS: usize = 5;
/// A finding below this share of the step is only counted, unless it is the first.
const WORTH_LINES: f64 = 0.005;
/// Findings that are only counted, by name.
const MOST_NAMED: usize = 6;
/// Lines of one sentence of the verdict. Notes may list every file of a folder.
const MOST_LINES: usize = 6;

pub fn answer(analysis: &Analysis) -> String {
    let more = match analysis.trust.notes.len() {
        0 | 1 => String::new(),
        count => format!(" ({} with --verbose)", counted(count - 1, "more note")),
    };
    let mut out = head(analysis, &more);
    if analysis.findings.is_empty() {
        return out + "\n" + no_findings(analysis) + "\n";
    }
    let (shown, others) = chosen(&analysis.findings);
    for (number, finding) in shown.iter().enumerate() {
        let _ = write!(out, "\n{}", block(number + 1, finding));
    }
    if !others.is_empty() {
        let named: Vec<String> = others.iter().take(MOST_NAMED).map(|finding| small(finding)).collect();
        let rest = match others.len() - named.len() {
            0 => String::new(),
            rest => format!(" and {rest} more"),
        };
        let text = format!("Smaller, with --verbose: {}{rest}.", named.join(", "));
        let _ = write!(out, "\n{}", limited(&text, ""));
    }
    out
}

/// The trace and the verdict; `after_trust` ends its sentence about trust.
pub fn head(analysis: &Analysis, after_trust: &str) -> String {
    let trace = &analysis.trace;
    let rank = match trace.world_size {
        0 | 1 => String::new(),
        world => format!(", rank {} of {world}", trace.rank),
    };
    let wall = analysis.measures.breakdown.wall_seconds / analysis.steps.count();
    let steps = match analysis.steps.found_by {
        _ if wall <= 0.0 => "no steps".to_string(),
        FoundBy::WholeTrace => format!("no steps found, so the whole trace is one window of {}", seconds(wall)),
        _ if analysis.steps.list.len() == 1 => format!("1 step of {}", seconds(wall)),
        FoundBy::Period => format!("{}, found by their period, {} each", counted_steps(analysis), seconds(wall)),
        _ => format!("{}, {} each", counted_steps(analysis), seconds(wall)),
    };
    let mut out = limited(&format!("{}: {steps}, {}{rank}", shortened(&trace.name, 60), device_of(analysis)), "");
    out.push('\n');
    Verdict::of(analysis).sentences(after_trust).iter().for_each(|sentence| out += &limited(sentence, ""));
    out
}

/// The findings that get lines of their own, and the others.
fn chosen(findings: &[TraceFinding]) -> (Vec<&TraceFinding>, Vec<&TraceFinding>) {
    let is_large = |finding: &TraceFinding| match finding.share_of_step {
        Some(share) => share >= WORTH_LINES,
        // The verdict's line on trust speaks of the profiler.
        None => finding.severity >= Severity::Medium && finding.cause != Cause::ProfilerOverhead,
    };
    let (mut shown, mut others) = (Vec::new(), Vec::new());
    for finding in findings {
        match shown.is_empty() || is_large(finding) && shown.len() < MOST_FINDINGS {
            true => shown.push(finding),
            false => others.push(finding),
        }
    }
    (shown, others)
}

fn block(number: usize, finding: &TraceFinding) -> String {
    let doubt = if finding.confidence == Confidence::Low { ", low confidence" } else { "" };
    let head = format!("{number}. {} {} ({}{doubt}){}", finding.code, finding.name, finding.severity, cost(finding));
    let mut out = limited(&head, "   ");
    out += &wrapped_at(&plain(&finding.message), WIDTH, "   ", "   ");
    if let Some(place) = place_of(finding) {
        out += &wrapped_at(&place, WIDTH, "   ", "   ");
    }
    out + &wrapped_at(&plain(&finding.advice), WIDTH, "   → ", "     ")
}

/// `: 13.3% of the step, saves about 9.1%`.
fn cost(finding: &TraceFinding) -> String {
    let share =
        finding.share_of_step.filter(|share| *share > 0.0).map(|share| format!("{} of the step", percent(share)));
    let saving = (finding.saving_expected_share >= WORTH_LINES / 10.0)
        .then(|| format!("a fix saves about {}", percent(finding.saving_expected_share)));
    let both: Vec<String> = share.into_iter().chain(saving).collect();
    if both.is_empty() { String::new() } else { format!(": {}", both.join(", ")) }
}

fn small(finding: &TraceFinding) -> String {
    match finding.share_of_step.filter(|share| *share >= 0.0005) {
        Some(share) => format!("{} {} ({})", finding.code, finding.name, percent(share)),
        None => format!("{} {}", finding.code, finding.name),
    }
}

/// Kernels have names of hundreds of characters, which fill a screen.
fn plain(text: &str) -> String {
    let words: Vec<String> = text.split(' ').map(|word| shortened(word, 70)).collect();
    words.join(" ")
}

/// At most [`MOST_LINES`] lines; `below` stands before all but the first.
fn limited(text: &str, below: &str) -> String {
    let lines = wrapped_at(&plain(text), WIDTH, "", below);
    match lines.lines().nth(MOST_LINES) {
        None => lines,
        Some(_) => {
            let kept: Vec<&str> = lines.lines().take(MOST_LINES).collect();
            format!("{} …\n", shortened(&kept.join("\n"), MOST_LINES * WIDTH - 2))
        }
    }
}

/// The command line, for the commands that are worth typing next.
#[derive(Clone, Debug, Default)]
pub struct Invocation {
    /// The traces, as a shell takes them.
    pub traces: String,
    pub has_source: bool,
    pub is_verbose: bool,
}

/// Commands to type next.
pub fn next_steps(analysis: &Analysis, asked: &Invocation) -> String {
    let traces = &asked.traces;
    let mut steps: Vec<(String, &str)> = Vec::new();
    if is_doubtful(analysis) && analysis.run.is_none() {
        steps.push((
            "headroom record -- python SCRIPT".into(),
            "records steps after warm-up, and times them without a profiler",
        ));
    }
    if let Some(finding) = analysis.findings.first() {
        steps.push((format!("headroom explain {}", finding.code), "why it is slow, how a trace proves it, the fix"));
    }
    let is_foreign = analysis.run.is_none();
    if is_foreign && !asked.has_source && !analysis.findings.is_empty() {
        steps.push((format!("headroom analyze {traces} --source SCRIPT"), "the same, with the lines of the script"));
    }
    if !asked.is_verbose {
        steps.push((format!("headroom analyze {traces} --verbose"), "all findings with evidence, roadmap, tables"));
    }
    if !analysis.findings.is_empty() {
        steps.push((format!("headroom compare {traces} AFTER"), "after a fix: what changed"));
    }
    /// Commands up to this length have their purpose beside them.
    const SHORT: usize = 26;
    let mut out = String::from("\nNext:\n");
    for (command, about) in steps {
        match command.chars().count() {
            0..=SHORT => out += &format!("  {command:<SHORT$}  {about}\n"),
            _ => out += &format!("  {command}\n      {about}\n"),
        }
    }
    out
}
