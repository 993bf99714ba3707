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
        Some(other) => {
            let help = chat_help(column, &other).map_or(String::new(), |help| format!("\n  help: {help}"));
            Err(format!("has {} in the column `{column}`, not text{help}", kind(&other)))
        }
        None => Err(format!("has no column `{column}`{}", instead(&row))),
    }
}

/// Keys under which chats are stored.
const CHATS: [&str; 2] = ["messages", "conversations"];

/// Keys that hold a question and its answer.
const PAIRS: [(&str, &str); 3] = [("prompt", "completion"), ("instruction", "output"), ("question", "answer")];

/// Describes the line that lacks the column, and how it becomes text.
fn instead(row: &Map<String, Value>) -> String {
    let chat = CHATS.iter().find_map(|key| Some((key, chat_help(key, row.get(*key)?)?)));
    if let Some((key, help)) = chat {
        return format!(" but a chat in `{key}`, and a document is one text\n  help: {help}");
    }
    let is_text = |key: &str| row.get(key).is_some_and(Value::is_string);
    if let Some((first, second)) = PAIRS.iter().find(|(first, second)| is_text(first) && is_text(second)) {
        return format!(
            " but a pair, `{first}` and `{second}`, and a document is one text\n  help: join them: jq -c '{{text: \
             (.{first} + \"\\n\" + .{second})}}' FILE; --text-column {second} reads one of them alone"
        );
    }
    let texts: Vec<&str> =
        row.iter().filter(|(_, value)| value.is_string()).map(|(key, _)| key.as_str()).take(MOST_KEYS).collect();
    if !texts.is_empty() {
        return format!("\n  help: --text-column names one of {}", texts.join(", "));
    }
    let keys: Vec<String> =
        row.iter().map(|(key, value)| format!("`{key}` ({})", kind(value))).take(MOST_KEYS).collect();
    match keys[..] {
        [] => "\n  help: every line is an object with its text, such as {\"text\": \"Once upon a time\"}".into(),
        _ => format!(", and nothing in it is text: it has {}", keys.join(", ")),
    }
}

/// Keys that an error names at most.
const MOST_KEYS: usize = 8;

/// How a chat becomes text; `None` if the value is not a list of messages.
fn chat_help(key: &str, value: &Value) -> Option<String> {
    let messages = value.as_array()?;
    // `{"role", "content"}`, or `{"from", "value"}` in older files.
    let field = ["content", "value"].into_iter().find(|field| messages.iter().any(|one| one.get(field).is_some()))?;
    Some(format!(
        "write every chat as one text, with the model's chat template (transformers' apply_chat_template, \
         tokenize=False) or plainly: jq -c '{{text: [.{key}[].{field}] | join(\"\\n\")}}' FILE"
    ))
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
