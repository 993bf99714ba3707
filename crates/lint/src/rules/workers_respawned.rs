//! TP304: worker processes are restarted in every epoch.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for loader in &program.constructed.loaders {
        let has_workers = matches!(workers_of(program, loader), Workers::Some | Workers::Unknown);
        let is_kept = loader.options.persistent.as_ref().is_some_and(|value| value.known_bool() != Some(false));
        if is_kept
            || loader.options.has_unknown
            || !has_workers
            || !(runs_several_epochs(program, loader.id) || is_hook(program, loader))
            || evaluates(program, loader)
            || only_measures(program, loader)
            || is_aside(program, loader)
        {
            continue;
        }
        let message = "the workers stop and restart at every epoch";
        let fix = Fix::unsafe_("keep them running: `persistent_workers=True`", edits(program, loader));
        check.report_as(Notice::Pedantic, loader, message, fix);
    }
}

/// Without workers the option is an error, so a number that somebody else chooses is asked for.
fn edits(program: &Program, loader: &Loader) -> Vec<Edit> {
    let number = loader.node.arguments.find_argument_value("num_workers", 5);
    let value = match number {
        Some(Expr::NumberLiteral(_)) => "True".to_string(),
        Some(number @ (Expr::Name(_) | Expr::Attribute(_) | Expr::Subscript(_) | Expr::Call(_))) => {
            format!("{} > 0", program.text(loader.context, number))
        }
        _ => return Vec::new(),
    };
    keyword_edit(program, loader, "persistent_workers", &value)
}

/// Whether a loop over the loader is inside another loop, in the same function or through a call.
fn runs_several_epochs(program: &Program, id: usize) -> bool {
    program.notes.loops.iter().filter(|around| is_over(program, around, id)).any(|around| {
        program.notes.contexts[around.context].parent.is_some_and(|outside| is_repeated(program, outside, 3))
    }) || program.notes.calls.iter().any(|call| hands_on(program, call, id))
}

/// `trainer.train(epoch, loader)` in a loop, with a trainer that is not among the files.
fn hands_on(program: &Program, call: &Call, id: usize) -> bool {
    // `batches = iter(loader)` in every epoch, or whenever it is exhausted.
    let begins = call.external() == Some("builtins.iter")
        && !matches!(call.statement, Stmt::For(_))
        && call.arguments.first().is_some_and(|value| may_be(program, value, id));
    if begins && is_repeated(program, call.context, 3) {
        return true;
    }
    let is_given = call.argument_values().any(|value| may_be(program, value, id));
    let trains = ["train", "fit", "epoch"].iter().any(|word| call.name.contains(word));
    let in_sight = match &call.callee {
        Callee::Function(_) => true,
        Callee::External(dotted) => dotted.starts_with("torch."),
        _ => false,
    };
    // A library's trainer runs all its epochs itself.
    let goes_on = || call.name == "fit" || is_told_epochs(call) || is_repeated(program, call.context, 3);
    is_given && !in_sight && (trains && goes_on() || call.name == "run" && is_told_epochs(call))
}

/// `engine.train(step, loader, args.epochs, optimizer)`, `trainer.run(loader, max_epochs=9)`.
fn is_told_epochs(call: &Call) -> bool {
    let counts = |name: &str| name.to_ascii_lowercase().contains("epochs");
    let arguments = &call.node.arguments;
    let is_named = |keyword: &Keyword| keyword.arg.as_ref().is_some_and(|name| counts(name.as_str()));
    arguments.keywords.iter().any(is_named)
        || arguments.args.iter().any(|argument| names_in(argument).into_iter().any(counts))
}

/// Lightning's hook: its trainer runs the epochs.
fn is_hook(program: &Program, loader: &Loader) -> bool {
    let function = program.function_at(loader.context);
    program.symbol(function).name == "train_dataloader"
}

fn is_repeated(program: &Program, context: ContextId, depth: usize) -> bool {
    let function = program.function_at(context);
    program.is_in_loop(context)
        || depth > 0 && program.callers_of(function).any(|call| is_repeated(program, call.context, depth - 1))
}
