//! Bounds the size of answers: long lists and texts are cut, and the answer says where and how to get the rest.

use std::collections::VecDeque;

use anyhow::{Context, Result, bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Bytes of an answer as compact JSON: about eight thousand tokens.
pub const BYTES: usize = 32_000;
pub const LEAST_BYTES: usize = 2_000;
pub const MOST_BYTES: usize = 1_000_000;

/// Lists of up to this many items are never cut: intervals, shapes.
const SHORT_LIST: usize = 4;
/// Texts of up to this many bytes are never cut.
const SHORT_TEXT: usize = 200;
/// The most cut places that one answer names.
const MOST_PLACES: usize = 24;

/// The part of a document that is asked for.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
pub struct Page {
    /// Only this part of the document: a JSON pointer such as `/findings/0` or `/measures/operators/rows`
    pub at: Option<String>,
    /// With `at`: skip this many items of that list, or bytes of that text
    pub from: Option<usize>,
    /// Maximum size of the answer in bytes, 2000 to 1000000; 32000 by default. Longer lists are cut, and `cut` says where
    pub max_bytes: Option<usize>,
}

/// The answer of a tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// As `headroom … --format json` prints it; lists may be shorter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document: Option<Value>,
    /// The part that `at` asked for, instead of the document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<Value>,
    pub cut: Vec<Cut>,
    /// Further places that were cut and are not in the list.
    #[serde(skip_serializing_if = "is_zero")]
    pub cut_elsewhere: usize,
    /// How to get the parts that were cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more: Option<String>,
    /// Lines that the command wrote for people.
    pub notes: Vec<String>,
    /// 0: done; 1: the answer is no (a limit was exceeded, something was found); 2: something could not be read.
    pub exit_code: i32,
}

/// A place where something was left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cut {
    /// A JSON pointer into the document.
    pub at: String,
    pub shown: usize,
    pub of: usize,
    /// `items` of a list, `bytes` of a text, `bytes` of a part that is left out entirely.
    pub unit: &'static str,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl Page {
    /// Takes its own keys out of a tool's arguments.
    pub fn take(arguments: &mut Map<String, Value>) -> Result<Page> {
        let mut own = Map::new();
        for key in ["at", "from", "max_bytes"] {
            own.extend(arguments.remove(key).map(|value| (key.to_string(), value)));
        }
        let page: Page = serde_json::from_value(Value::Object(own))?;
        if let Some(bytes) = page.max_bytes {
            ensure!(
                (LEAST_BYTES..=MOST_BYTES).contains(&bytes),
                "max_bytes is {bytes}\n  help: {LEAST_BYTES} to {MOST_BYTES}"
            );
        }
        ensure!(page.from.is_none() || page.at.is_some(), "`from` needs `at`, which names its list or text");
        Ok(page)
    }

    /// The answer, cut to fit.
    pub fn of(&self, document: Value, notes: Vec<String>, exit_code: i32) -> Result<Answer> {
        let whole = match &self.at {
            None => Asked { value: document, at: String::new(), from: 0, is_part: false },
            Some(at) => part(document, at, self.from.unwrap_or(0))?,
        };
        let most = self.max_bytes.unwrap_or(BYTES);
        Ok(whole.fitted(most, &shorter_notes(notes, most / 4), exit_code))
    }
}

/// A document or a part of it, before it is cut.
struct Asked {
    value: Value,
    at: String,
    from: usize,
    is_part: bool,
}

