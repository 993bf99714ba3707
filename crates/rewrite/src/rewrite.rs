//! Rewrites a Python file at places reported by a run: call arguments, inserted statements, lines at the top of the
//! file.
//!
//! All changes are requested first and written at once by [`Rewrite::finish`], so that several changes of one call or
//! place do not interfere. The result is parsed again.

use std::collections::BTreeMap;

use ruff_python_ast::{Expr, ExprCall, Stmt};
use ruff_text_size::{Ranged, TextRange, TextSize};

use super::edit::{Edit, apply};
use super::source::Source;
use super::syntax::{blocks_of, each_expression, last_name, names_in, statements_in};
use arguments::Argument;

pub mod arguments;
mod head;

/// A call as Python's frames report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// From 1: the line where the call, or its name, begins.
    pub line: u32,
    /// Its last line and the byte after it on that line, where the interpreter reports them.
    pub end: Option<(u32, u32)>,
}

/// Why a change cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("no single call is known at line {0}")]
    NoCall(u32),
    #[error("line {0} holds several statements")]
    Crowded(u32),
    #[error("line {0} does not exist")]
    NoLine(u32),
}

/// One file and the changes requested for it.
pub struct Rewrite {
    file: Source,
    /// Keyed by a call's start and end.
    arguments: BTreeMap<(TextSize, TextSize), Vec<Change>>,
    /// Lines to insert before the line that starts at the key, already indented.
    lines: BTreeMap<TextSize, Vec<String>>,
    /// Replacements of values.
    values: BTreeMap<TextSize, Edit>,
    head: head::Head,
    newline: &'static str,
    /// One level of indentation.
    unit: &'static str,
}

#[derive(Clone, Debug, PartialEq)]
enum Change {
    Set(Argument),
    Drop(Argument),
}

impl Change {
    fn name(&self) -> &str {
        match self {
            Change::Set(argument) | Change::Drop(argument) => &argument.name,
        }
    }
}

impl Rewrite {
    /// Returns `None` where the text does not parse.
    pub fn of(path: &str, text: &str) -> Option<Rewrite> {
        let file = Source::from_text(path, text.to_string());
        if file.problem.is_some() {
            return None;
        }
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let indented = text.lines().find(|line| line.starts_with([' ', '\t']) && !line.trim().is_empty());
        let unit = if indented.is_some_and(|line| line.starts_with('\t')) { "\t" } else { "    " };
        Some(Rewrite {
            file,
            arguments: BTreeMap::new(),
            lines: BTreeMap::new(),
            values: BTreeMap::new(),
            head: head::Head::default(),
            newline,
            unit,
        })
    }

    pub fn path(&self) -> &str {
        &self.file.path
    }

    /// Adds this argument to the call, or replaces its value. `callees` are names that identify the call where the
    /// interpreter reported only a line.
    pub fn set_argument(&mut self, spot: Spot, callees: &[&str], argument: Argument) -> Result<(), Refusal> {
        self.change(spot, callees, Change::Set(argument))
    }

    /// Replaces the argument's value if the call has it.
    pub fn set_given_argument(&mut self, spot: Spot, callees: &[&str], argument: Argument) -> Result<(), Refusal> {
        let call = self.call_at(spot, callees)?;
        if call.arguments.find_keyword(&argument.name).is_none() {
            return Ok(());
        }
        self.change(spot, callees, Change::Set(argument))
    }

    /// Removes the argument from the call, if present.
    pub fn drop_argument(&mut self, spot: Spot, callees: &[&str], argument: Argument) -> Result<(), Refusal> {
        self.change(spot, callees, Change::Drop(argument))
    }

    fn change(&mut self, spot: Spot, callees: &[&str], change: Change) -> Result<(), Refusal> {
        let range = self.call_at(spot, callees)?.range();
        let changes = self.arguments.entry((range.start(), range.end())).or_default();
        // A call that ran several times is requested each time: the first request for an argument counts.
        if !changes.iter().any(|other| other.name() == change.name()) {
            changes.push(change);
        }
        Ok(())
    }

    /// Inserts lines before the statement around the spot, at its indentation; further indentation in them is four
    /// spaces.
    pub fn insert_before(&mut self, spot: Spot, lines: &[String]) -> Result<(), Refusal> {
        let offset = self.inside(spot).ok_or(Refusal::NoLine(spot.line))?;
        let (at, indentation) = self.statement_line(offset)?;
        let indented = lines.iter().map(|line| self.indented(line, &indentation)).collect::<Vec<_>>();
        self.lines.entry(at).or_default().extend(indented);
        Ok(())
    }

