//! Edits that rules request: another keyword, a guard around a statement, a line after the imports.

use ruff_python_ast::{Expr, ExprCall, Stmt};
use ruff_text_size::{Ranged, TextRange};

use super::context::ContextId;
use super::file::SourceFile;
use super::fix::Edit;
use super::program::Program;

/// A guarded line runs once per this many steps where the script has no cadence of its own.
pub const CADENCE: u32 = 50;

/// `f(a, b)` becomes `f(a, b, keyword)`; an existing keyword of that name gets the new value.
pub fn set_keyword(call: &ExprCall, name: &str, value: &str) -> Edit {
    if let Some(keyword) = call.arguments.find_keyword(name) {
        return Edit::replace(keyword.value.range(), value);
    }
    let ends = call.arguments.args.iter().map(Ranged::end).chain(call.arguments.keywords.iter().map(Ranged::end));
    match ends.max() {
        Some(end) => Edit::insert(end, format!(", {name}={value}")),
        None => Edit::insert(call.arguments.end() - ruff_text_size::TextSize::new(1), format!("{name}={value}")),
    }
}

/// Removes the statement with its line; the only statement of a block becomes `pass`.
pub fn remove_statement(file: &SourceFile, statement: &Stmt) -> Edit {
    let range = statement.range();
    let is_alone = block_around(&file.syntax.body, range).is_none_or(|block| block.len() == 1);
    let start = file.line_start(range.start());
    let before = file.slice(TextRange::new(start, range.start()));
    let rest = file.text.get(usize::from(range.end())..).unwrap_or_default();
    let tail = rest.find('\n').map_or(rest, |at| &rest[..=at]);
    if is_alone || !before.trim().is_empty() || !tail.trim().is_empty() {
        return Edit::replace(range, "pass");
    }
    let end = range.end() + ruff_text_size::TextSize::new(tail.len() as u32);
    Edit::replace(TextRange::new(start, end), "")
}

/// Puts the statement under `if condition:`. Returns `None` where its text cannot be indented as it is.
pub fn guard_statement(file: &SourceFile, statement: &Stmt, condition: &str) -> Option<Edit> {
    let range = statement.range();
    let before = file.slice(TextRange::new(file.line_start(range.start()), range.start()));
    let text = file.slice(range);
    if !before.trim().is_empty() || text.contains("\"\"\"") || text.contains("'''") {
        return None;
    }
    let moved = text.replace('\n', "\n    ");
    Some(Edit::replace(range, format!("if {condition}:\n{before}    {moved}")))
}

/// `step % 50 == 0`, with the name that counts the iterations of the enclosing loop of steps.
pub fn cadence_condition(program: &Program, context: ContextId) -> Option<String> {
    let step_loop = program.step_loop(context)?;
    let around = program.loop_at(step_loop)?;
    let Expr::Call(call) = around.iterated? else { return None };
    let Expr::Name(function) = &*call.func else { return None };
    let counter = match (function.id.as_str(), around.target?) {
        ("range", Expr::Name(name)) => name,
        ("enumerate", Expr::Tuple(targets)) => targets.elts.first()?.as_name_expr()?,
        _ => return None,
    };
    Some(format!("{} % {CADENCE} == 0", counter.id.as_str()))
}

/// Inserts a line after the last import at the top of the file; `None` where `torch` is not imported by that name.
pub fn after_imports(file: &SourceFile, line: &str) -> Option<Edit> {
    let body = &file.syntax.body;
    let imports_torch = body.iter().any(|statement| {
        matches!(statement, Stmt::Import(import)
            if import.names.iter().any(|alias| alias.name.as_str() == "torch" && alias.asname.is_none()))
    });
    let last = body.iter().rev().find(|statement| matches!(statement, Stmt::Import(_) | Stmt::ImportFrom(_)))?;
    let rest = file.text.get(usize::from(last.end())..)?;
    let tail = &rest[..rest.find('\n')?];
    (imports_torch && !tail.contains(';')).then(|| {
        let at = last.end() + ruff_text_size::TextSize::new(tail.len() as u32);
        Edit::insert(at, format!("\n\n{line}"))
    })
}

/// The block whose statements include the one at `range`.
pub fn block_around(body: &[Stmt], range: TextRange) -> Option<&[Stmt]> {
    let holder = body.iter().find(|statement| statement.range().contains_range(range))?;
    if holder.range() == range {
        return Some(body);
    }
    blocks_of(holder).into_iter().find_map(|block| block_around(block, range))
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
                let ruff_python_ast::ExceptHandler::ExceptHandler(handler) = handler;
                handler.body.as_slice()
            });
            let others = [inner.orelse.as_slice(), inner.finalbody.as_slice()];
            std::iter::once(inner.body.as_slice()).chain(handlers).chain(others).collect()
        }
        Stmt::Match(inner) => inner.cases.iter().map(|case| case.body.as_slice()).collect(),
        _ => Vec::new(),
    }
}
