//! Edits that rules request: another keyword, a guard around a statement, a line after the imports.

use ruff_python_ast::{Expr, ExprCall, Stmt};
use ruff_text_size::{Ranged, TextRange, TextSize};

use super::context::ContextId;
use super::file::SourceFile;
use super::fix::Edit;
use super::program::Program;
use super::syntax::blocks_of;

/// A guarded line runs once per this many steps where the script has no cadence of its own.
pub const CADENCE: u32 = 50;

/// `f(a, b)` becomes `f(a, b, keyword)`; an existing keyword of that name gets the new value.
pub fn set_keyword(file: &SourceFile, call: &ExprCall, name: &str, value: &str) -> Edit {
    match call.arguments.find_keyword(name) {
        Some(keyword) => Edit::replace(keyword.value.range(), value),
        None => append_arguments(file, call, &format!("{name}={value}")),
    }
}

/// Adds arguments behind the last one: on a line of their own where the last one has a line to itself.
pub fn append_arguments(file: &SourceFile, call: &ExprCall, text: &str) -> Edit {
    if let Some(Expr::Generator(generator)) = call.arguments.args.first()
        && !generator.parenthesized
    {
        // `f(x for x in y)` needs parentheses once another argument is added.
        return Edit::replace(generator.range(), format!("({}), {text}", file.slice(generator.range())));
    }
    let keywords = call.arguments.keywords.iter().map(Ranged::range);
    match call.arguments.args.iter().map(Ranged::range).chain(keywords).max_by_key(|last| last.start()) {
        Some(last) => {
            let end = outer_end(file, call, last.end());
            Edit::insert(end, format!("{}{text}", parting(file, last.start(), end)))
        }
        None => Edit::insert(call.arguments.end() - TextSize::new(1), text),
    }
}

/// A comma, followed by a new line where the last argument has a line to itself.
fn parting(file: &SourceFile, start: TextSize, end: TextSize) -> String {
    let before = file.slice(TextRange::new(file.line_start(start), start));
    let line = file.line(end);
    let behind = file.slice(TextRange::new(end, file.line_end(line)));
    let newline = if file.text.contains("\r\n") { "\r\n" } else { "\n" };
    let is_alone = !before.is_empty() && before.trim().is_empty() && matches!(behind.trim(), "" | "," | ")" | ",)");
    if is_alone { format!(",{newline}{before}") } else { ", ".to_string() }
}

/// The end of the parentheses around an argument.
pub fn outer_end(file: &SourceFile, call: &ExprCall, end: TextSize) -> TextSize {
    // A call that is not closed ends with its last argument.
    let until = end.max(call.arguments.end() - TextSize::new(1));
    let mut behind = end;
    let mut at = end;
    for character in file.slice(TextRange::new(end, until)).chars() {
        at += TextSize::of(character);
        match character {
            ')' => behind = at,
            ' ' | '\t' | '\n' | '\r' => {}
            _ => break,
        }
    }
    behind
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
    let end = range.end() + TextSize::new(tail.len() as u32);
    // Between two empty lines, one of them goes as well.
    let is_between = file.text[..usize::from(start)].ends_with("\n\n") && rest[tail.len()..].starts_with('\n');
    let start = if is_between { start - TextSize::new(1) } else { start };
    Edit::replace(TextRange::new(start, end), "")
}

/// Runs the statement once per `CADENCE` steps. Returns `None` where no counter is known or its text cannot be indented.
pub fn guard_by_cadence(program: &Program, context: ContextId, statement: &Stmt) -> Option<Edit> {
    guard_statement(program.source(context), statement, &cadence_condition(program, context)?)
}

/// Puts the statement under `if condition:`. Returns `None` where its text cannot be indented as it is.
fn guard_statement(file: &SourceFile, statement: &Stmt, condition: &str) -> Option<Edit> {
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
fn cadence_condition(program: &Program, context: ContextId) -> Option<String> {
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

/// Inserts a line below the imports at the head of a script; `None` where they do not import `torch` by that name.
pub fn after_imports(file: &SourceFile, line: &str) -> Option<Edit> {
    let head = file.syntax.body.get(..=last_of_head(&file.syntax.body)?)?;
    let imports_torch = head.iter().any(|statement| {
        matches!(statement, Stmt::Import(import)
            if import.names.iter().any(|alias| alias.name.as_str() == "torch" && alias.asname.is_none()))
    });
    let last = head.last()?;
    let rest = file.text.get(usize::from(last.end())..)?;
    let (tail, behind) = rest.split_at(rest.find('\n')?);
    let space = if behind.starts_with("\n\n") || behind.trim().is_empty() { "" } else { "\n" };
    (imports_torch && !tail.contains(';')).then(|| {
        let at = last.end() + TextSize::new(tail.len() as u32);
        Edit::insert(at, format!("\n\n{line}{space}"))
    })
}

/// The last import before the first definition or loop; a docstring where there is no import.
pub fn last_of_head(body: &[Stmt]) -> Option<usize> {
    let is_over = |statement: &Stmt| {
        matches!(statement, Stmt::FunctionDef(_) | Stmt::ClassDef(_) | Stmt::For(_) | Stmt::While(_) | Stmt::With(_))
            || matches!(statement, Stmt::If(inner) if asks_for_main(&inner.test))
    };
    let head = body.iter().take_while(|statement| !is_over(statement)).enumerate();
    let (mut import, mut words) = (None, None);
    for (index, statement) in head {
        match statement {
            Stmt::Import(_) | Stmt::ImportFrom(_) => import = Some(index),
            _ if index == 0 && is_words(statement) => words = Some(index),
            _ => {}
        }
    }
    import.or(words)
}

fn asks_for_main(test: &Expr) -> bool {
    crate::names_in(test).contains(&"__name__")
}

/// A docstring.
pub fn is_words(statement: &Stmt) -> bool {
    matches!(statement, Stmt::Expr(inner) if inner.value.is_string_literal_expr())
}

/// The block whose statements include the one at `range`.
pub fn block_around(body: &[Stmt], range: TextRange) -> Option<&[Stmt]> {
    let holder = body.iter().find(|statement| statement.range().contains_range(range))?;
    if holder.range() == range {
        return Some(body);
    }
    blocks_of(holder).into_iter().find_map(|block| block_around(block, range))
}
