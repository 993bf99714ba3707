//! Resolves where a `device` argument puts a tensor.

use super::*;

/// The argument of `.to(…)` that may name a device.
pub(super) fn device_argument(node: &ExprCall) -> Option<&Expr> {
    node.arguments.find_argument_value(Role::DeviceOption.word(), 0)
}

fn of_text(text: &str) -> Placement {
    if Role::HostDevice.fits(text) { Placement::Host } else { Placement::Device }
}

/// The placement that a `device` argument names; `None` where it is a type or may be one.
pub(super) fn placement_named(argument: &Expr, value: Option<&Value>) -> Option<Placement> {
    let text = match argument {
        Expr::Call(call) => call.arguments.args.first().and_then(text_of),
        other => text_of(other),
    };
    match value {
        _ if text.is_some() => return text.map(of_text),
        Some(Value::Device) => return Some(Placement::Device),
        Some(Value::Text(text)) => return Some(text.as_deref().map_or(Placement::Device, of_text)),
        Some(Value::Dtype) => return None,
        Some(Value::Tensor(tensor)) => return Some(tensor.placement),
        _ => {}
    }
    let name = match argument {
        Expr::NumberLiteral(_) => return Some(Placement::Device),
        // `args.gpus[0]`
        Expr::Subscript(subscript) => last_name(&subscript.value),
        other => last_name(other),
    };
    name.is_some_and(|name| Role::DeviceName.fits_any_case(name)).then_some(Placement::Device)
}
