//! Where a function uses a name.

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{Expr, ExprContext, Stmt};
use ruff_text_size::{Ranged, TextRange};

use super::context::ContextId;
use super::program::Program;
use super::symbols::FunctionId;

pub struct Use<'a> {
    pub expression: &'a Expr,
    /// Assigned, not read.
    pub is_store: bool,
    /// The innermost loop, guard or block around it; none inside another function.
    pub context: Option<ContextId>,
    pub statement: &'a Stmt,
}

/// Every use of `name` in the function, inner functions included.
pub fn uses_of<'a>(program: &Program<'a>, function: FunctionId, name: &str) -> Vec<Use<'a>> {
    let body = program.sources.symbols.functions[function].body;
    let mut finder = Finder { name, found: Vec::new(), statement: None, inner: 0 };
    for statement in body {
        finder.visit_stmt(statement);
    }
    finder
        .found
        .into_iter()
        .map(|(expression, is_store, statement, inner)| Use {
            expression,
            is_store,
            context: if inner { None } else { innermost(program, function, expression.range()) },
            statement,
        })
        .collect()
}

/// The innermost context of the function that covers `range`.
pub fn innermost(program: &Program, function: FunctionId, range: TextRange) -> Option<ContextId> {
    program.nested_in(function).innermost(range)
}

struct Finder<'n, 'a> {
    name: &'n str,
    found: Vec<(&'a Expr, bool, &'a Stmt, bool)>,
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
            && name.id.as_str() == self.name
            && let Some(statement) = self.statement
        {
            let is_store = name.ctx != ExprContext::Load;
            self.found.push((expression, is_store, statement, self.inner > 0));
        }
        walk_expr(self, expression);
    }
}
