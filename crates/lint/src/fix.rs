//! A fix: edits to byte ranges of the original text, and how they are applied.

use std::collections::BTreeMap;

use ruff_text_size::{TextRange, TextSize};
use serde::{Serialize, Serializer};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Safety {
    /// Only described, never applied.
    Shown,
    /// Applied only on request: the rule's page says what may change.
    Unsafe,
    /// Preserves the meaning.
    Safe,
}

/// The fix for a finding, in words and, where a machine can apply it, as edits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fix {
    pub safety: Safety,
    pub title: String,
    pub edits: Vec<Edit>,
    /// The lines that the edits touch, before and after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preview: Option<Preview>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Edit {
    #[serde(serialize_with = "as_offsets")]
    pub range: TextRange,
    pub text: String,
    /// In a notebook's finding: the cell that the range's bytes are relative to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cell: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Preview {
    /// The first line, from 1.
    pub line: u32,
    pub before: String,
    pub after: String,
}

impl Fix {
    pub fn shown(title: impl Into<String>) -> Fix {
        Fix { safety: Safety::Shown, title: title.into(), edits: Vec::new(), preview: None }
    }

    /// Edits that preserve the meaning; without edits the fix is only shown.
    pub fn safe(title: impl Into<String>, edits: Vec<Edit>) -> Fix {
        Fix::with(Safety::Safe, title, edits)
    }

    /// Edits that may change the meaning; without edits the fix is only shown.
    pub fn unsafe_(title: impl Into<String>, edits: Vec<Edit>) -> Fix {
        Fix::with(Safety::Unsafe, title, edits)
    }

    fn with(safety: Safety, title: impl Into<String>, edits: Vec<Edit>) -> Fix {
        let safety = if edits.is_empty() { Safety::Shown } else { safety };
        Fix { safety, title: title.into(), edits, preview: None }
    }
}

impl Edit {
    pub fn replace(range: TextRange, text: impl Into<String>) -> Edit {
        Edit { range, text: text.into(), cell: None }
    }

    pub fn insert(at: TextSize, text: impl Into<String>) -> Edit {
        Edit { range: TextRange::empty(at), text: text.into(), cell: None }
    }
}

/// The text with all edits applied; `None` where two of them overlap.
pub fn apply(text: &str, edits: &[Edit]) -> Option<String> {
    let mut ordered: Vec<&Edit> = edits.iter().collect();
    ordered.sort_by_key(|edit| (edit.range.start(), edit.range.end()));
    let mut result = String::with_capacity(text.len());
    let mut at = 0;
    let mut before: Option<&Edit> = None;
    for edit in ordered {
        let (start, end) = (usize::from(edit.range.start()), usize::from(edit.range.end()));
        if before.is_some_and(|before| touches(before, edit)) {
            return None;
        }
        result.push_str(text.get(at..start)?);
        result.push_str(&edit.text);
        at = end;
        before = Some(edit);
    }
    result.push_str(text.get(at..)?);
    Some(result)
}

/// The fixes of one file that can be applied together: earlier ones take precedence.
pub fn compatible<'f>(fixes: impl Iterator<Item = &'f Fix>) -> Vec<&'f Fix> {
    let mut taken: Vec<&Fix> = Vec::new();
    // Accepted edits by start. They do not overlap, so checking the two neighbours is enough.
    let mut places: BTreeMap<TextSize, TextSize> = BTreeMap::new();
    for fix in fixes {
        let clashes = |edit: &Edit| {
            let before = places.range(..=edit.range.start()).next_back();
            let after = places.range(edit.range.start()..).next();
            before.is_some_and(|(start, end)| *start == edit.range.start() || *end > edit.range.start())
                || after.is_some_and(|(start, _)| *start < edit.range.end())
        };
        if !fix.edits.iter().any(clashes) {
            places.extend(fix.edits.iter().map(|edit| (edit.range.start(), edit.range.end())));
            taken.push(fix);
        }
    }
    taken
}

/// Whether `later` starts inside `earlier`, or both start at the same place.
fn touches(earlier: &Edit, later: &Edit) -> bool {
    let (one, two) = (earlier.range, later.range);
    if one.start() > two.start() {
        return false;
    }
    two.start() < one.end() || one.start() == two.start()
}

fn as_offsets<S: Serializer>(range: &TextRange, serializer: S) -> Result<S::Ok, S::Error> {
    [u32::from(range.start()), u32::from(range.end())].serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(start: u32, end: u32, text: &str) -> Edit {
        Edit::replace(TextRange::new(start.into(), end.into()), text)
    }

    #[test]
    fn edits_are_made_in_the_order_of_the_text() {
        assert_eq!(apply("abcdef", &[edit(4, 5, "X"), edit(0, 1, "YY")]).as_deref(), Some("YYbcdXf"));
    }

    #[test]
    fn edits_that_touch_are_refused() {
        assert_eq!(apply("abcdef", &[edit(1, 4, ""), edit(3, 5, "")]), None);
        assert_eq!(apply("abcdef", &[edit(1, 1, "x"), edit(1, 1, "y")]), None);
        assert!(apply("abcdef", &[edit(1, 3, ""), edit(3, 5, "")]).is_some());
    }

    #[test]
    fn of_clashing_fixes_the_first_is_taken() {
        let fixes = [
            Fix::safe("one", vec![edit(1, 3, "")]),
            Fix::safe("two", vec![edit(2, 4, "")]),
            Fix::safe("three", vec![edit(4, 5, "")]),
        ];
        let taken: Vec<&str> = compatible(fixes.iter()).iter().map(|fix| fix.title.as_str()).collect();
        assert_eq!(taken, ["one", "three"]);
    }
}
