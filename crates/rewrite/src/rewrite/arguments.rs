//! Adds, changes and removes call arguments, all changes of one call together.

use ruff_python_ast::{Expr, ExprCall};
use ruff_text_size::{Ranged, TextRange, TextSize};

use super::Change;
use crate::edit::Edit;
use crate::edits::{append_arguments, outer_end};
use crate::source::Source;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    pub name: String,
    /// As source text; empty for an argument that is removed.
    pub value: String,
    /// Its position among positional arguments, from 0; `None` for a keyword-only argument.
    pub position: Option<usize>,
}

impl Argument {
    pub fn new(name: impl Into<String>, value: impl Into<String>, position: Option<usize>) -> Argument {
        Argument { name: name.into(), value: value.into(), position }
    }
}

pub(super) fn edits(file: &Source, call: &ExprCall, changes: &[Change]) -> Vec<Edit> {
    let mut edits = Vec::new();
    let mut added: Vec<&Argument> = Vec::new();
    for change in changes {
        match change {
            Change::Set(argument) => match given(call, argument) {
                Some(value) if file.slice(value) == argument.value => {}
                Some(value) => edits.push(Edit::replace(value, &argument.value)),
                None if added.iter().any(|other| other.name == argument.name) => {}
                None => added.push(argument),
            },
            Change::Drop(argument) => edits.extend(without(file, call, argument)),
        }
    }
    if !added.is_empty() {
        edits.push(add(file, call, &added));
    }
    edits
}

/// The range of the argument's value.
fn given(call: &ExprCall, argument: &Argument) -> Option<TextRange> {
    if let Some(keyword) = call.arguments.find_keyword(&argument.name) {
        return Some(keyword.value.range());
    }
    let value = positional(call, argument)?;
    Some(value.range())
}

fn positional<'a>(call: &'a ExprCall, argument: &Argument) -> Option<&'a Expr> {
    let position = argument.position?;
    let args = &call.arguments.args;
    // After `*these`, positions are not known.
    let is_known = !args.iter().take(position + 1).any(Expr::is_starred_expr);
    args.get(position).filter(|_| is_known)
}

fn add(file: &Source, call: &ExprCall, added: &[&Argument]) -> Edit {
    // `**options` may contain an added name: the added pair goes after it and wins.
    if let Some(options) = call.arguments.keywords.iter().find(|keyword| keyword.arg.is_none()) {
        let pairs: Vec<String> = added.iter().map(|one| format!("\"{}\": {}", one.name, one.value)).collect();
        let value = file.slice(options.value.range());
        return Edit::replace(options.value.range(), format!("{{**{value}, {}}}", pairs.join(", ")));
    }
    let pairs: Vec<String> = added.iter().map(|one| format!("{}={}", one.name, one.value)).collect();
    append_arguments(file, call, &pairs.join(", "))
}

/// Removes the argument and the comma that separates it from the others.
fn without(file: &Source, call: &ExprCall, argument: &Argument) -> Option<Edit> {
    let keyword = call.arguments.find_keyword(&argument.name).map(Ranged::range);
    let range = keyword.or_else(|| positional(call, argument).map(Ranged::range))?;
    let all = call.arguments.args.iter().map(Ranged::range);
    let mut all: Vec<TextRange> = all.chain(call.arguments.keywords.iter().map(Ranged::range)).collect();
    all.sort_by_key(|one| one.start());
    let own = all.iter().position(|one| *one == range)?;
    // A positional argument followed by others stays: removing it would shift them.
    if keyword.is_none() && own + 1 < call.arguments.args.len() {
        return None;
    }
    let removed = match (own.checked_sub(1), all.get(own + 1)) {
        (Some(before), _) => TextRange::new(outer_end(file, call, all[before].end()), range.end()),
        (None, Some(next)) => TextRange::new(range.start(), next.start()),
        (None, None) => {
            TextRange::new(call.arguments.start() + TextSize::new(1), call.arguments.end() - TextSize::new(1))
        }
    };
    Some(Edit::replace(removed, ""))
}
