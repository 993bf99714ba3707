//! TP404: a launch-bound step without compilation. Shown only where a trace confirms it.

use crate::finding::{Cause, Confidence, Effort, Severity};
use crate::fix::Fix;
use crate::rule::{Check, SourceRule};
use crate::topics::Topic;

pub const RULE: SourceRule = SourceRule {
    code: "TP404",
    name: "not-compiled",
    cause: Cause::LaunchBound,
    severity: Severity::Low,
    effort: Effort::Medium,
    confidence: Confidence::Low,
    operators: &["cudaLaunchKernel", "cuLaunchKernel"],
    page: include_str!("not_compiled.md"),
    check,
};

fn check(check: &mut Check) {
    let program = check.program;
    for call in super::first_backward(program) {
        if program.groups.mentions(program.file_of(call.context), Topic::Compiled) {
            continue;
        }
        let message = "the step consists of many small kernels, and nothing is compiled";
        let fix = Fix::shown("try `model = torch.compile(model)` and measure");
        check.report(call.context, call.node, message, fix);
    }
    for finding in &mut check.found {
        finding.needs_trace = true;
    }
}
