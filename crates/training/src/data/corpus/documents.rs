//! Documents from files: a text file is one document, and so is each line of a JSONL file.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use headroom_record::atomic::FileError;
use headroom_record::reading;
use serde_json::{Map, Value};

use super::super::DataError;
use super::super::pieces::read_text;
use super::files::DataFile;

/// A longer line is refused: it is not a document and would not fit into memory.
const MOST_LINE_BYTES: u64 = 1 << 30;

/// Receives every document: its text in pieces, then its end.
pub trait Take<E> {
    fn text(&mut self, piece: &str) -> Result<(), E>;
    fn end(&mut self) -> Result<(), E>;
}

pub fn read<E: From<DataError>>(file: &DataFile, column: &str, take: &mut impl Take<E>) -> Result<(), E> {
    match file.is_jsonl {
        true => read_lines(&file.path, column, take),
        false => {
            let mut done = 0;
            read_text(
                &file.path,
                |position| not_text(&file.path, position, "not UTF-8"),
                |piece| {
                    if let Some(zero) = piece.bytes().position(|byte| byte == 0) {
                        return Err(not_text(&file.path, done + zero as u64, "0").into());
                    }
                    done += piece.len() as u64;
                    take.text(piece)
                },
            )?;
            take.end()
        }
    }
}

fn not_text(path: &Path, position: u64, what: &'static str) -> DataError {
    let folder = path.parent().unwrap_or(Path::new(".")).to_path_buf();
    DataError::NotTextAmongFiles { path: path.to_path_buf(), position, what, folder }
}

fn read_lines<E: From<DataError>>(path: &Path, column: &str, take: &mut impl Take<E>) -> Result<(), E> {
    let reading = |source| DataError::from(FileError::new("read", path)(source));
    let mut lines = BufReader::new(reading::open(path).map_err(reading)?);
    let mut line = vec![];
    for number in 1.. {
        line.clear();
        if (&mut lines).take(MOST_LINE_BYTES).read_until(b'\n', &mut line).map_err(reading)? == 0 {
            break;
        }
        if line.len() as u64 == MOST_LINE_BYTES {
            let why = format!("is longer than {MOST_LINE_BYTES} bytes, and a line is read whole");
            return Err(DataError::BadLine { path: path.to_path_buf(), line: number, why }.into());
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let text = text_of(&line, column);
        take.text(&text.map_err(|why| DataError::BadLine { path: path.to_path_buf(), line: number, why })?)?;
        take.end()?;
    }
    Ok(())
}

/// The text column of a line, or why there is none.
fn text_of(line: &[u8], column: &str) -> Result<String, String> {
    let mut row: Map<String, Value> =
        serde_json::from_slice(line).map_err(|error| format!("is not a JSON object: {error}"))?;
    match row.remove(column) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(format!("has {} in the column `{column}`, not text", kind(&other))),
        None => {
            let texts: Vec<&str> =
                row.iter().filter(|(_, value)| value.is_string()).map(|(key, _)| key.as_str()).take(8).collect();
            let help = match texts[..] {
                [] => "it has no text at all".to_string(),
                _ => format!("--text-column names one of {}", texts.join(", ")),
            };
            Err(format!("has no column `{column}`\n  help: {help}"))
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
