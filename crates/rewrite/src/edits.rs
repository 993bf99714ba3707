//! Edits of common changes: another keyword, a guard around a statement, a line after the imports.

use ruff_python_ast::{Expr, ExprCall, Stmt};
use ruff_text_size::{Ranged, TextRange, TextSize};

use super::edit::{Edit, Preview, apply};
use super::source::Source;
use super::syntax::{blocks_of, names_in};

/// `f(a, b)` becomes `f(a, b, keyword)`; an existing keyword of that name gets the new value.
pub fn set_keyword(file: &Source, call: &ExprCall, name: &str, value: &str) -> Edit {
    match call.arguments.find_keyword(name) {
        Some(keyword) => Edit::replace(keyword.value.range(), value),
        None => append_arguments(file, call, &format!("{name}={value}")),
    }
}

/// Adds arguments behind the last one: on a line of their own where the last one has a line to itself.
pub fn append_arguments(file: &Source, call: &ExprCall, text: &str) -> Edit {
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
fn parting(file: &Source, start: TextSize, end: TextSize) -> String {
    let before = file.slice(TextRange::new(file.line_start(start), start));
    let line = file.line(end);
    let behind = file.slice(TextRange::new(end, file.line_end(line)));
    let newline = if file.text.contains("\r\n") { "\r\n" } else { "\n" };
    let is_alone = !before.is_empty() && before.trim().is_empty() && matches!(behind.trim(), "" | "," | ")" | ",)");
    if is_alone { format!(",{newline}{before}") } else { ", ".to_string() }
}

/// The end of the parentheses around an argument.
pub fn outer_end(file: &Source, call: &ExprCall, end: TextSize) -> TextSize {
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
pub fn remove_statement(file: &Source, statement: &Stmt) -> Edit {
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

/// Puts the statement under `if condition:`. Returns `None` where its text cannot be indented as it is.
pub fn guard_statement(file: &Source, statement: &Stmt, condition: &str) -> Option<Edit> {
    let range = statement.range();
    let before = file.slice(TextRange::new(file.line_start(range.start()), range.start()));
    let text = file.slice(range);
    if !before.trim().is_empty() || text.contains("\"\"\"") || text.contains("'''") {
        return None;
    }
    let moved = text.replace('\n', "\n    ");
    Some(Edit::replace(range, format!("if {condition}:\n{before}    {moved}")))
}

/// Inserts a line below the imports at the head of a script; `None` where they do not import `torch` by that name.
pub fn after_imports(file: &Source, line: &str) -> Option<Edit> {
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
    names_in(test).contains(&"__name__")
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

/// The touched lines before and after, with a gap between places more than a few lines apart.
pub fn preview(file: &Source, edits: &[Edit]) -> Option<Preview> {
    let mut edits: Vec<&Edit> = edits.iter().collect();
    edits.sort_by_key(|edit| edit.range.start());
    let first = edits.first()?;
    let (mut before, mut after) = (String::new(), String::new());
    let mut at = 0;
    while at < edits.len() {
        let start = file.line_start(edits[at].range.start());
        let mut end = line_end(file, edits[at].range.end());
        let mut to = at + 1;
        while to < edits.len() && file.line(edits[to].range.start()) <= file.line(end) + 3 {
            end = end.max(line_end(file, edits[to].range.end()));
            to += 1;
        }
        if at > 0 {
            before.push_str("…\n");
            after.push_str("…\n");
        }
        let (from, until) = (usize::from(start), usize::from(end));
        let part = file.text.get(from..until)?;
        let shifted: Vec<Edit> =
            edits[at..to].iter().map(|edit| Edit::replace(edit.range - start, edit.text.clone())).collect();
        before.push_str(part);
        after.push_str(&apply(part, &shifted)?);
        at = to;
    }
    Some(Preview { line: file.line(first.range.start()), before, after })
}

/// The offset after the line ending of the line that contains `offset`.
fn line_end(file: &Source, offset: TextSize) -> TextSize {
    let from = usize::from(offset);
    let rest = file.text.get(from..).unwrap_or_default();
    let length = rest.find('\n').map_or(rest.len(), |at| at + 1);
    TextSize::new((from + length) as u32)
}
