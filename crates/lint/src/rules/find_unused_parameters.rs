//! TP505: the graph is traversed at every step to find parameters without a gradient.

use ruff_python_ast::Expr;

use crate::finding::{Cause, Confidence, Effort, Severity};
use crate::fix::Fix;
use crate::rule::{Check, Notice, SourceRule};
use crate::value::Value;

pub const RULE: SourceRule = SourceRule {
    code: "TP505",
    name: "find-unused-parameters",
    cause: Cause::CommunicationExposed,
    severity: Severity::Low,
    effort: Effort::Low,
    confidence: Confidence::Medium,
    operators: &["DistributedDataParallel.forward", "search_unused_parameters"],
    page: include_str!("find_unused_parameters.md"),
    check,
};

fn check(check: &mut Check) {
    let program = check.program;
    for call in &program.notes.calls {
        let flag = call.node.arguments.find_keyword("find_unused_parameters").map(|keyword| &keyword.value);
        let is_on = matches!(flag, Some(Expr::BooleanLiteral(on)) if on.value);
        let by_strategy =
            call.keyword("strategy") == Some(&Value::Text(Some("ddp_find_unused_parameters_true".to_string())));
        if is_on || by_strategy {
            let message = "`find_unused_parameters` walks the whole graph after every forward pass";
            let advice = "turn it off if every step uses every parameter; freeze or drop unused parameters";
            check.report_as(Notice::Pedantic, call.context, call.node, message, Fix::shown(advice));
        }
    }
}
