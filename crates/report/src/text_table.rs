//! Columns of plain text for a terminal.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_empty_ones_are_left_out() {
        let columns = [("size", Align::Left), ("none", Align::Left), ("MiB", Align::Right)];
        let row = |size: &str, mib: &str| vec![size.to_string(), String::new(), mib.to_string()];
        let text = text_table(&columns, &[row("tiny", "106"), row("small", "7")]);
        assert_eq!(text, "size   MiB\ntiny   106\nsmall    7\n");
    }
}
