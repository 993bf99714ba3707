//! Finds where a function uses a name.

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{Expr, ExprContext, Stmt};
use ruff_text_size::Ranged;
use rustc_hash::FxHashSet;

use super::api;
use super::asked::Names;
pub use super::asked::Use;
use super::context::Nested;
use super::program::Program;
use super::symbols::FunctionId;
use super::syntax::statements_in;

/// Every use of `name` in the function, including inner functions.
pub fn uses_of<'a>(program: &Program<'a>, function: FunctionId, name: &str) -> Vec<Use<'a>> {
    let names = program.asked.names.of(function, || {
        let contexts = program.nested_in(function);
        let mut finder = Finder { contexts, names: Names::default(), statement: None, inner: 0 };
        finder.visit_body(program.symbol(function).body);
        finder.names.into()
    });
    names.get(name).cloned().unwrap_or_default()
}

/// Whether the function changes what one of the names holds: `x += 1`, `x[0] = 1`, `x.add_(1)`.
pub fn is_changed_in_place(program: &Program, function: FunctionId, names: &[&str]) -> bool {
    let changed = program.asked.changed.of(function, || {
        let mut changed = FxHashSet::default();
        for statement in statements_in(program.symbol(function).body) {
            match statement {
                Stmt::AugAssign(sum) => changed.extend(crate::names_in(&sum.target)),
                Stmt::Assign(assign) => {
                    let items = assign.targets.iter().filter(|target| target.is_subscript_expr());
                    changed.extend(items.flat_map(crate::names_in));
                }
                _ => {}
            }
        }
        let is_in_place = |name: &str| api::tensor_method(name).is_some_and(|row| row.in_place);
        let receivers = program.calls_of(function).filter(|call| is_in_place(call.name));
        changed.extend(receivers.filter_map(|call| call.receiver_expression()).flat_map(crate::names_in));
        changed.into()
    });
    names.iter().any(|name| changed.contains(name))
}

struct Finder<'p, 'a> {
    contexts: &'p Nested,
    names: Names<'a>,
    statement: Option<&'a Stmt>,
    inner: usize,
}

impl<'a> Visitor<'a> for Finder<'_, 'a> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        let outer = self.statement.replace(statement);
        let is_inner = matches!(statement, Stmt::FunctionDef(_) | Stmt::ClassDef(_));
        self.inner += usize::from(is_inner);
        walk_stmt(self, statement);
        self.inner -= usize::from(is_inner);
        self.statement = outer;
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        if let Expr::Name(name) = expression
            && let Some(statement) = self.statement
        {
            let context = if self.inner > 0 { None } else { self.contexts.innermost(expression.range()) };
            let found = Use { expression, is_store: name.ctx != ExprContext::Load, context, statement };
            self.names.entry(name.id.as_str()).or_default().push(found);
        }
        walk_expr(self, expression);
    }
}
