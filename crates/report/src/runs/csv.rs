//! Runs as comma-separated values: a column for every plain field, configuration and figure.

use headroom_record::registry::RunRow;
use serde_json::Value;

/// Nested objects become dotted columns; a list goes into one cell, separated by spaces.
pub fn csv(runs: &[RunRow]) -> String {
    let flat: Vec<Vec<(String, String)>> = runs
        .iter()
        .map(|run| {
            let mut cells = vec![];
            flatten("", &serde_json::to_value(run).unwrap_or_default(), &mut cells);
            cells
        })
        .collect();
    let mut columns: Vec<&str> = vec![];
    for (column, _) in flat.iter().flatten() {
        if !columns.contains(&column.as_str()) {
            columns.push(column);
        }
    }
    let mut out = columns.iter().map(|column| quoted(column)).collect::<Vec<_>>().join(",") + "\n";
    for cells in &flat {
        let cell = |column: &&str| cells.iter().find(|(name, _)| name == column).map_or("", |(_, value)| value);
        out += &(columns.iter().map(|column| quoted(cell(column))).collect::<Vec<_>>().join(",") + "\n");
    }
    out
}

fn flatten(key: &str, value: &Value, cells: &mut Vec<(String, String)>) {
    match value {
        Value::Object(entries) => {
            for (name, entry) in entries {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                flatten(&key, entry, cells);
            }
        }
        Value::Array(elements) => {
            let words: Vec<String> = elements.iter().map(plain).collect();
            cells.push((key.into(), words.join(" ")));
        }
        leaf => cells.push((key.into(), plain(leaf))),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn quoted(cell: &str) -> String {
    match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nested_values_are_dotted_columns_and_odd_text_is_quoted() {
        let mut cells = vec![];
        flatten("", &json!({"a": {"b": 1.5, "c": null}, "d": ["x", 2]}), &mut cells);
        let want = [("a.b", "1.5"), ("a.c", ""), ("d", "x 2")].map(|(key, value)| (key.into(), value.into()));
        assert_eq!(cells, want);
        assert_eq!(quoted("a \"b\", c"), "\"a \"\"b\"\", c\"");
    }
}
