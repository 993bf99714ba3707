//! Marks in the names of kernels: the rows of `kernel_marks.tsv`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::table;

/// Pairs of a statement and the mark, in lower case, that makes it.
pub static MARKS: LazyLock<Vec<[&str; 2]>> = LazyLock::new(|| table::rows(include_str!("kernel_marks.tsv")).collect());

/// Every kernel is asked about several statements, so the rows of one are found at once.
static BY_STATEMENT: LazyLock<BTreeMap<&str, Vec<&str>>> = LazyLock::new(|| {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for [what, mark] in MARKS.iter() {
        found.entry(what).or_default().push(mark);
    }
    found
});

/// The marks that say `what` of a kernel.
pub fn marks(what: &str) -> &'static [&'static str] {
    BY_STATEMENT.get(what).map_or(&[], Vec::as_slice)
}

/// Whether a kernel's name, in lower case, has one of them.
pub fn is_marked(what: &str, lower: &str) -> bool {
    marks(what).iter().any(|mark| lower.contains(mark))
}
