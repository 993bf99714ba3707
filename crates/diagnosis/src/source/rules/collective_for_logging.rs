//! TP506: ranks that meet at every step only to average a number for the log.

use ruff_python_ast::Stmt;

use crate::finding::{Cause, Confidence, Effort, Severity};
use crate::source::edits::{cadence_condition, guard_statement};
use crate::source::fix::Fix;
use crate::source::program::{Call, Callee};
use crate::source::rule::{Check, SourceRule};

pub const RULE: SourceRule = SourceRule {
    code: "TP506",
    name: "collective-for-logging",
    cause: Cause::CommunicationExposed,
    severity: Severity::Medium,
    effort: Effort::Low,
    confidence: Confidence::Medium,
    operators: &["nccl:all_reduce", "c10d::allreduce_", "nccl:all_gather"],
    page: include_str!("collective_for_logging.md"),
    check,
};

fn check(check: &mut Check) {
    let program = check.program;
    for call in program.hot_calls() {
        if !is_collective(call) || program.is_in_parameter_loop(call.context) || !is_metric(call) {
            continue;
        }
        let message = format!("`{}` of a number for the log makes all ranks meet at every step", call.name);
        let edit = match call.statement {
            Stmt::Expr(_) => cadence_condition(program, call.context)
                .and_then(|condition| guard_statement(program.source(call.context), call.statement, &condition)),
            _ => None,
        };
        let fix = Fix::unsafe_("average it only when it is logged", edit.into_iter().collect());
        check.report(call.context, call.node, message, fix);
    }
}

fn is_collective(call: &Call) -> bool {
    match &call.callee {
        Callee::External(dotted) => {
            dotted.starts_with("torch.distributed.")
                && matches!(
                    call.name,
                    "all_reduce" | "reduce" | "all_gather" | "all_gather_object" | "all_gather_into_tensor"
                )
        }
        Callee::Method => matches!(call.name, "gather_for_metrics"),
        _ => false,
    }
}

/// By its name: a loss, an accuracy, a count.
fn is_metric(call: &Call) -> bool {
    let names: Vec<&str> = call.node.arguments.args.iter().flat_map(crate::source::names_in).collect();
    names.iter().any(|name| {
        let lower = name.to_ascii_lowercase();
        ["loss", "acc", "metric", "correct", "total", "count", "stat", "meter", "log"]
            .iter()
            .any(|word| lower.contains(word))
    })
}
