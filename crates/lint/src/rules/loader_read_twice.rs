//! TP305: a whole pass over the data to count its batches.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for call in &program.notes.calls {
        if counts_by_reading(program, call) {
            let text = quoted(program, call);
            let message = format!("`{text}` reads and collates every batch only to count the batches");
            check.report(call, message, Fix::shown("use `len(loader)`, which reads nothing"));
        }
    }
}

fn counts_by_reading(program: &Program, call: &Call) -> bool {
    match (call.external(), call.node.arguments.args.first()) {
        (Some("builtins.len"), Some(Expr::Call(inner))) => {
            let is_list = matches!(&*inner.func, Expr::Name(name) if matches!(name.id.as_str(), "list" | "tuple"));
            let Some(source) = inner.arguments.args.first().filter(|_| is_list) else { return false };
            let source = match source {
                Expr::Call(wrap) if matches!(function_name(wrap), "enumerate" | "tqdm" | "iter") => {
                    wrap.arguments.args.first().unwrap_or(source)
                }
                other => other,
            };
            is_loader(program, call, source, inner.range())
        }
        (Some("builtins.sum"), Some(Expr::Generator(all))) => {
            let counts = literal(&all.elt).known_integer() == Some(1);
            counts && all.generators.len() == 1 && is_loader(program, call, &all.generators[0].iter, all.range)
        }
        _ => false,
    }
}

fn is_loader(program: &Program, call: &Call, source: &Expr, inner: TextRange) -> bool {
    let file = program.file_of(call.context);
    let known = program.call_at(file, inner);
    known.is_some_and(|list| matches!(list.arguments.first(), Some(Value::Loader(_))))
        || names_in(source).last().is_some_and(|name| Role::Loader.fits_any_case(name))
}
