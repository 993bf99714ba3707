//! The file that every run writes and from which it can be repeated: its flags, and the defaults it resolved.

use super::config_file::{Given, RUN_FILE};
use super::settings::{Settings, whole};
use crate::tokenizer::BYTES;
use anyhow::ensure;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::absolute;
use toml::Value;

/// Flags about where a run writes: another run needs its own places.
const PLACES: [&str; 11] = [
    "config",
    "output-dir",
    "profile-dir",
    "overwrite",
    "name",
    "save",
    "save-every",
    "save-dtype",
    "keep",
    "keep-best",
    "tensorboard",
];

/// The ones among them that are paths.
const WRITTEN: [&str; 5] = ["config", "output-dir", "profile-dir", "save", "tensorboard"];

/// Flags that hold the path of a file or folder to read.
const PATHS: [&str; 5] = ["data", "eval-data", "tokenizer", "init-from", "resume"];

/// All flags of a run, and the values it resolved for those not given.
pub fn text(given: &Given, settings: &Settings, redact: bool) -> anyhow::Result<String> {
    let mut keys: BTreeMap<String, Value> = BTreeMap::new();
    let mut set = |name: &str, text: &str| keys.insert(name.into(), value_of(text));
    if settings.size != "custom" && settings.resume.is_none() && settings.init_from.is_none() {
        set("size", &settings.size);
    }
    set("batch-size", &settings.shape.batch_size.to_string());
    set("seq-len", &settings.shape.seq_len.to_string());
    set("num-steps", &settings.last_step.to_string());
    set("learning-rate", &settings.optimizer.learning_rate.to_string());
    set("seed", &settings.seed.to_string());
    set("precision", settings.precision.name());
    set("device", settings.device.name());
    set("threads", &settings.threads.to_string());
    let goes_back =
        |(name, value): &(String, Option<String>)| name == "on-spike" && value.as_deref() == Some("go-back");
    let is_place = |flag: &(String, Option<String>)| PLACES.contains(&flag.0.as_str()) || goes_back(flag);
    let mut comments = vec![];
    for flag in &given.flags {
        let (name, value) = flag;
        let value = match value {
            None => Value::Boolean(true),
            Some(text) if PATHS.contains(&name.as_str()) => Value::String(whole_path(name, text)),
            Some(text) => value_of(text),
        };
        let names_path = WRITTEN.contains(&name.as_str()) || value.as_str().is_some_and(|text| text.contains('/'));
        let hidden = redact && names_path;
        match (is_place(flag), hidden) {
            (_, true) => comments.push(format!("# {name}: left out")),
            (true, false) if name == "config" => {}
            (true, false) => comments.push(format!("# {name} = {value}")),
            (false, false) => {
                keys.insert(name.clone(), value);
            }
        }
    }
    if keys.contains_key("use-amp") {
        keys.remove("precision");
    }
    let mut out =
        format!("# headroom {} --config {RUN_FILE} runs this again. Flags on the command line win.\n", given.command);
    for (name, value) in &keys {
        writeln!(out, "{name} = {value}")?;
    }
    if !comments.is_empty() {
        writeln!(out, "\n# Where this run wrote; another run needs its own folders:\n{}", comments.join("\n"))?;
    }
    ensure!(toml::from_str::<toml::Table>(&out).is_ok(), "the flags of this run cannot be written as TOML");
    Ok(out)
}

/// A number if it prints back as the same text, else a string.
fn value_of(text: &str) -> Value {
    match (text.parse::<i64>(), text.parse::<f64>()) {
        (Ok(number), _) if number.to_string() == text => Value::Integer(number),
        (_, Ok(number)) if number.is_finite() && number.to_string() == text => Value::Float(number),
        _ => Value::String(text.into()),
    }
}

fn whole_path(name: &str, given: &str) -> String {
    match name {
        "data" | "eval-data" => whole(given),
        "tokenizer" if given == BYTES => given.into(),
        _ => absolute(given).map_or(given.into(), |path| path.display().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_one_where_it_reads_back_the_same() {
        assert_eq!(value_of("42"), Value::Integer(42));
        assert_eq!(value_of("0.25"), Value::Float(0.25));
        for text in ["3e-4", "007", "+5", "nan", "1.", "a"] {
            assert_eq!(value_of(text), Value::String(text.into()));
        }
    }
}
