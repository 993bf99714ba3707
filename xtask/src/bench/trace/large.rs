//! A large trace in the shape of a real one: its events repeated, each round later in time and with its own ids.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, Result};

/// Offset of ids between rounds: above any id in the trace that is repeated.
const SHIFTS: &[(&str, u64)] = &[
    ("\"External id\": ", 20_000),
    ("\"correlation\": ", 20_000),
    ("\"id\": ", 20_000),
    ("\"Sequence number\": ", 10_000),
    ("\"Python id\": ", 20_000),
    ("\"Python parent id\": ", 20_000),
    ("\"Ev Idx\": ", 30_000),
    ("ProfilerStep#", 3),
];

/// Writes at least `bytes` of trace to `path`, generated from the compressed trace at `from`.
pub fn write(from: &Path, path: &Path, bytes: u64) -> Result<()> {
    let mut text = String::new();
    let file = File::open(from).with_context(|| format!("cannot open {}", from.display()))?;
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).context("cannot unpack the trace")?;
    let open = text.find("\"traceEvents\": [").context("the trace has no events")? + "\"traceEvents\": [".len();
    let close = text.rfind("\n  ]").context("the list of events does not end")?;
    let (head, events, tail) = (&text[..open], &text[open..close], &text[close..]);
    let pieces = pieces(events);
    let file = File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    out.write_all(head.as_bytes())?;
    let rounds = bytes.div_ceil(events.len() as u64);
    for round in 0..rounds {
        if round > 0 {
            out.write_all(b",")?;
        }
        for piece in &pieces {
            match piece {
                Piece::Text(text) => out.write_all(text.as_bytes())?,
                Piece::Number { value, shift } => write!(out, "{}", value + round * shift)?,
                // The real trace lasts 141 ms from its first event to its last.
                Piece::Time { nanos } => {
                    let nanos = nanos + round * 150_000_000;
                    write!(out, "{}.{:03}", nanos / 1000, nanos % 1000)?;
                }
            }
        }
    }
    out.write_all(tail.as_bytes())?;
    out.flush()?;
    Ok(())
}

#[derive(Debug, PartialEq)]
enum Piece<'a> {
    Text(&'a str),
    Number { value: u64, shift: u64 },
    Time { nanos: u64 },
}

/// The text split at the numbers that must differ between rounds.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut from = 0;
    let mut at = 0;
    while let Some(found) = text[at..].find(['"', '#']) {
        at += found;
        let rest = &text[at..];
        let found = if let Some(rest) = rest.strip_prefix("\"ts\": ") {
            number(rest).map(|(whole, length)| {
                let decimals = rest[length..].strip_prefix('.').and_then(number).filter(|(_, digits)| *digits == 3);
                let thousandths = decimals.map_or(0, |(value, _)| value);
                let length = length + decimals.map_or(0, |(_, digits)| digits + 1);
                ("\"ts\": ".len(), length, Piece::Time { nanos: whole * 1000 + thousandths })
            })
        } else {
            SHIFTS.iter().find_map(|(key, shift)| {
                // The step's number follows its name, and the scan stopped at the name's `#`.
                let key = if key.ends_with('#') { "#" } else { key };
                let (value, length) = number(rest.strip_prefix(key)?)?;
                let is_step = key != "#" || text[..at].ends_with("ProfilerStep");
                is_step.then_some((key.len(), length, Piece::Number { value, shift: *shift }))
            })
        };
        match found {
            Some((key, length, piece)) => {
                pieces.push(Piece::Text(&text[from..at + key]));
                pieces.push(piece);
                at += key + length;
                from = at;
            }
            None => at += 1,
        }
    }
    pieces.push(Piece::Text(&text[from..]));
    pieces
}

/// The number at the start of `text` and its count of digits.
fn number(text: &str) -> Option<(u64, usize)> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    text[..length].parse().ok().map(|value| (value, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_ids_and_step_numbers_are_taken_out_and_nothing_else() {
        let text = r#"{"name": "ProfilerStep#5", "ts": 12.345, "x": 9, "args": {"External id": 7, "a#3": 1}}"#;
        let found = pieces(text);
        let want = [
            Piece::Text("{\"name\": \"ProfilerStep#"),
            Piece::Number { value: 5, shift: 3 },
            Piece::Text("\", \"ts\": "),
            Piece::Time { nanos: 12_345 },
            Piece::Text(", \"x\": 9, \"args\": {\"External id\": "),
            Piece::Number { value: 7, shift: 20_000 },
            Piece::Text(", \"a#3\": 1}}"),
        ];
        assert_eq!(found, want);
    }
}
