//! Finds where a function uses a name.

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{Expr, ExprContext, Stmt};
use ruff_text_size::{Ranged, TextRange};

use super::api;
use super::asked::{Found, Names};
use super::context::ContextId;
use super::program::Program;
use super::symbols::FunctionId;

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
    let names = program.asked.names(function, || {
        let mut finder = Finder { names: Names::default(), statement: None, inner: 0 };
        for statement in program.sources.symbols.functions[function].body {
            finder.visit_stmt(statement);
        }
        finder.names
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
    let speaks = |expression: &Expr| crate::names_in(expression).iter().any(|name| names.contains(name));
    let writes = |statement: &Stmt| match statement {
        Stmt::AugAssign(sum) => speaks(&sum.target),
        Stmt::Assign(assign) => assign.targets.iter().any(|target| target.is_subscript_expr() && speaks(target)),
        _ => false,
    };
    let is_in_place = |name: &str| api::tensor_method(name).is_some_and(|row| row.in_place);
    names.iter().any(|name| uses_of(program, function, name).iter().any(|one| writes(one.statement)))
        || program
            .calls_of(function)
            .any(|call| is_in_place(call.name) && call.receiver_expression().is_some_and(speaks))
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