fn part(document: Value, at: &str, from: usize) -> Result<Asked> {
    let mut value = document;
    let found = value.pointer_mut(at).map(Value::take);
    let help = || match parent_of(at).and_then(|parent| value.pointer(parent)).unwrap_or(&value) {
        Value::Object(keys) => format!("there are {}", keys.keys().cloned().collect::<Vec<_>>().join(", ")),
        Value::Array(items) => format!("that list has {} items, counted from 0", items.len()),
        _ => "that is neither an object nor a list".to_string(),
    };
    let mut value = found.with_context(|| format!("there is nothing at `{at}` of the document\n  help: {}", help()))?;
    match &mut value {
        Value::Array(items) => drop(items.drain(..from.min(items.len()))),
        Value::String(text) => {
            let start = (from.min(text.len())..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
            text.drain(..start);
        }
        _ if from > 0 => bail!("`from` is a position in a list or a text, and `{at}` is neither"),
        _ => {}
    }
    Ok(Asked { value, at: at.to_string(), from, is_part: true })
}

fn parent_of(at: &str) -> Option<&str> {
    at.rfind('/').map(|end| &at[..end])
}

impl Asked {
    /// Cuts lists to as many items as fit, all to the same number; then texts; in the end only the names of parts
    /// remain.
    fn fitted(&self, most: usize, notes: &[String], exit_code: i32) -> Answer {
        let answer = |lists: usize, texts: usize| {
            let mut value = self.value.clone();
            let mut cut = Cuts::new(self);
            cut.shorten(&mut value, &self.at, lists, texts);
            self.answer(Some(value), cut, notes, exit_code)
        };
        let fits = |answer: &Answer| serde_json::to_string(answer).is_ok_and(|text| text.len() <= most);
        let whole = answer(usize::MAX, usize::MAX);
        if fits(&whole) {
            return whole;
        }
        let longest = longest(&self.value);
        let least = answer(SHORT_LIST, usize::MAX);
        if fits(&least) {
            return largest(SHORT_LIST, longest, |lists| Some(answer(lists, usize::MAX)).filter(fits)).unwrap_or(least);
        }
        let least = answer(SHORT_LIST, SHORT_TEXT);
        if fits(&least) {
            return largest(SHORT_TEXT, most, |texts| Some(answer(SHORT_LIST, texts)).filter(fits)).unwrap_or(least);
        }
        // A list or text that was requested directly may be cut below the usual minimum.
        if let Value::Array(_) | Value::String(_) = self.value
            && let Some(found) = largest(0, SHORT_LIST, |lists| Some(answer(lists, SHORT_TEXT)).filter(fits))
        {
            return found;
        }
        let mut cut = Cuts::of_parts(self);
        loop {
            let answer = self.answer(None, cut.clone(), notes, exit_code);
            if fits(&answer) || cut.places.pop().is_none() {
                return answer;
            }
            cut.elsewhere += 1;
        }
    }

    fn answer(&self, value: Option<Value>, cut: Cuts, notes: &[String], exit_code: i32) -> Answer {
        let more = cut.places.first().map(|first| {
            let next = self.next(first);
            format!("ask again with at={} {next}or with a larger max_bytes (at most {MOST_BYTES})", quoted(&first.at))
        });
        let (document, part) = if self.is_part { (None, value) } else { (value, None) };
        let Cuts { places, elsewhere, .. } = cut;
        Answer { document, part, cut: places, cut_elsewhere: elsewhere, more, notes: notes.to_vec(), exit_code }
    }

    fn next(&self, first: &Cut) -> String {
        let from = first.shown + if first.at == self.at { self.from } else { 0 };
        if from > 0 { format!("and from={from}, ") } else { String::new() }
    }
}

fn quoted(at: &str) -> String {
    format!("\"{at}\"")
}

/// The answer for the largest number in the range that has one; answers grow with the number.
fn largest(least: usize, most: usize, answer: impl Fn(usize) -> Option<Answer>) -> Option<Answer> {
    let (mut low, mut high) = (least, most.max(least));
    let mut found = answer(low)?;
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match answer(middle) {
            Some(better) => (found, low) = (better, middle),
            None => high = middle - 1,
        }
    }
    Some(found)
}

/// The length of the longest list.
fn longest(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(longest).max().unwrap_or(0).max(items.len()),
        Value::Object(entries) => entries.values().map(longest).max().unwrap_or(0),
        _ => 0,
    }
}

#[derive(Clone, Default)]
struct Cuts {
    places: Vec<Cut>,
    elsewhere: usize,
    /// Where the requested part begins, and how many of its items or bytes were skipped.
    root: (String, usize),
}

impl Cuts {
    fn new(asked: &Asked) -> Cuts {
        Cuts { root: (asked.at.clone(), asked.from), ..Cuts::default() }
    }

    /// Every direct part with its size, for when not even the shortest form fits.
    fn of_parts(asked: &Asked) -> Cuts {
        let mut cuts = Cuts::new(asked);
        let mut parts: VecDeque<(String, &Value)> = match &asked.value {
            Value::Object(entries) => {
                entries.iter().map(|(key, value)| (format!("{}/{}", asked.at, escaped(key)), value)).collect()
            }
            other => [(asked.at.clone(), other)].into(),
        };
        while let Some((at, value)) = parts.pop_front() {
            cuts.add(at, 0, serde_json::to_string(value).map_or(0, |text| text.len()), "bytes");
        }
        cuts
    }

    fn add(&mut self, at: String, shown: usize, left: usize, unit: &'static str) {
        let before = if at == self.root.0 { self.root.1 } else { 0 };
        if self.places.len() < MOST_PLACES {
            self.places.push(Cut { at, shown, of: before + left, unit });
        } else {
            self.elsewhere += 1;
        }
    }

    fn shorten(&mut self, value: &mut Value, at: &str, lists: usize, texts: usize) {
        match value {
            Value::Array(items) => {
                if items.len() > lists {
                    self.add(at.to_string(), lists, items.len(), "items");
                    items.truncate(lists);
                }
                for (index, item) in items.iter_mut().enumerate() {
                    // Indices in a part that starts late are those of the whole.
                    let index = index + if at == self.root.0 { self.root.1 } else { 0 };
                    self.shorten(item, &format!("{at}/{index}"), lists, texts);
                }
            }
            Value::Object(entries) => {
                for (key, item) in entries.iter_mut() {
                    self.shorten(item, &format!("{at}/{}", escaped(key)), lists, texts);
                }
            }
            Value::String(text) if text.len() > texts => {
                let end = (0..=texts).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
                self.add(at.to_string(), end, text.len(), "bytes");
                text.truncate(end);
            }
            _ => {}
        }
    }
}

/// Escapes a key for a JSON pointer.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The last lines that fit into `bytes`.
fn shorter_notes(notes: Vec<String>, bytes: usize) -> Vec<String> {
    let mut left = bytes;
    let kept = notes.iter().rev().take_while(|note| {
        let fits = note.len() + 3 <= left;
        left = left.saturating_sub(note.len() + 3);
        fits
    });
    let first = notes.len() - kept.count();
    notes[first..].to_vec()
}

#[cfg(test)]
#[path = "bounds_tests.rs"]
mod tests;
