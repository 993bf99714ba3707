//! Small questions about a piece of syntax.

use ruff_python_ast::Expr;

/// The name of `x`, the last part of `a.b.x`.
pub fn last_name(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Name(name) => Some(name.id.as_str()),
        Expr::Attribute(attribute) => Some(attribute.attr.as_str()),
        _ => None,
    }
}

/// The last name of a decorator or another function, called or not.
pub fn called_name(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Call(call) => last_name(&call.func),
        other => last_name(other),
    }
}
