//! TP304: worker processes started anew in every epoch.

use crate::finding::{Cause, Confidence, Effort, Severity};
use crate::source::context::{ContextId, Frame, LoopKind};
use crate::source::edits::set_keyword;
use crate::source::fix::Fix;
use crate::source::program::{Loader, Program};
use crate::source::rule::{Check, SourceRule};
use crate::source::value::Value;
use ruff_python_ast::Expr;

pub const RULE: SourceRule = SourceRule {
    code: "TP304",
    name: "workers-respawned",
    cause: Cause::DataLoading,
    severity: Severity::Low,
    effort: Effort::Low,
    confidence: Confidence::Medium,
    operators: &["enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"],
    page: include_str!("workers_respawned.md"),
    check,
};

fn check(check: &mut Check) {
    let program = check.program;
    for (id, loader) in program.made.loaders.iter().enumerate() {
        let is_kept = loader.persistent.as_ref().is_some_and(|value| value.known_bool() != Some(false));
        if is_kept || loader.has_unknown_keywords || !has_workers(program, loader) || !runs_several_epochs(program, id)
        {
            continue;
        }
        let message = "the workers are stopped and started again in every epoch";
        let fix = Fix::unsafe_(
            "keep them: `persistent_workers=True`",
            super::keyword_edit(loader, set_keyword(loader.node, "persistent_workers", "True"), "persistent_workers"),
        );
        let notice = super::loader_notice(program, loader, "persistent_workers");
        check.report_as(notice, loader.context, loader.node, message, fix);
    }
}

fn has_workers(program: &Program, loader: &Loader) -> bool {
    match &loader.workers {
        Some(Value::Number { known: Some(workers), .. }) => *workers > 0,
        Some(Value::Number { .. } | Value::Unknown) => {
            // `num_workers=args.workers` with a default above zero.
            let Some(Expr::Attribute(setting)) =
                loader.node.arguments.find_keyword("num_workers").map(|keyword| &keyword.value)
            else {
                return false;
            };
            let file = program.file_of(loader.context);
            let default = program.sources.settings.default_of(file, setting.attr.as_str());
            default.and_then(Value::known_integer).is_some_and(|workers| workers > 0)
        }
        _ => false,
    }
}

/// A loop over the loader inside another loop, in the same function or through a call.
fn runs_several_epochs(program: &Program, id: usize) -> bool {
    program.notes.loops.iter().filter(|around| is_over(&around.value, id)).any(|around| {
        let outside = program.notes.contexts.get(around.context).parent;
        outside.is_some_and(|outside| is_repeated(program, outside, 3))
    })
}

fn is_over(value: &Value, id: usize) -> bool {
    match value {
        Value::Loader(Some(known)) => *known == id,
        _ => false,
    }
}

fn is_repeated(program: &Program, context: ContextId, depth: usize) -> bool {
    let in_loop =
        program.notes.contexts.outwards(context).any(|(_, around)| around.frame == Frame::Loop(LoopKind::Plain));
    let function = program.notes.contexts.get(context).function;
    in_loop || depth > 0 && program.callers_of(function).any(|call| is_repeated(program, call.context, depth - 1))
}
