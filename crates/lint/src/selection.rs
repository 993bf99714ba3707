//! Selects the rules that run, and where: `--select`, `--ignore` and `[tool.headroom]`.

use rustc_hash::FxHashMap;

use thiserror::Error;

use super::rules::RULES;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    select: Vec<String>,
    ignore: Vec<String>,
    is_pedantic: bool,
    /// Selections that replace this one for single files, by displayed path.
    by_file: FxHashMap<String, Selection>,
}

#[derive(Debug, Error, PartialEq, Eq)]
pub enum SelectionError {
    #[error("no rule {code}: use a code (TP101 to TP606), a group such as TP1 or a name such as item-per-step")]
    UnknownRule { code: String },
}

impl Selection {
    /// Codes (`TP101`), groups of them (`TP1`), names (`item-per-step`) or `all`. An empty `select` means all.
    pub fn new(select: &[String], ignore: &[String]) -> Result<Selection, SelectionError> {
        let codes = |given: &[String]| given.iter().map(|code| resolve(code)).collect::<Result<Vec<String>, _>>();
        Ok(Selection { select: codes(select)?, ignore: codes(ignore)?, ..Selection::default() })
    }

    /// The same rules, with their pedantic findings.
    pub fn pedantic(self) -> Selection {
        Selection { is_pedantic: true, ..self }
    }

    /// Whether pedantic findings of a rule are shown: requested for all rules, or by selecting the rule or its group.
    pub fn wants_pedantic(&self, code: &str, path: &str) -> bool {
        if let Some(own) = self.by_file.get(path) {
            return own.wants_pedantic(code, path);
        }
        let names_it = |prefix: &String| prefix.len() > "TP".len() && code.starts_with(prefix.as_str());
        self.is_pedantic || self.select.iter().any(names_it)
    }

    /// Builds a selection per file, by displayed path.
    pub fn by_path(of_files: impl IntoIterator<Item = (String, Selection)>) -> Selection {
        let by_file: FxHashMap<String, Selection> = of_files.into_iter().collect();
        let mut all = by_file.values();
        match all.next() {
            Some(first) if all.all(|other| other == first) => first.clone(),
            _ => Selection { by_file, ..Selection::default() },
        }
    }

    /// Whether the rule runs on any file.
    pub fn wants(&self, code: &str) -> bool {
        if !self.by_file.is_empty() {
            return self.by_file.values().any(|selection| selection.wants(code));
        }
        let selected = self.select.is_empty() || self.select.iter().any(|prefix| code.starts_with(prefix.as_str()));
        selected && !self.ignore.iter().any(|prefix| code.starts_with(prefix.as_str()))
    }

    pub fn wants_at(&self, code: &str, path: &str) -> bool {
        self.by_file.get(path).is_none_or(|own| own.wants(code))
    }
}

fn resolve(given: &str) -> Result<String, SelectionError> {
    let given = given.trim();
    if given.eq_ignore_ascii_case("all") {
        return Ok("TP".to_string());
    }
    if let Some(rule) = RULES.iter().find(|rule| rule.name == given) {
        return Ok(rule.code.to_string());
    }
    let upper = given.to_ascii_uppercase();
    if upper.starts_with("TP") && RULES.iter().any(|rule| rule.code.starts_with(&upper)) {
        return Ok(upper);
    }
    Err(SelectionError::UnknownRule { code: given.to_string() })
}
