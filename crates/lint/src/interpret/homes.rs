//! Resolves where a `device` argument puts a tensor.

use ruff_python_ast::Expr;

use crate::settings::text_of;
use crate::value::{Home, Value};

/// The home that a `device` argument names; `None` where it is a type or may be one.
pub(super) fn home_named(argument: &Expr, value: Option<&Value>) -> Option<Home> {
    if let Some(text) = text_of(argument) {
        return Some(if text == "cpu" { Home::Host } else { Home::Device });
    }
    if let Expr::Call(call) = argument
        && let Some(text) = call.arguments.args.first().and_then(text_of)
    {
        return Some(if text == "cpu" { Home::Host } else { Home::Device });
    }
    match value {
        Some(Value::Device) => return Some(Home::Device),
        Some(Value::Text(Some(text))) if text == "cpu" => return Some(Home::Host),
        Some(Value::Text(_)) => return Some(Home::Device),
        Some(Value::Dtype) => return None,
        Some(Value::Tensor(tensor)) => return Some(tensor.home),
        _ => {}
    }
    let name = match argument {
        Expr::Name(name) => name.id.as_str(),
        Expr::Attribute(attribute) => attribute.attr.as_str(),
        Expr::NumberLiteral(_) => return Some(Home::Device),
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
    is_device.then_some(Home::Device)
}
