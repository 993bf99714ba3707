//! Finds where a function uses a name.

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{Expr, ExprContext, Stmt};
use ruff_text_size::{Ranged, TextRange};
use rustc_hash::FxHashSet;

use super::api;
use super::asked::{Found, Names};
use super::context::ContextId;
use super::program::Program;
use super::symbols::FunctionId;
use super::syntax::blocks_of;

pub struct Use<'a> {
    pub expression: &'a Expr,
    /// Assigned, not read.
    pub is_store: bool,
    /// The innermost loop, guard or block around it; `None` inside another function.
    pub context: Option<ContextId>,
    pub statement: &'a Stmt,
}

/// Every use of `name` in the function, including inner functions.
pub fn uses_of<'a>(program: &Program<'a>, function: FunctionId, name: &str) -> Vec<Use<'a>> {
    let names = program.asked.names.of(function, || {
        let mut finder = Finder { names: Names::default(), statement: None, inner: 0 };
        for statement in program.symbol(function).body {
            finder.visit_stmt(statement);
        }
        finder.names.into()
    });
    let with_context = |found: &Found<'a>| Use {
        expression: found.expression,
        is_store: found.is_store,
        context: if found.is_inner { None } else { innermost(program, function, found.expression.range()) },
        statement: found.statement,
    };
    names.get(name).into_iter().flatten().map(with_context).collect()
}

/// Whether the function changes what one of the names holds: `x += 1`, `x[0] = 1`, `x.add_(1)`.
pub fn is_changed_in_place(program: &Program, function: FunctionId, names: &[&str]) -> bool {
    let changed = program.asked.changed.of(function, || {
        let mut changed = FxHashSet::default();
        for statement in statements_of(program, function) {
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

/// Whether the function assigns a name of a function around it or of the module: `nonlocal name`, `global name`.
pub fn is_borrowed(program: &Program, function: FunctionId, name: &str) -> bool {
    let borrowed = program.asked.borrowed.of(function, || {
        let mut borrowed = FxHashSet::default();
        for statement in statements_of(program, function) {
            match statement {
                Stmt::Nonlocal(outer) => borrowed.extend(outer.names.iter().map(|name| name.as_str())),
                Stmt::Global(outer) => borrowed.extend(outer.names.iter().map(|name| name.as_str())),
                _ => {}
            }
        }
        borrowed.into()
    });
    borrowed.contains(name)
}

/// The statements of a function, those of inner blocks and functions included.
fn statements_of<'a>(program: &Program<'a>, function: FunctionId) -> Vec<&'a Stmt> {
    let mut found: Vec<&Stmt> = program.symbol(function).body.iter().collect();
    let mut next = 0;
    while next < found.len() {
        found.extend(blocks_of(found[next]).into_iter().flatten());
        next += 1;
    }
    found
}

/// The innermost context of the function that covers `range`.
pub fn innermost(program: &Program, function: FunctionId, range: TextRange) -> Option<ContextId> {
    program.nested_in(function).innermost(range)
}

struct Finder<'a> {
    names: Names<'a>,
    statement: Option<&'a Stmt>,
    inner: usize,
}

impl<'a> Visitor<'a> for Finder<'a> {
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
            let is_store = name.ctx != ExprContext::Load;
            let found = Found { expression, is_store, statement, is_inner: self.inner > 0 };
            self.names.entry(name.id.as_str()).or_default().push(found);
        }
        walk_expr(self, expression);
    }
}
