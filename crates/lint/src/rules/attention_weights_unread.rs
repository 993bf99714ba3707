//! TP411: `nn.MultiheadAttention` also returns its weights, and nothing reads them.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for call in program.notes.calls.iter().filter(|call| program.is_hot(call.context)) {
        let arguments = &call.node.arguments;
        let is_said = arguments.find_argument_value("need_weights", 4).is_some()
            || arguments.keywords.iter().any(|keyword| keyword.arg.is_none());
        if is_said || !is_multihead(program, call) || reads_weights(program, call) {
            continue;
        }
        let message = "`nn.MultiheadAttention` returns its weights by default, which are of sequence length squared and \
                       which nothing reads: it cannot use a fused kernel";
        let edit = set_keyword(program.source(call.context), call.node, "need_weights", "False");
        check.report_as(Notice::Pedantic, call, message, Fix::unsafe_("`need_weights=False`", vec![edit]));
    }
}

/// `self.attention(…)` of a class that assigns `nn.MultiheadAttention(…)` to it.
fn is_multihead(program: &Program, call: &Call) -> bool {
    let Some(name) = attribute_of_self(&call.node.func) else { return false };
    let Some(class) = program.function_of(call.context).class else { return false };
    let made = made_as(program, class, name);
    made.is_some_and(|(_, made)| function_name(made) == "MultiheadAttention")
}

/// Whether anything but the first of the two results is used, as far as the function shows.
fn reads_weights(program: &Program, call: &Call) -> bool {
    let function = program.function_at(call.context);
    let is_it = |expression: &Expr| expression.range() == call.node.range();
    if let Stmt::Assign(assign) = call.statement
        && is_it(&assign.value)
    {
        let [Expr::Tuple(pair)] = assign.targets.as_slice() else { return true };
        return match pair.elts.as_slice() {
            [_, Expr::Name(weights)] => uses_of(program, function, weights.id.as_str()).iter().any(|one| !one.is_store),
            _ => true,
        };
    }
    // `self.attention(x, x, x)[0]`
    !program
        .subscripts_in(program.file_of(call.context))
        .any(|subscript| is_it(&subscript.node.value) && literal(&subscript.node.slice).known_integer() == Some(0))
}
