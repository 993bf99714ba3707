//! A table as text cells, and its formats: columns, plain text, Markdown and HTML (in `page`).

pub struct Table {
    pub head: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Whether the cells of a column are numbers with units, to be right-aligned.
    pub fn is_numeric(&self, column: usize) -> bool {
        let number = |cell: &str| {
            let starts = cell.starts_with(|first: char| first.is_ascii_digit() || first == '-');
            cell.is_empty() || (starts && cell.chars().count() <= LONGEST_NUMBER)
        };
        self.rows.iter().all(|row| row.get(column).is_none_or(|cell| number(cell)))
    }
}

/// As long as `1,300.2 MFLOP/s`; longer cells are sentences that happen to start with a figure.
const LONGEST_NUMBER: usize = 16;

/// The table without these columns.
pub fn without(mut table: Table, columns: &[&str]) -> Table {
    while let Some(at) = table.head.iter().position(|head| columns.contains(head)) {
        table.head.remove(at);
        table.rows.iter_mut().for_each(|row| drop(row.remove(at)));
    }
    table
}

/// For a terminal, with numbers right-aligned.
pub fn columns(table: &Table) -> String {
    let count = table.rows.iter().map(Vec::len).max().unwrap_or(0);
    let align = |column| if table.is_numeric(column) { Align::Right } else { Align::Left };
    set(&table.head, &table.rows, &(0..count).collect::<Vec<_>>(), align, "  ")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// With the given alignment of each column. A column without any content is left out.
pub fn text_table(columns: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let filled = |column: &usize| rows.iter().any(|row| !row[*column].is_empty());
    let shown: Vec<usize> = (0..columns.len()).filter(filled).collect();
    let head: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    set(&head, rows, &shown, |column| columns[column].1, "")
}

/// A head if there is one, and one line per row; each shown column is as wide as its widest cell.
fn set(head: &[&str], rows: &[Vec<String>], shown: &[usize], align: impl Fn(usize) -> Align, indent: &str) -> String {
    let lines: Vec<Vec<&str>> = (!head.is_empty())
        .then(|| head.to_vec())
        .into_iter()
        .chain(rows.iter().map(|row| row.iter().map(String::as_str).collect()))
        .collect();
    let cell = |line: &[&str], column: usize| line.get(column).copied().unwrap_or_default().to_string();
    let width = |column: usize| lines.iter().map(|line| cell(line, column).chars().count()).max().unwrap_or(0);
    let columns: Vec<(usize, usize, Align)> =
        shown.iter().map(|&column| (column, width(column), align(column))).collect();
    let line = |line: &Vec<&str>| {
        let cells = columns.iter().map(|&(column, width, align)| match align {
            Align::Left => format!("{:<width$}", cell(line, column)),
            Align::Right => format!("{:>width$}", cell(line, column)),
        });
        format!("{indent}{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    lines.iter().map(line).collect()
}

pub fn markdown_table(table: &Table) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let escaped = |cell: &String| cell.replace('|', "\\|");
    let mut out = line(table.head.iter().map(|cell| cell.to_string()).collect());
    let rule = |column: usize| if table.is_numeric(column) { "---:" } else { "---" };
    out += &line((0..table.head.len()).map(|column| rule(column).to_string()).collect());
    for row in &table.rows {
        out += &line(row.iter().map(escaped).collect());
    }
    out
}

pub fn markdown_list(items: &[String]) -> String {
    items.iter().map(|item| format!("- {item}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_that_starts_with_a_figure_is_not_a_number() {
        let table = |cell: &str| Table { head: vec!["x"], rows: vec![vec![cell.into()], vec!["12.5 MiB".into()]] };
        assert!(table("3.1%").is_numeric(0));
        assert!(!table("1.40 ms per step, 0.47 ms at the roof").is_numeric(0));
        assert!(!table("not time").is_numeric(0));
    }

    #[test]
    fn columns_line_up_and_empty_ones_are_left_out() {
        let columns = [("size", Align::Left), ("none", Align::Left), ("MiB", Align::Right)];
        let row = |size: &str, mib: &str| vec![size.to_string(), String::new(), mib.to_string()];
        let text = text_table(&columns, &[row("tiny", "106"), row("small", "7")]);
        assert_eq!(text, "size   MiB\ntiny   106\nsmall    7\n");
    }
}
