//! TP202: a tensor made on the host and moved, although it could be made on the device.

use super::*;

pub fn check(check: &mut Check) {
    let program = check.program;
    for call in program.hot_calls() {
        let moved = if moves_to_device(call) { Some(&call.receiver) } else { handed_over(program, call) };
        let Some(Value::Tensor(tensor)) = moved else { continue };
        let (Placement::Host, Origin::Constant(made) | Origin::Factory(made)) = (tensor.placement, tensor.origin)
        else {
            continue;
        };
        // TP201 reports constants that are rebuilt at every step.
        let maker = maker_of(program, call, made);
        if maker.is_some_and(|maker| program.is_hot(maker.context) && constant_rebuilt::reports(program, maker)) {
            continue;
        }
        let at = made_at(program, call, made);
        let text = quoted(program, at);
        let message = format!("created on the host and copied to the device at every step: `{text}`");
        // If the training loop is visible, each such line is known to block on its own.
        let is_worth = maker.is_some() && !is_filled_on_the_host(program, call);
        let notice = Notice::when(is_worth && program.is_in_sight(call.context));
        check.report_as(notice, at, message, fix(program, call));
    }
}

/// Whether rows were stored into it before the move: on the device each of them would be a launch.
fn is_filled_on_the_host(program: &Program, call: &Call) -> bool {
    let Some(Expr::Name(moved)) = call.receiver_expression() else { return false };
    let function = program.function_at(call.context);
    let is_it = |base: &Expr| matches!(base, Expr::Name(name) if name.id == moved.id);
    program.subscripts_in(program.file_of(call.context)).any(|subscript| {
        subscript.stored.is_some() && is_it(&subscript.node.value) && program.function_at(subscript.context) == function
    })
}

fn fix(program: &Program, call: &Call) -> Fix {
    let advice = "pass `device=` to the factory to create the tensor on the device";
    let Some(Expr::Call(factory)) = call.receiver_expression() else { return Fix::shown(advice) };
    let device = match call.node.arguments.args.first() {
        // `.to(other)` also takes on the other's type.
        Some(_) if !matches!(call.arguments.first(), Some(Value::Device | Value::Text(_))) => {
            return Fix::shown(advice);
        }
        Some(device) => program.text(call.context, device),
        None if call.name == "cuda" => "\"cuda\"",
        None => return Fix::shown(advice),
    };
    let name = function_name(factory);
    let is_factory = matches!(
        name,
        "ones" | "zeros" | "arange" | "full" | "eye" | "linspace" | "empty" | "rand" | "randn" | "randint" | "randperm"
    );
    // A generator and pinned memory belong to the host, and the copy of a leaf is not one.
    let is_plain = |keyword: &Keyword| keyword.arg.as_ref().is_some_and(|name| name.as_str() == "dtype");
    if !is_factory || call.node.arguments.len() > 1 || !factory.arguments.keywords.iter().all(is_plain) {
        return Fix::shown(advice);
    }
    let add = set_keyword(program.source(call.context), factory, "device", device);
    let remove = Edit::replace(TextRange::new(factory.range().end(), call.node.range().end()), "");
    match name {
        "ones" | "zeros" | "arange" | "full" | "eye" => Fix::safe(advice, vec![add, remove]),
        _ => Fix::unsafe_(advice, vec![add, remove]),
    }
}
