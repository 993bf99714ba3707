//! Tables of knowledge beside the code: a row per line, columns separated by tabs, comments after `#`.

/// The rows of a table with this many columns, which every row has.
pub fn rows<const COLUMNS: usize>(text: &'static str) -> impl Iterator<Item = [&'static str; COLUMNS]> {
    let rows = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.map(|row| {
        let columns: Vec<&str> = row.split('\t').collect();
        columns.try_into().unwrap_or_else(|_| panic!("{COLUMNS} columns in {row:?}"))
    })
}

pub fn number(text: &str) -> f64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is a number"))
}
