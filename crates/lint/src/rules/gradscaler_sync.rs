//! TP108: a gradient scaler that reads back at every step because the optimizer cannot skip on the device.

use crate::edits::set_keyword;
use crate::finding::{Cause, Confidence, Effort, Severity};
use crate::fix::Fix;
use crate::notice;
use crate::rule::{Check, SourceRule};
use crate::value::Value;

pub const RULE: SourceRule = SourceRule {
    code: "TP108",
    name: "gradscaler-sync",
    cause: Cause::HostSync,
    severity: Severity::Medium,
    effort: Effort::Low,
    confidence: Confidence::Medium,
    operators: &["aten::item", "aten::_local_scalar_dense", "aten::_amp_foreach_non_finite_check_and_unscale_"],
    page: include_str!("gradscaler_sync.md"),
    check,
};

fn check(check: &mut Check) {
    let program = check.program;
    for call in program.hot_calls() {
        let (Value::Scaler(Some(scaler)), "step") = (&call.receiver, call.name) else { continue };
        let Some(Value::Optimizer(Some(optimizer))) = call.arguments.first() else { continue };
        let enabled = program.site(*scaler).1.arguments.find_keyword("enabled").map(|keyword| &keyword.value);
        let is_enabled =
            enabled.is_none_or(|value| matches!(value, ruff_python_ast::Expr::BooleanLiteral(on) if on.value));
        let (file, site) = program.site(*optimizer);
        let name = super::called_name(site);
        let can_fuse = matches!(name, "Adam" | "AdamW" | "SGD" | "Adagrad");
        if !is_enabled || !can_fuse || site.arguments.find_keyword("fused").is_some() {
            continue;
        }
        let message = format!(
            "`scaler.step` reads back at every step whether a gradient overflowed, because {name} is not fused \
             and cannot skip on the device"
        );
        let is_here = file == program.file_of(call.context);
        // An optimizer has one of the two.
        let is_free = site.arguments.find_keyword("foreach").is_none();
        let edits = match is_here && is_free {
            true => vec![set_keyword(program.source(call.context), site, "fused", "True")],
            false => Vec::new(),
        };
        check.report_as(
            notice::of_logged_value(program, call.context),
            call.context,
            call.node,
            message,
            Fix::unsafe_(format!("make the optimizer `{name}(…, fused=True)`"), edits),
        );
    }
}
