//! Unpacking of values into several names, and into loop targets.

use ruff_python_ast::ExprName;

use super::*;

/// `b, n, d, device = *x.shape, x.device`: expands the starred part to as many values as there are names for it.
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

/// `for k in images: show(images[k])`: iterates over keys, whatever the type.
pub(super) fn goes_over_keys(repeat: &StmtFor) -> bool {
    let (Expr::Name(owner), Expr::Name(key)) = (&*repeat.iter, &*repeat.target) else { return false };
    let is = |part: &Expr, name: &ExprName| matches!(part, Expr::Name(part) if part.id == name.id);
    let mut found = false;
    each_expression(&repeat.body, |expression| {
        found |= matches!(expression, Expr::Subscript(subscript)
            if is(&subscript.value, owner) && is(&subscript.slice, key));
    });
    found
}