    /// Whether a comprehension or lambda of the statement around the spot binds the name, so that it is not known
    /// before it.
    pub fn binds_within(&self, spot: Spot, name: &str) -> bool {
        let Some(offset) = self.inside(spot) else { return false };
        let mut found = false;
        each_expression(&self.file.syntax.body, |expression| {
            if !expression.range().contains(offset) {
                return;
            }
            let generators = match expression {
                Expr::ListComp(inner) => &inner.generators,
                Expr::SetComp(inner) => &inner.generators,
                Expr::DictComp(inner) => &inner.generators,
                Expr::Generator(inner) => &inner.generators,
                Expr::Lambda(inner) => {
                    found |= inner.parameters.as_ref().is_some_and(|parameters| parameters.includes(name));
                    return;
                }
                _ => return,
            };
            found |= generators.iter().any(|one| names_in(&one.target).contains(&name));
        });
        found
    }

    /// Inserts lines after the imports at the top of the file.
    pub fn after_imports(&mut self, lines: &[String]) {
        let indented: Vec<String> = lines.iter().map(|line| self.indented(line, "")).collect();
        self.head.after.push(indented);
    }

    /// Inserts lines before the first import that is not of Python's own light modules.
    pub fn before_imports(&mut self, lines: &[String]) {
        self.head.before.extend(lines.iter().cloned());
    }

    /// Makes sure that the module is imported at the top of the file; text that begins with `from` is a whole
    /// statement.
    pub fn import(&mut self, module: &str) {
        if !self.head.imports.iter().any(|other| other == module) {
            self.head.imports.push(module.to_string());
        }
    }

    /// Sets every assignment to `target` (`torch.backends.cudnn.benchmark`) to this value. Returns whether a changed
    /// one is reached whenever the file runs.
    pub fn assign(&mut self, target: &str, value: &str) -> bool {
        let all = statements_in(&self.file.syntax.body).into_iter().filter_map(Stmt::as_assign_stmt);
        let meant = all.filter(|assignment| assignment.targets.iter().any(|one| is_path(one, target)));
        let found: Vec<TextRange> = meant.map(|assignment| assignment.value.range()).collect();
        self.replace_values(&found, value)
    }

    /// Gives every call of `function` (`torch.set_num_threads`) this sole argument. Returns the same as
    /// [`Self::assign`].
    pub fn call_with(&mut self, function: &str, argument: &str) -> bool {
        let calls = calls_in(&self.file.syntax.body);
        let found: Vec<TextRange> = calls
            .iter()
            .filter(|call| is_path(&call.func, function) && call.arguments.len() == 1)
            .filter_map(|call| Some(call.arguments.args.first()?.range()))
            .collect();
        self.replace_values(&found, argument)
    }

    fn replace_values(&mut self, found: &[TextRange], value: &str) -> bool {
        let mut always = false;
        for range in found.iter().filter(|range| self.file.slice(**range) != value) {
            self.values.insert(range.start(), Edit::replace(*range, value));
            let own = self.file.syntax.body.iter().find(|statement| statement.range().contains_range(*range));
            always |= own.is_some_and(|statement| blocks_of(statement).is_empty());
        }
        always
    }

    /// Whether an attribute in the file has this name.
    pub fn mentions(&self, name: &str) -> bool {
        let mut found = false;
        each_expression(&self.file.syntax.body, |expression| {
            found |= matches!(expression, Expr::Attribute(attribute) if attribute.attr.as_str() == name);
        });
        found
    }

    /// The text with all changes; `None` where the result would not parse.
    pub fn finish(self) -> Option<String> {
        let mut edits: Vec<Edit> = self.values.values().cloned().collect();
        for call in calls_in(&self.file.syntax.body) {
            let range = call.range();
            if let Some(changes) = self.arguments.get(&(range.start(), range.end())) {
                edits.extend(arguments::edits(&self.file, call, changes));
            }
        }
        let mut inserted: BTreeMap<TextSize, String> = BTreeMap::new();
        for (at, text) in self.head.edits(&self.file, self.newline) {
            inserted.entry(at).or_default().push_str(&text);
        }
        for (at, lines) in &self.lines {
            let text: String = lines.iter().map(|line| format!("{line}{}", self.newline)).collect();
            inserted.entry(*at).or_default().push_str(&text);
        }
        edits.extend(inserted.into_iter().map(|(at, text)| Edit::insert(at, text)));
        let after = apply(&self.file.text, &edits)?;
        let parsed = Source::from_text(&self.file.path, after);
        parsed.problem.is_none().then_some(parsed.text)
    }

