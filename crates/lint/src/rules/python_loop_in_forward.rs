//! TP409: a loop over heads or samples in a module's forward pass.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for around in &program.notes.loops {
        let function = program.function_at(around.context);
        let in_forward = program.functions[function].kind == FunctionKind::Step
            || program.symbol(function).definition.is_some() && program.step_loop(around.context).is_none();
        let Some(over) = what_it_goes_over(program, around).filter(|_| in_forward && program.is_hot(around.context))
        else {
            continue;
        };
        let head = match around.statement {
            Stmt::For(repeat) => repeat.iter.range(),
            other => other.range(),
        };
        let message = format!("a Python loop over {over} in `forward`: every iteration launches its own small kernels");
        // Samples often differ in length, and then each needs its own iteration; a loop over heads is mostly for
        // export.
        let advice = "keep that dimension in the tensors and compute everything in one call";
        check.report_as(Notice::Pedantic, (around.context, head), message, Fix::shown(advice));
    }
}

/// "heads" or "samples", if the loop counts them and indexes tensors by the counter.
fn what_it_goes_over(program: &Program, around: &Loop) -> Option<&'static str> {
    let (Expr::Call(range), Expr::Name(counter)) = (around.iterated?, around.target?) else { return None };
    if function_name(range) != "range" || range.arguments.args.len() != 1 {
        return None;
    }
    let text = program.text(around.context, &range.arguments.args[0]);
    let over = if text.contains("head") {
        "heads"
    } else if text.contains("batch_size")
        || matches!(text, "B" | "bs" | "bsz" | "len(x)")
        || text.ends_with(".size(0)")
        || text.ends_with(".shape[0]")
    {
        "samples"
    } else {
        return None;
    };
    let picks = program.subscripts_in(program.file_of(around.context)).any(|subscript| {
        around.statement.range().contains_range(subscript.node.range())
            && subscript.base.is_on_device()
            && names_in(&subscript.node.slice).contains(&counter.id.as_str())
    });
    picks.then_some(over)
}
