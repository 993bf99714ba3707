//! How a result is shown: `--format`, and `--json` for short, the same on every command that prints one.

use crate::output;
use clap::ValueEnum;
use serde::Serialize;

/// Formats of a command; one of them is JSON.
pub trait Choice: ValueEnum + Copy + PartialEq + Send + Sync + 'static {
    const JSON: Self;
    /// The name of the default: clap would cache one value for all types.
    const USUAL: &'static str;
}

#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Shown<F: Choice> {
    /// Format of the result; json is the only text on standard output
    #[arg(long, value_enum, default_value = F::USUAL)]
    format: F,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl<F: Choice> Shown<F> {
    pub fn format(&self) -> F {
        if self.json { F::JSON } else { self.format }
    }

    pub fn is_json(&self) -> bool {
        self.format() == F::JSON
    }
}

impl<F: Choice> From<F> for Shown<F> {
    fn from(format: F) -> Shown<F> {
        Shown { format, json: false }
    }
}

/// Formats of most commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Plain {
    Text,
    Json,
}

impl Choice for Plain {
    const JSON: Plain = Plain::Json;
    const USUAL: &'static str = "text";
}

/// Formats of a run that reports while it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stream {
    /// Configuration and summary; progress goes to stderr
    Text,
    /// One JSON object per line for each reported step and each evaluation, then the summary
    Json,
}

impl Choice for Stream {
    const JSON: Stream = Stream::Json;
    const USUAL: &'static str = "text";
}

impl Shown<Plain> {
    /// Prints the record as one JSON document, or as text for people.
    pub fn print<T: Serialize>(&self, record: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
        match self.format() {
            Plain::Json => output::result(&(serde_json::to_string_pretty(record)? + "\n"))?,
            Plain::Text => output::text(&text(record))?,
        }
        Ok(())
    }
}
