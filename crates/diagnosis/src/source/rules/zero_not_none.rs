//! TP501: gradients overwritten with zeros where they could be let go.

use ruff_python_ast::Expr;

use crate::finding::{Cause, Confidence, Effort, Severity};
use crate::source::edits::set_keyword;
use crate::source::fix::Fix;
use crate::source::rule::{Check, SourceRule};

pub const RULE: SourceRule = SourceRule {
    code: "TP501",
    name: "zero-not-none",
    cause: Cause::OptimizerPerParameter,
    severity: Severity::Low,
    effort: Effort::Low,
    confidence: Confidence::High,
    operators: &["aten::zero_", "aten::_foreach_zero_", "Optimizer.zero_grad"],
    page: include_str!("zero_not_none.md"),
    check,
};

fn check(check: &mut Check) {
    let program = check.program;
    for call in &program.calls {
        let keyword = call.node.arguments.find_keyword("set_to_none").map(|keyword| &keyword.value);
        if call.name == "zero_grad" && matches!(keyword, Some(Expr::BooleanLiteral(on)) if !on.value) {
            let message = "`set_to_none=False` writes zeros into every gradient, which the backward pass then adds to";
            let fix = Fix::safe("let them go: `set_to_none=True`", vec![set_keyword(call.node, "set_to_none", "True")]);
            check.report(call.context, call.node, message, fix);
        }
    }
}
