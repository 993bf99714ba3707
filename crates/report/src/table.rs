//! A table as text cells, and the ways to set it: columns, plain text, Markdown and HTML (in `page`).

pub struct Table {
    pub head: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Are the cells of a column numbers with their units, to be set flush right?
    pub fn is_numeric(&self, column: usize) -> bool {
        let number = |cell: &str| {
            let starts = cell.starts_with(|first: char| first.is_ascii_digit() || first == '-');
            cell.is_empty() || (starts && cell.chars().count() <= LONGEST_NUMBER)
        };
        self.rows.iter().all(|row| row.get(column).is_none_or(|cell| number(cell)))
    }
}

/// `1,300.2 MFLOP/s`; longer cells are sentences that happen to start with a figure.
const LONGEST_NUMBER: usize = 16;

/// For a terminal: columns as wide as they need, numbers flush right.
pub fn columns(table: &Table) -> String {
    let count = table.rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = table.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(table.head.get(column).map(|cell| cell.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let line = |cells: Vec<&str>| {
        let set = cells.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            let last = column + 1 == count;
            match table.is_numeric(column) {
                true => format!("{cell:>width$}"),
                false if last => cell.to_string(),
                false => format!("{cell:<width$}"),
            }
        });
        format!("  {}\n", set.collect::<Vec<_>>().join("  "))
    };
    let mut out = String::new();
    if !table.head.is_empty() {
        out += &line(table.head.clone());
    }
    table.rows.iter().for_each(|row| out += &line(row.iter().map(String::as_str).collect()));
    out
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// A head, and a line a row, each column as wide as its widest cell. A column that is empty throughout is left out.
pub fn text_table(columns: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let shown: Vec<usize> =
        (0..columns.len()).filter(|column| rows.iter().any(|row| !row[*column].is_empty())).collect();
    let length = |text: &str| text.chars().count();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| length(&row[column]));
        cells.chain([length(columns[column].0)]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = shown.iter().map(|column| width(*column)).collect();
    let line = |cell: &dyn Fn(usize) -> String| {
        let cells: Vec<String> = shown
            .iter()
            .zip(&widths)
            .map(|(column, width)| match columns[*column].1 {
                Align::Left => format!("{:<width$}", cell(*column)),
                Align::Right => format!("{:>width$}", cell(*column)),
            })
            .collect();
        cells.join("  ").trim_end().to_string() + "\n"
    };
    let head = line(&|column| columns[column].0.to_string());
    rows.iter().fold(head, |text, row| text + &line(&|column| row[column].clone()))
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
        assert!(!table("1.40 ms a step, 0.47 ms at the roof").is_numeric(0));
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
