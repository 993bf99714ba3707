//! Marks in the names of kernels: the rows of `kernel_marks.tsv`.

use std::sync::LazyLock;

use crate::table;

/// Pairs of a statement and the mark, in lower case, that makes it.
pub static MARKS: LazyLock<Vec<[&str; 2]>> = LazyLock::new(|| table::rows(include_str!("kernel_marks.tsv")).collect());

/// The marks that say `what` of a kernel.
pub fn marks(what: &str) -> impl Iterator<Item = &'static str> {
    MARKS.iter().filter(move |[of, _]| *of == what).map(|[_, mark]| *mark)
}

/// Whether a kernel's name, in lower case, has one of them.
pub fn is_marked(what: &str, lower: &str) -> bool {
    marks(what).any(|mark| lower.contains(mark))
}
