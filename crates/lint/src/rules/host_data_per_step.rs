//! TP203: host data turned into a device tensor at every step, outside the loader.

use super::*;
use crate::value::Tensor;

pub fn check(check: &mut Check) {
    check_stored(check);
    let program = check.program;
    for call in program.hot_calls() {
        let made = match &call.receiver {
            Value::Tensor(Tensor { origin: Origin::HostData(made), .. }) => Some(*made),
            _ => None,
        };
        let made = made.filter(|_| moves_to_device(call));
        let moves = made.is_some();
        let makes = matches!(call.external(), Some("torch.tensor" | "torch.as_tensor"))
            && call.keyword("device").is_some()
            && call.result.is_on_device()
            && call.arguments.first().is_none_or(|value| value.tensor().is_none_or(|tensor| tensor.is_assumed()));
        // `torch.cuda.FloatTensor(rows)`
        let is_typed = matches!(&call.result, Value::Tensor(tensor)
            if tensor.placement == Placement::Device && tensor.origin == Origin::HostData(call.node.range()));
        let is_array = |value: &Value| matches!(value, Value::Numpy);
        let is_host_data = |value: &Value| {
            is_array(value)
                || matches!(value, Value::Tensor(tensor) if tensor.placement == Placement::Host && matches!(tensor.origin, Origin::HostData(_)))
        };
        // `to_tensor(array)` by a helper, `x.new_tensor(array)`
        let is_handed = handed_over(program, call).is_some_and(is_host_data);
        let is_new = call.is_method()
            && call.name == "new_tensor"
            && call.receiver.is_on_device()
            && call.arguments.first().is_some_and(is_array)
            || is_kept(call);
        if !moves && !makes && !is_typed && !is_handed && !is_new {
            continue;
        }
        let at = made.map_or(call, |made| made_at(program, call, made));
        let text = quoted(program, at);
        let blocks = if call.keyword("non_blocking").is_some() { "" } else { ", and the copy blocks" };
        let message = format!("host data is copied to the device at every step{blocks}: `{text}`");
        let advice =
            "prepare it in the loader or once before the loop; otherwise copy without blocking (`non_blocking=True`)";
        let takes_flag = matches!(call.name, "to" | "cuda") && call.keyword("non_blocking").is_none();
        let edits = match moves && takes_flag {
            // The driver takes pageable memory along before it returns, so the source may be freed or changed at once.
            // `pin_memory()` would copy once more, and fail where there is no device.
            true => vec![set_keyword(program.source(call.context), call.node, "non_blocking", "True")],
            false => Vec::new(),
        };
        // A single number travels with the launch; only data that grows with the batch is worth preparing.
        let is_listed =
            matches!(call.node.arguments.args.first(), Some(Expr::List(list)) if !list.elts.iter().any(grows));
        let is_data = matches!(call.arguments.first(), Some(Value::Numpy | Value::List(_))) && !is_listed
            || moves
                && matches!(call.receiver_expression(), Some(Expr::Call(made)) if function_name(made) == "from_numpy");
        // Hand-made batches are lists in the loop of steps; elsewhere lists are short.
        let is_list = matches!(call.arguments.first(), Some(Value::List(_)));
        let is_worth = is_data && (!is_list || program.step_loop(call.context).is_some());
        let notice = Notice::when(is_worth && !is_handed && !is_new && program.is_in_sight(call.context));
        check.report_as(notice, at, message, Fix::unsafe_(advice, edits));
    }
}

/// `self.table.to(x.device)`: stored on the host and copied at every step.
fn is_kept(call: &Call) -> bool {
    let is_own = |owner: &Expr| attribute_of_self(owner).is_some();
    moves_to_device(call)
        && call.receiver_expression().is_some_and(is_own)
        && matches!(&call.receiver, Value::Tensor(tensor)
            if tensor.placement == Placement::Host && !tensor.is_assumed() && tensor.origin == Origin::Data)
}

/// `target[2:6] = torch.tensor(shape)`: host data stored into a device tensor.
fn check_stored(check: &mut Check) {
    let program = check.program;
    for subscript in program.notes.subscripts.iter().filter(|subscript| program.is_hot(subscript.context)) {
        let Some(Value::Tensor(stored)) = &subscript.stored else { continue };
        let is_data = stored.placement == Placement::Host && matches!(stored.origin, Origin::HostData(_));
        if is_data && subscript.base.is_surely_on_device() {
            let text = quoted(program, subscript);
            let message = format!("host data is stored into `{text}` on the device at every step, and the copy blocks");
            let advice = "prepare it in the loader or once before the loop; otherwise copy without blocking (`non_blocking=True`)";
            check.report_as(Notice::Pedantic, subscript, message, Fix::shown(advice));
        }
    }
}

/// Whether the element may stand for more than one number.
fn grows(element: &Expr) -> bool {
    matches!(element, Expr::ListComp(_) | Expr::BinOp(_) | Expr::Starred(_) | Expr::List(_))
}
