//! Trace rules: measures in, findings out. One file per rule, with its page beside it.

mod allocator_churn;
mod attention_masked;
mod attention_materialised;
mod batch_too_small;
mod below_roof;
mod cold_start;
mod communication_exposed;
mod cpu_bound_op;
mod data_loading;
mod device_copies;
mod device_stalled;
mod differentiated_twice;
mod for_nothing;
mod forward_repeated;
mod gpu_idle;
mod host_copies;
mod host_sync;
mod launch_bound;
mod memory_grows;
mod memory_near_limit;
mod metrics_each_step;
mod no_tensor_cores;
mod optimizer_per_parameter;
mod passes;
mod profiler_overhead;
mod recomputed;
mod same_constant;
mod small_kernels;
mod straggler;
mod thresholds;
mod uneven_steps;
mod unread_gradients;

use serde::Serialize;

use crate::finding::{Cause, Confidence, Effort, Place, Severity};
use crate::measures::Measures;
use crate::measures::calls::Calls;
use crate::measures::intervals::{Span, merged};
use crate::measures::ranks::Ranks;
use crate::measures::trust::Trust;
use crate::measures::view::View;
use crate::run::RunFigures;
use crate::simulation::{Removal, Simulation};

pub use thresholds::{ThresholdError, Thresholds};

pub struct TraceRule {
    pub code: &'static str,
    pub name: &'static str,
    pub cause: Cause,
    /// Text that `headroom explain` shows.
    pub page: &'static str,
    pub effort: Effort,
    pub check: fn(&Evidence) -> Vec<Found>,
}

/// Everything that a rule may use.
pub struct Evidence<'a> {
    pub view: &'a View<'a>,
    pub measures: &'a Measures,
    /// Figures and planned calls, if the trace is from a headroom run.
    pub run: Option<(&'a RunFigures, &'a Calls<'a>)>,
    pub trust: &'a Trust,
    pub ranks: Option<&'a Ranks>,
    pub thresholds: &'a Thresholds,
    /// The steps of `view`, ready to be replayed.
    pub simulation: &'a Simulation,
    /// Host time that findings of other rules account for; set for the rule that runs last.
    pub explained: &'a [Span],
}

/// A rule's finding: the figures, and what to remove from the step to measure its cost.
#[derive(Clone, Debug)]
pub struct Found {
    /// Share of the step that it costs; `None` for a finding about memory or about the trace itself.
    pub share: Option<f64>,
    pub message: String,
    pub function: Option<String>,
    pub through: Option<String>,
    /// Sorts findings of one function in the order of its lines.
    pub first: i64,
    pub per_step: f64,
    pub evidence: Vec<String>,
    pub advice: String,
    /// Whether the advice is a flag of the run: then it is low effort, whatever the rule's is elsewhere.
    pub is_flag: bool,
    pub confidence: Confidence,
    /// The time that it occupies; of device spans, the least that physics leaves.
    pub removal: Removal,
    /// Whether it is about device time alone: then it costs no more than removing that time shortens the step.
    pub on_device: bool,
    /// Time that a fix is expected to remove, if there is a model of it; otherwise the same as `removal`.
    pub expected: Option<Removal>,
}

impl Found {
    pub fn new(share: Option<f64>, message: String, advice: &str) -> Found {
        Found {
            share,
            message,
            function: None,
            through: None,
            first: 0,
            per_step: 0.0,
            evidence: Vec::new(),
            advice: advice.to_string(),
            is_flag: false,
            confidence: Confidence::High,
            removal: Removal::default(),
            on_device: false,
            expected: None,
        }
    }
}

/// A finding of a trace rule, as reported.
#[derive(Clone, Debug, Serialize)]
pub struct TraceFinding {
    pub code: &'static str,
    pub name: &'static str,
    pub cause: Cause,
    pub severity: Severity,
    pub share_of_step: Option<f64>,
    /// How much a replay without its time shortens the step; `None` where no replay tells, or where it says nothing.
    pub saving_bound_share: Option<f64>,
    /// How much the step is expected to shrink by the remedy.
    pub saving_expected_share: f64,
    pub message: String,
    /// The Python function it happens in, as the trace names it.
    pub function: Option<String>,
    /// Its line, if the source was given.
    pub place: Option<Place>,
    /// Findings of source rules with the same cause at the same place.
    pub sources: Vec<SourceFinding>,
    pub evidence: Vec<String>,
    pub advice: String,
    pub effort: Effort,
    pub confidence: Confidence,
    #[serde(skip)]
    pub found: Found,
}

#[derive(Clone, Debug, Serialize)]
pub struct SourceFinding {
    pub code: String,
    pub place: Place,
}

pub const TRACE_RULES: &[TraceRule] = &[
    host_sync::RULE,
    gpu_idle::RULE,
    launch_bound::RULE,
    data_loading::RULE,
    host_copies::RULE,
    no_tensor_cores::RULE,
    attention_materialised::RULE,
    small_kernels::RULE,
    optimizer_per_parameter::RULE,
    memory_near_limit::RULE,
    allocator_churn::RULE,
    memory_grows::RULE,
    below_roof::RULE,
    same_constant::RULE,
    communication_exposed::RULE,
    straggler::RULE,
    batch_too_small::RULE,
    uneven_steps::RULE,
    cpu_bound_op::RULE,
    profiler_overhead::RULE,
    passes::QKV,
    passes::GATE_UP,
    passes::SWIGLU,
    passes::SCORES,
    passes::ROPE,
    passes::NORM,
    passes::OPTIMIZER,
    passes::LOSS,
    cold_start::RULE,
    device_stalled::RULE,
    device_copies::RULE,
    recomputed::RULE,
    differentiated_twice::RULE,
    unread_gradients::RULE,
    forward_repeated::RULE,
    metrics_each_step::RULE,
    attention_masked::RULE,
];

