//! A fix: edits to byte ranges of the original text, and which of several can be made together.

use std::collections::BTreeMap;

pub use headroom_rewrite::{Edit, Preview, apply};
use ruff_text_size::TextSize;
use serde::Serialize;

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
