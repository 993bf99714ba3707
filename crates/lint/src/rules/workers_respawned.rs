//! TP304: worker processes started anew in every epoch.

use ruff_python_ast::Stmt;

use super::Workers;
use crate::context::{ContextId, Frame, LoopKind};
use crate::edits::set_keyword;
use crate::finding::{Cause, Confidence, Effort, Severity};
use crate::fix::Fix;
use crate::program::{Call, Callee, Loader, Loop, Program};
use crate::rule::{Check, Notice, SourceRule};
use crate::value::Value;

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
        let has_workers = matches!(super::workers_of(program, loader), Workers::Some | Workers::Unknown);
        let is_kept = loader.persistent.as_ref().is_some_and(|value| value.known_bool() != Some(false));
        if is_kept
            || loader.has_unknown_keywords
            || !has_workers
            || !(runs_several_epochs(program, id) || is_hook(program, loader))
            || super::evaluates(program, loader)
            || super::is_aside(program, loader)
        {
            continue;
        }
        let message = "the workers are stopped and started again in every epoch";
        let fix = Fix::unsafe_(
            "keep them: `persistent_workers=True`",
            super::keyword_edit(loader, set_keyword(loader.node, "persistent_workers", "True"), "persistent_workers"),
        );
        check.report_as(Notice::Pedantic, loader.context, loader.node, message, fix);
    }
}

/// A loop over the loader inside another loop, in the same function or through a call.
fn runs_several_epochs(program: &Program, id: usize) -> bool {
    program.notes.loops.iter().filter(|around| is_over(program, around, id)).any(|around| {
        let outside = program.notes.contexts.get(around.context).parent;
        outside.is_some_and(|outside| is_repeated(program, outside, 3))
    }) || program.notes.calls.iter().any(|call| hands_on(program, call, id))
}

/// `trainer.train(epoch, loader)` in a loop, of a trainer that is not in sight.
fn hands_on(program: &Program, call: &Call, id: usize) -> bool {
    // `batches = iter(loader)` in every epoch, or whenever they have run out.
    let begins = call.external() == Some("builtins.iter")
        && !matches!(call.statement, Stmt::For(_))
        && call.arguments.first() == Some(&Value::Loader(Some(id)));
    if begins && is_repeated(program, call.context, 3) {
        return true;
    }
    let is_given = call.argument_values().any(|value| *value == Value::Loader(Some(id)));
    let trains = ["train", "fit", "epoch"].iter().any(|word| call.name.contains(word));
    let in_sight = match &call.callee {
        Callee::Function(_) => true,
        Callee::External(dotted) => dotted.starts_with("torch."),
        _ => false,
    };
    // A trainer of a library goes through its epochs itself.
    is_given && trains && !in_sight && (call.name == "fit" || is_repeated(program, call.context, 3))
}

/// Whether the call's first argument is the loader, handed in perhaps.
pub(super) fn is_loader(program: &Program, call: &Call, id: usize) -> bool {
    let passed = &program.functions[program.notes.contexts.get(call.context).function].loaders;
    let names = call.node.arguments.args.first().map(crate::names_in).unwrap_or_default();
    call.arguments.first() == Some(&Value::Loader(Some(id)))
        || names.iter().any(|name| passed.get(name).is_some_and(|all| all.contains(&id)))
}

/// Lightning's hook: its trainer goes through the epochs.
fn is_hook(program: &Program, loader: &Loader) -> bool {
    let function = program.notes.contexts.get(loader.context).function;
    program.sources.symbols.functions[function].name == "train_dataloader"
}

pub(super) fn is_over(program: &Program, around: &Loop, id: usize) -> bool {
    let function = program.notes.contexts.get(around.context).function;
    let passed = &program.functions[function].loaders;
    let is_passed = || {
        let names = || around.iterated.map(crate::names_in).unwrap_or_default();
        !passed.is_empty() && names().iter().any(|name| passed.get(name).is_some_and(|all| all.contains(&id)))
    };
    let alike = |known: &usize| program.made.alike.get(known).is_some_and(|all| all.contains(&id));
    if around.loaders.contains(&id) || around.loaders.iter().any(alike) {
        return true;
    }
    // An argument that is a loader by its annotation alone, or by nothing.
    let Value::Loader(Some(known)) = around.value else { return is_passed() };
    // `loader = DataLoader(…)` in two branches, of which one runs.
    let (one, other) = (&program.made.loaders[known], &program.made.loaders[id]);
    let owner = |loader: &Loader| program.notes.contexts.get(loader.context).function;
    let is_twin =
        owner(one) == owner(other) && !super::named(one).is_empty() && super::named(one) == super::named(other);
    known == id || is_twin || is_passed()
}

fn is_repeated(program: &Program, context: ContextId, depth: usize) -> bool {
    let in_loop =
        program.notes.contexts.outwards(context).any(|(_, around)| around.frame == Frame::Loop(LoopKind::Plain));
    let function = program.notes.contexts.get(context).function;
    in_loop || depth > 0 && program.callers_of(function).any(|call| is_repeated(program, call.context, depth - 1))
}