/// All findings, with the shares that their rules state.
pub fn find(evidence: &Evidence) -> Vec<TraceFinding> {
    let mut findings: Vec<TraceFinding> = Vec::new();
    for rule in TRACE_RULES.iter().filter(|rule| rule.code != gpu_idle::RULE.code) {
        findings.extend((rule.check)(evidence).into_iter().map(|found| finding(rule, found)));
    }
    // Idle time is what no other rule explains, so this rule runs last.
    let set_up = evidence.view.cold.spans.iter().copied();
    let by_others = findings.iter().flat_map(|finding| finding.found.removal.host.clone());
    let explained = merged(by_others.chain(set_up).collect());
    let rest = (gpu_idle::RULE.check)(&Evidence { explained: &explained, ..*evidence });
    findings.extend(rest.into_iter().map(|found| finding(&gpu_idle::RULE, found)));
    findings
}

/// The largest share first; findings without a share after them.
pub fn sort(findings: &mut [TraceFinding]) {
    findings.sort_by(|left, right| {
        let share = |finding: &TraceFinding| finding.share_of_step.unwrap_or(-1.0);
        share(right).total_cmp(&share(left)).then(left.code.cmp(right.code)).then(left.message.cmp(&right.message))
    });
}

fn finding(rule: &TraceRule, found: Found) -> TraceFinding {
    TraceFinding {
        code: rule.code,
        name: rule.name,
        cause: rule.cause,
        severity: severity(rule, found.share, found.confidence),
        share_of_step: found.share,
        saving_bound_share: None,
        saving_expected_share: 0.0,
        message: found.message.clone(),
        function: found.function.clone(),
        place: None,
        sources: Vec::new(),
        evidence: found.evidence.clone(),
        advice: found.advice.clone(),
        effort: if found.is_flag { Effort::Low } else { rule.effort },
        confidence: found.confidence,
        found,
    }
}

pub fn severity(rule: &TraceRule, share: Option<f64>, confidence: Confidence) -> Severity {
    let by_share = share.map_or(Severity::Medium, Severity::of_share);
    match rule.cause {
        // A cold start does not slow later steps, however long it is.
        Cause::ColdStart => Severity::Medium,
        // A second pass may belong to another model, and then has to run; idle time that nobody saw may be anything; the
        // processor's operators are the work where there is no GPU.
        Cause::Recomputed | Cause::GpuIdle | Cause::CpuBoundOperator if confidence == Confidence::Low => {
            by_share.min(Severity::Medium)
        }
        _ => by_share,
    }
}

pub fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent < 1.0 { format!("{percent:.2}%") } else { format!("{percent:.1}%") }
}

pub fn shown_time(seconds: f64) -> String {
    match seconds {
        seconds if seconds > 0.0 && seconds < 1e-4 => format!("{:.1} µs", 1e6 * seconds),
        seconds => format!("{:.2} ms", 1e3 * seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn severity_goes_by_share_but_for_cold_starts_and_doubtful_repetitions() {
        let rule = |cause: Cause| TRACE_RULES.iter().find(|rule| rule.cause == cause).expect("has a rule");
        let of = |cause: Cause, share: Option<f64>, confidence: Confidence| severity(rule(cause), share, confidence);
        let (high, low) = (Confidence::High, Confidence::Low);
        assert_eq!(of(Cause::HostSync, Some(0.3), high), Severity::Critical);
        assert_eq!(of(Cause::HostSync, Some(0.3), low), Severity::Critical);
        assert_eq!(of(Cause::HostSync, Some(0.01), high), Severity::Low);
        assert_eq!(of(Cause::HostSync, None, high), Severity::Medium);
        assert_eq!(of(Cause::ColdStart, Some(0.9), high), Severity::Medium);
        assert_eq!(of(Cause::Recomputed, Some(0.3), high), Severity::Critical);
        assert_eq!(of(Cause::Recomputed, Some(0.3), low), Severity::Medium);
        assert_eq!(of(Cause::CpuBoundOperator, Some(0.41), low), Severity::Medium);
        assert_eq!(of(Cause::Recomputed, Some(0.01), low), Severity::Low);
    }

    #[test]
    fn advice_that_is_a_flag_is_low_effort_under_any_rule() {
        for rule in TRACE_RULES {
            let of = |is_flag: bool| finding(rule, Found { is_flag, ..Found::new(None, String::new(), "") }).effort;
            assert_eq!((of(true), of(false)), (Effort::Low, rule.effort), "{}", rule.code);
        }
        assert!(TRACE_RULES.iter().any(|rule| rule.effort > Effort::Low));
    }

    #[test]
    fn small_shares_are_shown_with_two_decimals() {
        assert_eq!([percent(0.5), percent(0.01), percent(0.0099), percent(0.0)], ["50.0%", "1.0%", "0.99%", "0.00%"]);
        assert_eq!([shown_time(1.5), shown_time(0.000_25)], ["1500.00 ms", "0.25 ms"]);
    }

    #[test]
    fn codes_follow_each_other_from_tr101_each_with_a_whole_page() {
        let codes: Vec<String> = (101..).take(TRACE_RULES.len()).map(|number| format!("TR{number}")).collect();
        assert_eq!(TRACE_RULES.iter().map(|rule| rule.code).collect::<Vec<_>>(), codes);
        for rule in TRACE_RULES {
            let title = format!("# {}: {}\n", rule.code, rule.name);
            assert!(rule.page.starts_with(&title), "{}", rule.code);
            for part in ["## Why it is slow", "## Example", "## Fix", "## How a trace proves it", "## When not to"] {
                assert!(rule.page.contains(part), "{} lacks {part}", rule.code);
            }
        }
    }
}
