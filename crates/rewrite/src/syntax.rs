//! Small questions about a piece of syntax.

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{ExceptHandler, Expr, ExprCall, Stmt};
use ruff_text_size::{Ranged, TextRange};

/// The name of `x`, the last part of `a.b.x`.
pub fn last_name(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Name(name) => Some(name.id.as_str()),
        Expr::Attribute(attribute) => Some(attribute.attr.as_str()),
        _ => None,
    }
}

/// `a.b.c` as text, for names and attributes only.
pub fn dotted_name(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Attribute(attribute) => Some(format!("{}.{}", dotted_name(&attribute.value)?, attribute.attr.as_str())),
        Expr::Name(name) => Some(name.id.to_string()),
        _ => None,
    }
}

/// The text of a string literal.
pub fn text_of(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::StringLiteral(text) => Some(text.value.to_str()),
        _ => None,
    }
}

/// A name that stands alone.
pub fn name_of(expression: &Expr) -> Option<&str> {
    expression.as_name_expr().map(|name| name.id.as_str())
}

/// The owner and the name in `owner.name(…)`.
pub fn method_of(call: &ExprCall) -> Option<(&Expr, &str)> {
    call.func.as_attribute_expr().map(|method| (&*method.value, method.attr.as_str()))
}

/// The value that a call gives for a keyword.
pub fn keyword_of<'e>(call: &'e ExprCall, name: &str) -> Option<&'e Expr> {
    call.arguments.find_keyword(name).map(|keyword| &keyword.value)
}

/// The value of `True` or `False`.
pub fn boolean(expression: &Expr) -> Option<bool> {
    expression.as_boolean_literal_expr().map(|literal| literal.value)
}

/// The call that a statement consists of.
pub fn called_by(statement: &Stmt) -> Option<&ExprCall> {
    statement.as_expr_stmt()?.value.as_call_expr()
}

/// The last name of a decorator or another function, called or not.
pub fn called_name(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Call(call) => last_name(&call.func),
        other => last_name(other),
    }
}

/// The last part of the called name: `Linear` in `nn.Linear(…)`.
pub fn function_name(call: &ExprCall) -> &str {
    last_name(&call.func).unwrap_or_default()
}

/// Visits expressions, each before those inside it, as far as `enters` allows.
struct Walker<E, V> {
    enters: E,
    visit: V,
}

impl<'a, E: Fn(TextRange) -> bool, V: FnMut(&'a Expr)> Visitor<'a> for Walker<E, V> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        if (self.enters)(statement.range()) {
            walk_stmt(self, statement);
        }
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        if (self.enters)(expression.range()) {
            (self.visit)(expression);
            walk_expr(self, expression);
        }
    }
}

/// Visits all expressions of a block, each before those inside it.
pub fn each_expression<'a>(body: &'a [Stmt], visit: impl FnMut(&'a Expr)) {
    Walker { enters: |_| true, visit }.visit_body(body);
}

/// The expressions of a statement that cover `range`, from the outside in.
pub fn around(statement: &Stmt, range: TextRange) -> Vec<&Expr> {
    let mut found = Vec::new();
    let enters = |outer: TextRange| outer.contains_range(range);
    Walker { enters, visit: |expression| found.push(expression) }.visit_stmt(statement);
    found
}

/// The expression in a statement that covers exactly `range`.
pub fn find_expression(statement: &Stmt, range: TextRange) -> Option<&Expr> {
    around(statement, range).into_iter().find(|expression| expression.range() == range)
}

/// All names and attributes in an expression.
pub fn names_in(expression: &Expr) -> Vec<&str> {
    let mut names = Vec::new();
    Walker { enters: |_| true, visit: |part| names.extend(last_name(part)) }.visit_expr(expression);
    names
}

/// The statements of a block and of the blocks inside them, in the order of the text.
pub fn statements_in(body: &[Stmt]) -> Vec<&Stmt> {
    let mut found = Vec::new();
    for statement in body {
        found.push(statement);
        found.extend(blocks_of(statement).into_iter().flat_map(statements_in));
    }
    found
}

/// From the first statement to the last.
pub fn range_of(body: &[Stmt]) -> TextRange {
    match body {
        [] => TextRange::default(),
        [first, ..] => TextRange::new(first.start(), body[body.len() - 1].end()),
    }
}

/// The blocks directly inside a statement.
pub fn blocks_of(statement: &Stmt) -> Vec<&[Stmt]> {
    match statement {
        Stmt::FunctionDef(inner) => vec![&inner.body],
        Stmt::ClassDef(inner) => vec![&inner.body],
        Stmt::For(inner) => vec![&inner.body, &inner.orelse],
        Stmt::While(inner) => vec![&inner.body, &inner.orelse],
        Stmt::With(inner) => vec![&inner.body],
        Stmt::If(inner) => {
            let clauses = inner.elif_else_clauses.iter().map(|clause| clause.body.as_slice());
            std::iter::once(inner.body.as_slice()).chain(clauses).collect()
        }
        Stmt::Try(inner) => {
            let handlers = inner.handlers.iter().map(|handler| {
                let ExceptHandler::ExceptHandler(handler) = handler;
                handler.body.as_slice()
            });
            let others = [inner.orelse.as_slice(), inner.finalbody.as_slice()];
            std::iter::once(inner.body.as_slice()).chain(handlers).chain(others).collect()
        }
        Stmt::Match(inner) => inner.cases.iter().map(|case| case.body.as_slice()).collect(),
        _ => Vec::new(),
    }
}
