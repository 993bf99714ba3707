//! `--config run.toml`: reads flags of `train` from a file, by their long names.

use crate::output::colour::place_of_command;
use anyhow::{Context, bail};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use headroom_record::reading;
use std::ffi::OsString;
use std::path::Path;
use toml::Value;

/// The file that every run writes.
pub const RUN_FILE: &str = "run.toml";

/// Flags given on the command line or in a file: the name, and the value if it takes one.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// `train` or `profile`.
    pub command: String,
    pub flags: Vec<(String, Option<String>)>,
}

impl Given {
    pub fn of(command: &Command, matches: &ArgMatches) -> Given {
        let mut flags = vec![];
        for argument in command.get_arguments() {
            let (id, Some(name)) = (argument.get_id().as_str(), argument.get_long()) else { continue };
            // Flags of every command (`--color`) are about this terminal.
            if matches.value_source(id) != Some(ValueSource::CommandLine) || argument.is_global_set() {
                continue;
            }
            let last = matches.get_raw(id).and_then(|mut values| values.next_back());
            let value = last.map(|value| value.to_string_lossy().into_owned()).filter(|_| takes_value(argument));
            flags.push((name.to_string(), value));
        }
        Given { command: command.get_name().into(), flags }
    }
}

fn takes_value(argument: &Arg) -> bool {
    !matches!(argument.get_action(), ArgAction::SetTrue)
}

/// The command line with the flags of its `--config` inserted before its own, if it has one. A command-line flag wins
/// over the file's, and over those that it conflicts with.
pub fn expanded(words: Vec<OsString>, command: &Command) -> anyhow::Result<Vec<OsString>> {
    let place = place_of_command(&words);
    let Some((at, command)) = words
        .get(place)
        .and_then(|name| command.find_subcommand(name))
        .filter(|command| command.get_arguments().any(|argument| argument.get_id() == "config"))
        .map(|command| (place + 1, command))
    else {
        return Ok(words);
    };
    let Some(path) = config_of(&words[at..]) else { return Ok(words) };
    let path = Path::new(&path);
    let text = reading::read_text(path, reading::SETTINGS)
        .with_context(|| format!("cannot read --config {}", path.display()))?;
    let table: toml::Table =
        toml::from_str(&text).with_context(|| format!("--config {} is not TOML", path.display()))?;
    let own: Vec<&Arg> =
        words[at..].iter().filter_map(|word| named(command, word.to_str()?.strip_prefix("--")?)).collect();
    let mut expanded = words[..at].to_vec();
    for (key, value) in &table {
        let argument = find(command, key).with_context(|| format!("--config {}", path.display()))?;
        let loses = |other: &&Arg| {
            other.get_id() == argument.get_id()
                || conflict(command, other, argument)
                || conflict(command, argument, other)
        };
        if !own.iter().any(loses) {
            let word = word_of(key, argument, value).with_context(|| format!("--config {}", path.display()))?;
            expanded.extend(word.map(OsString::from));
        }
    }
    expanded.extend_from_slice(&words[at..]);
    Ok(expanded)
}

/// The last `--config` on the command line.
fn config_of(words: &[OsString]) -> Option<OsString> {
    let mut found = None;
    for (at, word) in words.iter().enumerate() {
        match word.to_str() {
            Some("--") => break,
            Some("--config") => found = words.get(at + 1).cloned(),
            Some(word) => found = word.strip_prefix("--config=").map(OsString::from).or(found),
            None => {}
        }
    }
    found
}

/// The argument with a flag's name, with or without a value after it.
fn named<'a>(command: &'a Command, flag: &str) -> Option<&'a Arg> {
    let name = flag.split('=').next().unwrap_or(flag);
    command.get_arguments().find(|argument| {
        argument.get_long() == Some(name) || argument.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
    })
}

fn conflict(command: &Command, one: &Arg, other: &Arg) -> bool {
    command.get_arg_conflicts_with(one).iter().any(|found| found.get_id() == other.get_id())
}

