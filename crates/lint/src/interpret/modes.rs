//! Where a block turns from training to evaluation: `model.eval()`.

use ruff_python_ast::{Expr, Stmt};

use super::Interpreter;
use crate::classes::dotted_name;

impl<'p, 'a> Interpreter<'p, 'a> {
    /// `model.eval()` with no `.train()` behind it in the same block. Beside `student.train()` it holds a teacher still.
    pub(super) fn starts_evaluation(&self, upto: &[Stmt], rest: &[Stmt]) -> bool {
        let Some((statement, before)) = upto.split_last() else { return false };
        let calls = |statement: &Stmt, name: &str| called_without_arguments(statement, name).is_some();
        let Some(still) = called_without_arguments(statement, "eval") else { return false };
        let near = &before[before.len().saturating_sub(3)..];
        if near.iter().filter_map(|near| called_without_arguments(near, "train")).any(|trained| trained != still) {
            return false;
        }
        // Tidying up at a step's end: nothing is evaluated any more.
        let ends = matches!(rest, [Stmt::Return(last)] if last.value.as_deref().is_none_or(only_reads));
        !ends && !rest.iter().any(|later| calls(later, "train"))
    }
}

/// `model` of the statement `model.train()`.
fn called_without_arguments(statement: &Stmt, name: &str) -> Option<String> {
    let Stmt::Expr(inner) = statement else { return None };
    let Expr::Call(call) = &*inner.value else { return None };
    let Expr::Attribute(method) = &*call.func else { return None };
    let is_meant = method.attr.as_str() == name && call.arguments.is_empty();
    is_meant.then(|| dotted_name(&method.value).unwrap_or_default())
}

/// `loss.item()`, `a.detach().cpu(), b`: values are handed on, and nothing is computed.
fn only_reads(expression: &Expr) -> bool {
    match expression {
        Expr::Call(call) => {
            let Expr::Attribute(method) = &*call.func else { return false };
            matches!(method.attr.as_str(), "item" | "cpu" | "numpy" | "detach" | "tolist" | "mean" | "sum")
                && only_reads(&method.value)
        }
        Expr::Tuple(tuple) => tuple.elts.iter().all(only_reads),
        Expr::Dict(dict) => dict.items.iter().all(|item| only_reads(&item.value)),
        Expr::Attribute(_) | Expr::Name(_) | Expr::StringLiteral(_) | Expr::NumberLiteral(_) => true,
        _ => false,
    }
}
