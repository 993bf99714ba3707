//! Findings of two analyses side by side: gone, new, or grown.

use crate::analysis::Analysis;
use crate::constants::findings::{GROWN, LEAST_GROWTH};
use crate::finding::Cause;
use crate::trace_rules::{TraceFinding, shown_time};

#[derive(Debug, Default)]
pub struct FindingChanges {
    pub gone: Vec<String>,
    pub new: Vec<String>,
    /// The largest growth first.
    pub grown: Vec<String>,
}

pub fn finding_changes(before: &Analysis, after: &Analysis) -> FindingChanges {
    let mut changes = FindingChanges::default();
    let mut grown: Vec<(f64, String)> = Vec::new();
    for (at, finding) in before.findings.iter().enumerate() {
        // Several findings may have one key: the first is that of the first.
        let nth = before.findings[..at].iter().filter(|other| key(other) == key(finding)).count();
        let same = after.findings.iter().filter(|other| key(other) == key(finding)).nth(nth);
        let times = match same {
            Some(other) => seconds(finding, before).zip(seconds(other, after)),
            None => related(finding, before).zip(related(finding, after)),
        };
        let growth = times.map_or(0.0, |(old, new)| if new > GROWN.get() * old { new - old } else { 0.0 });
        let is_large = growth > LEAST_GROWTH.get() * step_seconds(before);
        match (same, times) {
            (Some(_), Some((old, new))) if is_large => {
                grown.push((growth, format!("{}: {} → {} per step", title(finding), shown_time(old), shown_time(new))));
            }
            (Some(_), _) => {}
            (None, Some((old, new))) if growth > 0.0 => {
                let [old, new] = [old, new].map(shown_time);
                let text =
                    format!("{}: no longer a finding, but its time grew from {old} to {new} per step", title(finding));
                grown.push((growth, text));
            }
            // A trace that withholds a figure withholds the findings about it.
            (None, _) if withholds(finding, after) => {}
            (None, _) => changes.gone.push(line(finding)),
        }
    }
    let has = |finding: &TraceFinding| before.findings.iter().any(|other| key(other) == key(finding));
    let new = after.findings.iter().filter(|finding| !has(finding) && !withholds(finding, before));
    changes.new = new.map(line).collect();
    grown.sort_by(|left, right| right.0.total_cmp(&left.0));
    changes.grown = grown.into_iter().map(|(_, text)| text).collect();
    changes
}

/// The rule and what the message is about.
fn key(finding: &TraceFinding) -> (&'static str, &str) {
    (finding.code, subject(finding))
}

/// The first name in the message.
fn subject(finding: &TraceFinding) -> &str {
    finding.message.split('`').nth(1).unwrap_or_default()
}

fn title(finding: &TraceFinding) -> String {
    match subject(finding) {
        "" => format!("{} {}", finding.code, finding.name),
        subject => format!("{} {} `{subject}`", finding.code, finding.name),
    }
}

fn line(finding: &TraceFinding) -> String {
    format!("{} {}: {}", finding.code, finding.name, finding.message)
}

fn step_seconds(analysis: &Analysis) -> f64 {
    analysis.measures.breakdown.wall_seconds / analysis.steps.count()
}

fn seconds(finding: &TraceFinding, analysis: &Analysis) -> Option<f64> {
    finding.share_of_step.map(|share| share * step_seconds(analysis))
}

/// Time per step of what a finding is about, whether or not a rule reports it.
fn related(finding: &TraceFinding, analysis: &Analysis) -> Option<f64> {
    let (measures, steps) = (&analysis.measures, analysis.steps.count());
    let name = subject(finding);
    let operator = measures.operators.rows.iter().find(|row| row.name == name).map(|row| {
        let on_device = measures.operators.device_self_seconds > 0.0;
        if on_device { row.device_self_seconds } else { row.host_self_seconds }
    });
    let kernel = measures.kernels.rows.iter().find(|row| row.name == name).map(|row| row.seconds);
    let idle = &measures.breakdown.idle;
    let of_cause = match finding.cause {
        Cause::LaunchBound => Some(idle.host_busy_seconds + idle.launch_delay_seconds),
        Cause::GpuIdle => Some(idle.total_seconds),
        Cause::DataLoading => Some(measures.data_loading.exposed_seconds),
        Cause::HostCopies => Some(measures.breakdown.copies_exposed_seconds),
        Cause::CommunicationExposed => Some(measures.breakdown.communication_exposed_seconds),
        Cause::DeviceStalled => Some(idle.stalled_seconds),
        Cause::HostSync => Some(idle.host_waiting_seconds),
        Cause::OptimizerPerParameter => Some(measures.patterns.optimizer.host_seconds),
        _ => None,
    };
    // A read-back's operator also runs where nothing waits for it.
    let of_name = operator.or(kernel).filter(|_| finding.cause != Cause::HostSync);
    of_name.or(of_cause).map(|seconds| seconds / steps)
}

/// Whether an analysis cannot have such a finding, whatever the run did.
fn withholds(finding: &TraceFinding, analysis: &Analysis) -> bool {
    let is_about_idle = matches!(
        finding.cause,
        Cause::LaunchBound | Cause::GpuIdle | Cause::DataLoading | Cause::HostSync | Cause::DeviceStalled
    );
    let withheld = |figure: &str| analysis.trust.withheld.contains(&figure);
    is_about_idle && ["idle", "breakdown", "steady-state"].into_iter().any(withheld)
        || matches!(finding.cause, Cause::CommunicationExposed | Cause::Straggler) && withheld("communication")
        || finding.cause == Cause::BelowRoof && withheld("roofline")
}