    fn indented(&self, line: &str, indentation: &str) -> String {
        let inner = line.trim_start_matches(' ');
        let depth = (line.len() - inner.len()) / 4;
        if inner.is_empty() { String::new() } else { format!("{indentation}{}{inner}", self.unit.repeat(depth)) }
    }

    fn call_at(&self, spot: Spot, callees: &[&str]) -> Result<&ExprCall, Refusal> {
        let calls = calls_in(&self.file.syntax.body);
        if let Some(end) = spot.end.and_then(|end| self.offset(end)) {
            return calls.into_iter().find(|call| call.end() == end).ok_or(Refusal::NoCall(spot.line));
        }
        let lines = |call: &ExprCall| self.file.line(call.start())..=self.file.line(call.end());
        let here: Vec<&ExprCall> = calls.into_iter().filter(|call| lines(call).contains(&spot.line)).collect();
        let named = here.iter().filter(|call| last_name(&call.func).is_some_and(|name| callees.contains(&name)));
        let named: Vec<&&ExprCall> = named.collect();
        match (named.as_slice(), here.as_slice()) {
            ([call], _) => Ok(call),
            ([], [call]) => Ok(call),
            _ => Err(Refusal::NoCall(spot.line)),
        }
    }

    /// An offset inside the call.
    fn inside(&self, spot: Spot) -> Option<TextSize> {
        match spot.end {
            Some(end) => self.offset(end).map(|end| end - TextSize::new(1)),
            None => self.first_word(spot.line),
        }
    }

    /// The offset of a byte in a line.
    fn offset(&self, (line, byte): (u32, u32)) -> Option<TextSize> {
        let end = self.file.line_end(line);
        let start = self.file.line_start(end);
        let offset = start + TextSize::new(byte);
        (offset <= end && self.file.line(offset) == line).then_some(offset)
    }

    fn first_word(&self, line: u32) -> Option<TextSize> {
        let text = self.file.line_text(line);
        let start = self.file.line_start(self.file.line_end(line));
        (!text.trim().is_empty()).then(|| start + TextSize::new((text.len() - text.trim_start().len()) as u32))
    }

    /// The start and indentation of the line that begins with the statement around `offset`.
    fn statement_line(&self, offset: TextSize) -> Result<(TextSize, String), Refusal> {
        let mut around: Vec<&Stmt> = Vec::new();
        let mut block: &[Stmt] = &self.file.syntax.body;
        while let Some(statement) = block.iter().find(|statement| statement.range().contains(offset)) {
            around.push(statement);
            let inner = blocks_of(statement).into_iter();
            let Some(next) = inner.into_iter().find(|inner| inner.iter().any(|one| one.range().contains(offset)))
            else {
                break;
            };
            block = next;
        }
        let line = self.file.line(offset);
        for statement in around.iter().rev() {
            let start = self.file.line_start(statement.start());
            let before = self.file.slice(TextRange::new(start, statement.start()));
            if before.trim().is_empty() {
                return Ok((start, before.to_string()));
            }
            // After a semicolon: the inserted lines may need what comes before it on the line.
            if before.contains(';') {
                return Err(Refusal::Crowded(line));
            }
        }
        Err(Refusal::NoLine(line))
    }
}

/// Whether the expression is written as `a.b.c`.
fn is_path(expression: &Expr, path: &str) -> bool {
    match (expression, path.rsplit_once('.')) {
        (Expr::Name(name), None) => name.id.as_str() == path,
        (Expr::Attribute(attribute), Some((before, last))) => {
            attribute.attr.as_str() == last && is_path(&attribute.value, before)
        }
        _ => false,
    }
}

fn calls_in(body: &[Stmt]) -> Vec<&ExprCall> {
    let mut calls = Vec::new();
    each_expression(body, |expression| {
        if let Expr::Call(call) = expression {
            calls.push(call);
        }
    });
    calls
}
