//! Tests that are true at some steps only, by how they are written.

use ruff_python_ast::{Expr, Operator};

use super::names::is_step_name;
use crate::source::classes::dotted_name;
use crate::source::settings::{literal, text_of};

/// `log_now`, `should_print`, `is_log_step`.
pub(super) fn says_cadence(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.starts_with("should_")
        || [
            "log_now",
            "do_log",
            "is_log",
            "log_this",
            "log_step",
            "print_now",
            "time_to_",
            "is_print",
            "every_n",
            "log_flag",
            "to_print",
            "to_log",
            "to_report",
        ]
        .iter()
        .any(|part| lower.contains(part))
}

/// The `n` of an `x % n` anywhere in an arithmetic expression.
pub(super) fn modulo_of(expression: &Expr) -> Option<&Expr> {
    match expression {
        Expr::BinOp(operation)
            if operation.op == Operator::Mod && !matches!(&*operation.left, Expr::StringLiteral(_)) =>
        {
            Some(&operation.right)
        }
        Expr::BinOp(operation) => modulo_of(&operation.left).or_else(|| modulo_of(&operation.right)),
        _ => None,
    }
}

pub(super) fn is_one(expression: &Expr) -> bool {
    literal(expression).known_integer() == Some(1)
}

pub(super) fn counts_steps(expression: &Expr) -> bool {
    match expression {
        Expr::Name(name) => is_step_name(name.id.as_str()),
        Expr::Attribute(attribute) => is_step_name(attribute.attr.as_str()) && attribute.attr.as_str().len() > 2,
        Expr::BinOp(operation) => counts_steps(&operation.left),
        _ => false,
    }
}

/// The first of `{"mps", "npu"}`.
pub(super) fn first_text(expression: &Expr) -> Option<&str> {
    let elements = match expression {
        Expr::Set(set) => &set.elts,
        Expr::Tuple(tuple) => &tuple.elts,
        Expr::List(list) => &list.elts,
        _ => return None,
    };
    text_of(elements.first()?)
}

pub(super) fn is_random_draw(expression: &Expr) -> bool {
    matches!(expression, Expr::Call(call) if dotted_name(&call.func).is_some_and(|name| name.contains("random")))
}

pub(super) fn mentions_version(expression: &Expr) -> bool {
    match expression {
        Expr::Name(name) => name.id.as_str().to_ascii_lowercase().contains("version"),
        Expr::Attribute(attribute) => attribute.attr.as_str().to_ascii_lowercase().contains("version"),
        Expr::Call(call) => {
            call.arguments.args.iter().any(mentions_version)
                || dotted_name(&call.func)
                    .is_some_and(|name| name.ends_with("LooseVersion") || name.ends_with("version.parse"))
        }
        Expr::Subscript(subscript) => mentions_version(&subscript.value),
        _ => false,
    }
}
