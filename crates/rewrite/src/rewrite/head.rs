//! Lines at the top of a file: missing imports, lines after all imports and lines before them.

use ruff_python_ast::Stmt;
use ruff_text_size::{Ranged, TextSize};

use crate::edits::{is_words, last_of_head};
use crate::source::Source;

/// Standard library modules that many scripts import first, and that load nothing heavy.
const LIGHT: &str = "argparse collections contextlib copy dataclasses datetime enum functools gc inspect itertools json \
                     logging math os pathlib pickle random re shutil string sys tempfile time typing warnings";

#[derive(Default)]
pub(super) struct Head {
    /// Module names, and whole statements that begin with `from`.
    pub imports: Vec<String>,
    /// Groups of lines, each set apart.
    pub after: Vec<Vec<String>>,
    pub before: Vec<String>,
}

impl Head {
    /// Text to insert, by offset.
    pub fn edits(&self, file: &Source, newline: &str) -> Vec<(TextSize, String)> {
        let body = &file.syntax.body;
        let mut edits = Vec::new();
        let joined = |lines: &[String]| lines.iter().map(|line| format!("{line}{newline}")).collect::<String>();
        if !self.before.is_empty() {
            let first = body.iter().position(|statement| imports(statement).iter().any(|name| is_heavy(name)));
            // Without imports: after a docstring.
            let first = first.unwrap_or_else(|| body.iter().take_while(|statement| is_words(statement)).count());
            let knows_os = body[..first].iter().any(|statement| binds(statement, "os"));
            let import = if knows_os { String::new() } else { format!("import os{newline}{newline}") };
            let at = body.get(first).map_or(TextSize::of(&file.text), |next| file.line_start(next.start()));
            edits.push((at, format!("{import}{}{newline}", joined(&self.before))));
        }
        let is_there = |wanted: &str| match wanted.strip_prefix("from ") {
            Some(_) => body.iter().any(|statement| file.slice(statement.range()) == wanted),
            None => body.iter().any(|statement| binds(statement, wanted)),
        };
        let missing: Vec<&String> = self.imports.iter().filter(|wanted| !is_there(wanted)).collect();
        if missing.is_empty() && self.after.is_empty() {
            return edits;
        }
        let mut text = String::new();
        for wanted in missing {
            text.push_str(if wanted.starts_with("from ") { "" } else { "import " });
            text.push_str(&format!("{wanted}{newline}"));
        }
        for group in &self.after {
            let is_definition = group.iter().any(|line| line.starts_with("def "));
            text.push_str(if is_definition { newline } else { "" });
            text.push_str(newline);
            text.push_str(&joined(group));
        }
        let last = last_of_head(body);
        let Some(end) = last.map(|index| body[index].end()) else {
            edits.push((TextSize::default(), text));
            return edits;
        };
        let line = file.line_end(file.line(end));
        let rest = file.text.get(usize::from(line)..).unwrap_or_default();
        // After the line ending, which the last line of a file may lack.
        match rest.find('\n') {
            Some(at) => edits.push((line + TextSize::new(at as u32 + 1), text)),
            None => edits.push((line, format!("{newline}{}", text.trim_end_matches(['\n', '\r'])))),
        }
        edits
    }
}

/// Top-level names of the modules that a statement imports.
fn imports(statement: &Stmt) -> Vec<&str> {
    let top = |name: &'_ str| name.find('.').unwrap_or(name.len());
    match statement {
        Stmt::Import(import) => {
            import.names.iter().map(|alias| &alias.name.as_str()[..top(alias.name.as_str())]).collect()
        }
        Stmt::ImportFrom(import) => match &import.module {
            Some(module) if import.level == 0 => vec![&module.as_str()[..top(module.as_str())]],
            _ => vec!["."],
        },
        Stmt::Try(inner) => inner.body.iter().flat_map(imports).collect(),
        _ => Vec::new(),
    }
}

fn is_heavy(module: &str) -> bool {
    module != "__future__" && LIGHT.split(' ').all(|light| light != module)
}

/// Whether the statement is `import name`, or imports a submodule of it.
fn binds(statement: &Stmt, name: &str) -> bool {
    let Stmt::Import(import) = statement else { return false };
    import.names.iter().any(|alias| match &alias.asname {
        Some(given) => given.as_str() == name && alias.name.as_str() == name,
        None => alias.name.as_str() == name || alias.name.as_str().split('.').next() == Some(name),
    })
}
