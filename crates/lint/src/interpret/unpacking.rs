//! Values handed to several names at once.

use ruff_python_ast::Expr;

use crate::value::Value;

/// `b, n, d, device = *x.shape, x.device`: the starred part stands for as many values as the names leave it.
pub(super) fn spread(expression: &Expr, target: &Expr, value: Value) -> Value {
    let (Expr::Tuple(written), Expr::Tuple(names), Value::Tuple(elements)) = (expression, target, &value) else {
        return value;
    };
    let is_starred = |part: &Expr| matches!(part, Expr::Starred(_));
    let starred: Vec<usize> = (0..written.elts.len()).filter(|at| is_starred(&written.elts[*at])).collect();
    let ([at], false) = (starred.as_slice(), names.elts.iter().any(is_starred)) else { return value };
    let (Some(times), true) =
        ((names.elts.len() + 1).checked_sub(elements.len()), elements.len() == written.elts.len())
    else {
        return value;
    };
    let mut spread = elements[..*at].to_vec();
    spread.extend(std::iter::repeat_n(elements[*at].clone(), times));
    spread.extend_from_slice(&elements[at + 1..]);
    Value::tuple(spread)
}