fn find<'a>(command: &'a Command, key: &str) -> anyhow::Result<&'a Arg> {
    let name = key.replace('_', "-");
    if let Some(argument) = named(command, &name).filter(|argument| argument.get_id() != "config") {
        return Ok(argument);
    }
    let names = command.get_arguments().filter_map(Arg::get_long).filter(|name| *name != "config" && *name != "help");
    let nearest = names.min_by_key(|other| distance(&name, other)).unwrap_or("size");
    bail!(
        "there is no flag `{key}`\n  help: did you mean `{nearest}`? `headroom {} --help` lists all",
        command.get_name()
    )
}

/// A key and its value as one word; `None` for a switch that is off.
fn word_of(key: &str, argument: &Arg, value: &Value) -> anyhow::Result<Option<String>> {
    let name = argument.get_long().unwrap_or(key);
    if !takes_value(argument) {
        return match value {
            Value::Boolean(on) => Ok(on.then(|| format!("--{name}"))),
            other => bail!("`{key}` is true or false, not {other}"),
        };
    }
    let text = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(_) => bail!("`{key}` takes a value, not true or false"),
        Value::Table(_) => {
            bail!(
                "`{key}` is a table, and every key must be the name of a flag\n  help: write it above the first [table]"
            )
        }
        Value::Array(_) | Value::Datetime(_) => bail!("`{key}` takes a text or a number, not {value}"),
    };
    Ok(Some(match value {
        Value::Array(parts) => {
            let parts: Vec<String> = parts.iter().map(text).collect::<anyhow::Result<_>>()?;
            format!("--{name}={}", parts.join(","))
        }
        other => format!("--{name}={}", text(other)?),
    }))
}

/// The edit distance between two words.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, theirs) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *theirs);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn command() -> Command {
        let switch = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
        let valued = |name: &'static str| Arg::new(name).long(name);
        Command::new("headroom").subcommand(Command::new("train").args([
            valued("config"),
            valued("num-steps"),
            valued("betas"),
            valued("n-layers").alias("num-layers"),
            switch("tied"),
            valued("init-from").conflicts_with("resume"),
            valued("resume"),
        ]))
    }

    fn expand(toml: &str, own: &str) -> anyhow::Result<Vec<String>> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("run.toml");
        fs::write(&path, toml)?;
        let mut words: Vec<OsString> = ["headroom", "train", "--config"].map(OsString::from).to_vec();
        words.push(path.into());
        words.extend(own.split_whitespace().map(OsString::from));
        let all = expanded(words, &command())?;
        Ok(all
            .into_iter()
            .filter_map(|word| word.into_string().ok())
            .filter(|word| !word.ends_with("run.toml"))
            .collect())
    }

    #[test]
    fn keys_are_flags_and_those_of_the_command_line_win() {
        let file = "num_steps = 5\nnum-layers = 2\ntied = true\nbetas = [0.9, 0.95]\nresume = \"ck\"";
        let words = expand(file, "").unwrap();
        assert_eq!(
            words,
            [
                "headroom",
                "train",
                "--betas=0.9,0.95",
                "--n-layers=2",
                "--num-steps=5",
                "--resume=ck",
                "--tied",
                "--config"
            ]
        );
        let words = expand(file, "--num-steps=7 --n-layers 3 --init-from other").unwrap();
        assert_eq!(words[2..5], ["--betas=0.9,0.95", "--tied", "--config"]);
        assert_eq!(expand("tied = false", "").unwrap().len(), 3);
    }

    #[test]
    fn a_key_that_is_no_flag_names_the_nearest_and_wrong_values_are_refused() {
        for (file, words) in [
            ("num-step = 5", &["no flag `num-step`", "`num-steps`"][..]),
            ("config = \"other.toml\"", &["no flag `config`"]),
            ("tied = 3", &["`tied` is true or false"]),
            ("num-steps = true", &["takes a value"]),
            ("[model]\nnum-steps = 3", &["no flag `model`"]),
            ("num-steps = ", &["not TOML"]),
        ] {
            let error = format!("{:#}", expand(file, "").unwrap_err());
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
    }
}
