//! Finds the source line of a call from what a trace knows about it: the enclosing function and the callee.

use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{Expr, ExprCall, ModModule, Stmt, StmtFunctionDef};
use ruff_python_parser::Parsed;
use ruff_source_file::LineIndex;
use ruff_text_size::{Ranged, TextLen, TextSize};

use crate::finding::Place;

/// The callee of a Python function, from the trace's name for the inner frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Callee<'a> {
    /// A method or function by its last name: `item`, `triu`.
    Named(&'a str),
    /// A call of an object of this class: a module's `forward`.
    ObjectOf(&'a str),
}

/// Parses the trace's name for the inner frame.
pub fn callee(frame: &str) -> Option<Callee<'_>> {
    if let Some(module) = frame.strip_prefix("nn.Module: ") {
        let class = module.rsplit_once('_').map_or(module, |(class, _)| class);
        return Some(Callee::ObjectOf(class));
    }
    if let Some(rest) = frame.strip_prefix("<built-in ") {
        let rest = rest.strip_prefix("method ").or_else(|| rest.strip_prefix("function ")).unwrap_or(rest);
        return rest.split([' ', '>']).next().filter(|name| !name.is_empty()).map(Callee::Named);
    }
    frame.rsplit_once("): ").map(|(_, function)| Callee::Named(function))
}

/// A script, parsed once for all findings in it.
pub struct Script {
    text: String,
    parsed: Parsed<ModModule>,
    index: LineIndex,
}

impl Script {
    /// `None` if the text is not Python.
    pub fn new(text: String) -> Option<Script> {
        let parsed = ruff_python_parser::parse_module(&text).ok()?;
        Some(Script { index: LineIndex::from_source_text(&text), text, parsed })
    }

    fn line(&self, at: TextSize) -> u32 {
        self.index.line_index(at).get() as u32
    }

    fn functions(&self, name: &str) -> Vec<&StmtFunctionDef> {
        let mut functions = Functions { name, found: Vec::new() };
        self.parsed.syntax().body.iter().for_each(|statement| functions.visit_stmt(statement));
        functions.found
    }

    fn holds(&self, function: &StmtFunctionDef, line: u32) -> bool {
        (self.line(function.range().start())..=self.line(function.range().end())).contains(&line)
    }

    /// Whether the script has a function of this name (1), and `near` among the function's lines (2).
    pub fn fit(&self, function: &str, near: u32) -> u8 {
        let found = self.functions(function);
        let is_module = function == "<module>";
        let has_line = match is_module {
            true => near <= self.line(self.text.text_len()),
            false => found.iter().any(|one| self.holds(one, near)),
        };
        u8::from(is_module || !found.is_empty()) + u8::from(has_line)
    }
}

/// The first place in the script where `function` makes the call; if several functions share the name, the one with
/// `near` among its lines. A frame entered before profiling began has a line inside the function; others have the line
/// of their `def`.
pub fn call_place(file: &str, script: &Script, function: &str, near: u32, callee: &Callee) -> Option<Place> {
    let module: &ModModule = script.parsed.syntax();
    let attributes = match callee {
        Callee::ObjectOf(class) => attributes_of_class(module, class),
        Callee::Named(_) => Vec::new(),
    };
    let candidates = if function == "<module>" {
        calls_in(&module.body)
    } else {
        let functions = script.functions(function);
        let chosen = functions.iter().find(|one| script.holds(one, near)).or(functions.first())?;
        calls_in(&chosen.body)
    };
    let call = candidates.into_iter().find(|call| is_call_of(call, callee, &attributes))?;
    let source = ruff_source_file::SourceCode::new(&script.text, &script.index);
    let (start, end) = (source.line_column(call.range().start()), source.line_column(call.range().end()));
    Some(Place {
        file: file.to_string(),
        cell: None,
        line: start.line.get() as u32,
        column: start.column.get() as u32,
        end_line: end.line.get() as u32,
        end_column: end.column.get() as u32,
    })
}

fn calls_in(body: &[Stmt]) -> Vec<&ExprCall> {
    let mut calls = Calls::default();
    body.iter().for_each(|statement| calls.visit_stmt(statement));
    calls.found
}

fn is_call_of(call: &ExprCall, callee: &Callee, attributes: &[String]) -> bool {
    let Some(name) = last_name(&call.func) else { return false };
    match callee {
        Callee::Named(wanted) => name == *wanted,
        Callee::ObjectOf(_) => attributes.iter().any(|attribute| attribute == name),
    }
}

fn last_name(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Attribute(attribute) => Some(attribute.attr.as_str()),
        Expr::Name(name) => Some(name.id.as_str()),
        _ => None,
    }
}

/// Names assigned an object of `class`: `self.encoder = nn.TransformerEncoder(…)`.
fn attributes_of_class(module: &ModModule, class: &str) -> Vec<String> {
    struct Assigned<'c> {
        class: &'c str,
        names: Vec<String>,
    }
    impl<'a> Visitor<'a> for Assigned<'_> {
        fn visit_stmt(&mut self, statement: &'a Stmt) {
            if let Stmt::Assign(assign) = statement
                && let Expr::Call(call) = assign.value.as_ref()
                && last_name(&call.func) == Some(self.class)
            {
                self.names.extend(assign.targets.iter().filter_map(last_name).map(str::to_string));
            }
            walk_stmt(self, statement);
        }
    }
    let mut assigned = Assigned { class, names: Vec::new() };
    module.body.iter().for_each(|statement| assigned.visit_stmt(statement));
    assigned.names
}

struct Functions<'a, 'n> {
    name: &'n str,
    found: Vec<&'a StmtFunctionDef>,
}

impl<'a> Visitor<'a> for Functions<'a, '_> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        if let Stmt::FunctionDef(function) = statement
            && function.name.as_str() == self.name
        {
            self.found.push(function);
        }
        walk_stmt(self, statement);
    }
}

#[derive(Default)]
struct Calls<'a> {
    found: Vec<&'a ExprCall>,
}

impl<'a> Visitor<'a> for Calls<'a> {
    fn visit_expr(&mut self, expression: &'a Expr) {
        if let Expr::Call(call) = expression {
            self.found.push(call);
        }
        walk_expr(self, expression);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "import torch\nclass Model:\n    def __init__(self):\n        self.encoder = nn.TransformerEncoder(layer, 4)\n\
        \n    def forward(self, x):\n        mask = torch.triu(torch.ones(4, 4))\n        return self.head(self.encoder(x, mask=mask))\n\
        \ndef train():\n    for p in q:\n        p.norm().item()\n";

    fn line(function: &str, near: u32, frame: &str) -> Option<u32> {
        let script = Script::new(SCRIPT.to_string())?;
        call_place("a.py", &script, function, near, &callee(frame)?).map(|place| place.line)
    }

    #[test]
    fn a_call_is_found_by_the_frame_inside_it() {
        assert_eq!(line("forward", 6, "nn.Module: TransformerEncoder_0"), Some(8));
        assert_eq!(line("forward", 6, "<built-in method triu of type object>"), Some(7));
        assert_eq!(line("train", 99, "<built-in method item of Tensor object>"), Some(12));
        assert_eq!(line("train", 10, "torch/_tensor.py(860): norm"), Some(12));
        assert_eq!(line("train", 10, "nn.Module: Linear_3"), None);
        assert_eq!(line("missing", 1, "<built-in method item of Tensor object>"), None);
    }
}
