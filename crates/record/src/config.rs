//! `config.json`: the settings of a run, so that it can be identified and repeated.

use serde::{Deserialize, Serialize};

use crate::provenance::{Origin, Provenance};

pub const CONFIG_FILE: &str = "config.json";

/// The name of the naive graph, the baseline of every comparison.
pub const BASELINE_VERSION: &str = "v1_baseline";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfigRecord {
    pub schema_version: u32,
    /// See `version_of_passes`.
    pub version: String,
    /// Family of the model, by its display name.
    #[serde(default = "first_family")]
    pub family: String,
    pub size: String,
    pub timestamp: String,
    pub configuration: Configuration,
    pub profilers_enabled: ProfilersEnabled,
    pub command_line: Vec<String>,
    pub provenance: Provenance,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    pub hidden_dim: u64,
    pub num_layers: u64,
    pub num_heads: u64,
    pub num_kv_heads: u64,
    pub intermediate_dim: u64,
    pub vocab_size: u64,
    pub seq_len: u64,
    pub batch_size: u64,
    pub num_steps: u64,
    /// Number of parameters; tied weights count once.
    pub parameters: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfilersEnabled {
    pub trace: bool,
    pub flops: bool,
    pub memory: bool,
    pub operators: bool,
}

/// Default for files from before there were other families.
fn first_family() -> String {
    "LLaMA".into()
}

impl ConfigRecord {
    pub fn provenance() -> Provenance {
        Provenance::of(&[("configuration", Origin::Assumed), ("configuration.parameters", Origin::Computed)])
    }

    /// For a report that is shared: removes paths.
    pub fn redact(mut self) -> ConfigRecord {
        self.command_line = redact_arguments(self.command_line);
        self
    }
}

/// `v1_baseline` when no pass ran, the passes in order otherwise.
pub fn version_of_passes(passes: &[&str]) -> String {
    if passes.is_empty() {
        return BASELINE_VERSION.to_string();
    }
    passes.join(",")
}

const REDACTED: &str = "<redacted>";

/// Flags whose value is a path even when it holds no separator (`--save checkpoints`).
const PATH_FLAGS: [&str; 9] = [
    "--data",
    "--eval-data",
    "--init-from",
    "--output-dir",
    "--profile-dir",
    "--resume",
    "--save",
    "--source",
    "--tokenizer",
];

/// Values of `--data` and `--tokenizer` that name a generator or bytes, not a file.
const NOT_FILES: [&str; 3] = ["synthetic", "markov", "bytes"];

/// Arguments with every path replaced: the program's own, values of path flags, and anything with a separator in it.
fn redact_arguments(arguments: Vec<String>) -> Vec<String> {
    let mut arguments = arguments.into_iter();
    let program = arguments.next().map(|path| {
        let name = path.rsplit(['/', '\\']).next();
        name.unwrap_or_default().to_string()
    });
    let mut redacted = Vec::from_iter(program);
    let mut previous = String::new();
    for argument in arguments {
        redacted.push(match argument.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => {
                format!("{flag}={}", redact_value_of(flag, value))
            }
            _ => redact_value_of(&previous, &argument).to_string(),
        });
        previous = argument;
    }
    redacted
}

fn redact_value_of<'a>(flag: &str, value: &'a str) -> &'a str {
    let names_a_path = PATH_FLAGS.contains(&flag) && !NOT_FILES.contains(&value);
    if names_a_path || value.contains(['/', '\\']) {
        return REDACTED;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SCHEMA_VERSION;
    use crate::provenance::check_provenance;

    fn example() -> ConfigRecord {
        ConfigRecord {
            schema_version: SCHEMA_VERSION,
            version: version_of_passes(&[]),
            family: first_family(),
            size: "tiny".to_string(),
            timestamp: "2026-11-15T02:10:00Z".to_string(),
            configuration: Configuration {
                hidden_dim: 256,
                num_layers: 4,
                num_heads: 8,
                num_kv_heads: 4,
                intermediate_dim: 512,
                vocab_size: 1000,
                seq_len: 128,
                batch_size: 8,
                num_steps: 50,
                parameters: 2_873_600,
            },
            profilers_enabled: ProfilersEnabled::default(),
            command_line: ["/home/ada/headroom", "train", "--size", "tiny"].map(String::from).to_vec(),
            provenance: ConfigRecord::provenance(),
        }
    }

    #[test]
    fn the_file_has_every_key_its_readers_open() {
        let value = serde_json::to_value(example()).unwrap();
        for key in ["version", "size", "timestamp", "configuration", "profilers_enabled", "command_line"] {
            assert!(value.get(key).is_some(), "{key}");
        }
        for key in [
            "hidden_dim",
            "num_layers",
            "num_heads",
            "num_kv_heads",
            "intermediate_dim",
            "vocab_size",
            "seq_len",
            "batch_size",
            "num_steps",
            "parameters",
        ] {
            assert!(value["configuration"][key].is_u64(), "{key}");
        }
        assert_eq!(value["version"], "v1_baseline");
        check_provenance(&value).unwrap();
    }

    #[test]
    fn a_version_with_passes_is_their_list() {
        assert_eq!(version_of_passes(&["fuse-qkv", "fuse-loss"]), "fuse-qkv,fuse-loss");
    }

    #[test]
    fn redaction_leaves_out_paths_and_keeps_settings() {
        let check = |line: &str, want: &str| {
            let arguments = line.split(' ').map(String::from).collect();
            assert_eq!(redact_arguments(arguments).join(" "), want);
        };
        check("/home/ada/headroom train --size tiny", "headroom train --size tiny");
        check("headroom train --save kept --seed 1", "headroom train --save <redacted> --seed 1");
        check("headroom train --data=corpus.txt --seed=1", "headroom train --data=<redacted> --seed=1");
        check("headroom train --data markov --clip 1", "headroom train --data markov --clip 1");
        check("headroom analyze /srv/a.json b\\c.json", "headroom analyze <redacted> <redacted>");
    }
}
