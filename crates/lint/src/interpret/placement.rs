//! Resolves where a `device` argument puts a tensor.

use ruff_python_ast::Expr;

use crate::settings::text_of;
use crate::value::{Placement, Value};

/// The placement that a `device` argument names; `None` where it is a type or may be one.
pub(super) fn placement_named(argument: &Expr, value: Option<&Value>) -> Option<Placement> {
    if let Some(text) = text_of(argument) {
        return Some(if text == "cpu" { Placement::Host } else { Placement::Device });
    }
    if let Expr::Call(call) = argument
        && let Some(text) = call.arguments.args.first().and_then(text_of)
    {
        return Some(if text == "cpu" { Placement::Host } else { Placement::Device });
    }
    match value {
        Some(Value::Device) => return Some(Placement::Device),
        Some(Value::Text(Some(text))) if text == "cpu" => return Some(Placement::Host),
        Some(Value::Text(_)) => return Some(Placement::Device),
        Some(Value::Dtype) => return None,
        Some(Value::Tensor(tensor)) => return Some(tensor.placement),
        _ => {}
    }
    let name = match argument {
        Expr::Name(name) => name.id.as_str(),
        Expr::Attribute(attribute) => attribute.attr.as_str(),
        Expr::NumberLiteral(_) => return Some(Placement::Device),
        // `args.gpus[0]`
        Expr::Subscript(subscript) => match &*subscript.value {
            Expr::Name(name) => name.id.as_str(),
            Expr::Attribute(attribute) => attribute.attr.as_str(),
            _ => "",
        },
        _ => "",
    };
    let lower = name.to_ascii_lowercase();
    let is_device = ["device", "rank", "gpu", "cuda", "dev"].iter().any(|part| lower.contains(part));
    is_device.then_some(Placement::Device)
}
