//! Edits to byte ranges of a text, and how they are applied.

use ruff_text_size::{TextRange, TextSize};
use serde::{Serialize, Serializer};

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
}
