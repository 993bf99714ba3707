//! How a result is shown: `--format`, and `--json` for short, alike on every command that prints one.

use crate::output;
use clap::ValueEnum;
use serde::Serialize;

/// Formats of a command; one of them is JSON.
pub trait Choice: ValueEnum + Copy + PartialEq + Send + Sync + 'static {
    const JSON: Self;
    /// The name of what is taken where nothing is asked for: a value would be kept by clap for every type at once.
    const USUAL: &'static str;
}

#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Shown<F: Choice> {
    /// How the result is shown; json stands alone on standard output
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
    /// An object per step that is reported and per evaluation, each on a line of its own, then the summary
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
