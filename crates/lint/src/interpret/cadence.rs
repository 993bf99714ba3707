//! Recognizes tests that are true at some steps only, or never during training, by how they are written.

use super::*;

/// `batch` in `"test" in batch`: a container tested for a key, not a phase.
pub(super) fn holds_keys(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.split('_').any(|word| Role::Keyed.fits(word.trim_end_matches('s')))
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
        Expr::Name(name) => Role::Counter.fits_any_case(name.id.as_str()),
        Expr::Attribute(attribute) => {
            Role::Counter.fits_any_case(attribute.attr.as_str()) && attribute.attr.as_str().len() > 2
        }
        Expr::BinOp(operation) => counts_steps(&operation.left),
        _ => false,
    }
}

/// The first string in `{"mps", "npu"}`.
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
    matches!(expression, Expr::Call(call) if dotted_name(&call.func).is_some_and(|name| Role::RandomName.fits(&name)))
}

pub(super) fn mentions_version(expression: &Expr) -> bool {
    match expression {
        Expr::Name(_) | Expr::Attribute(_) => {
            last_name(expression).is_some_and(|name| Role::Version.fits_any_case(name))
        }
        Expr::Call(call) => {
            let makes = |name: String| Role::VersionClass.fits(&name);
            call.arguments.args.iter().any(mentions_version) || dotted_name(&call.func).is_some_and(makes)
        }
        Expr::Subscript(subscript) => mentions_version(&subscript.value),
        _ => false,
    }
}

/// `if loss.item() > 1.0: print("out of range")`: reads a value and reports trouble.
pub(super) fn speaks_of_trouble(test: &Expr, body: &[Stmt]) -> bool {
    let Expr::Compare(compare) = test else { return false };
    let is_asked = |side: &Expr| match side {
        Expr::Call(call) => Role::AskedNumber.fits(function_name(call)),
        _ => false,
    };
    let is_bound = |side: &Expr| side.is_number_literal_expr() || side.is_unary_op_expr();
    let first = body.first().and_then(called_by);
    let says = first.is_some_and(|call| Role::Says.fits(function_name(call)));
    says && is_asked(&compare.left) && compare.comparators.iter().any(is_bound)
}
