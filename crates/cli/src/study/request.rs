//! The request for a study: sizes, versions and settings, checked before anything runs.

use super::Arguments;
use anyhow::{bail, ensure};
use headroom_engine::machine::Machine;
use headroom_graph::passes::PassList;
use headroom_record::study::StudyRequest;
use headroom_training::models::{SIZES, Size};

/// Stands for the workshop's sizes; nano is for trying things out.
const ALL: &str = "all";
const DEFAULT_SIZES: [&str; 2] = ["tiny", "small"];
const DEFAULT_VERSION: &str = "v2";

pub fn request(arguments: &Arguments) -> anyhow::Result<StudyRequest> {
    Ok(StudyRequest {
        sizes: sizes(&arguments.sizes)?,
        versions: versions(arguments.versions.as_deref().unwrap_or(DEFAULT_VERSION))?,
        enable_profilers: arguments.enable_profilers,
        num_steps: arguments.num_steps,
        device: arguments.device.clone().unwrap_or("cpu".into()),
        precision: arguments.precision.clone(),
        threads: arguments.threads.map_or_else(|| Machine::detect().cores as u64, u64::from),
        memory_limit: arguments.memory_limit.clone(),
        batch_size: arguments.batch_size,
        seq_len: arguments.seq_len,
    })
}

/// Refuses flags that contradict the study being resumed; omitted flags are taken from it.
pub fn check_same(arguments: &Arguments, study: &StudyRequest) -> anyhow::Result<()> {
    let asked = request(arguments)?;
    let mut differences = vec![];
    let mut differ = |flag: &str, given: bool, same: bool| {
        if given && !same {
            differences.push(flag.to_string());
        }
    };
    differ("sizes", !arguments.sizes.is_empty(), asked.sizes == study.sizes);
    differ("--versions", arguments.versions.is_some(), asked.versions == study.versions);
    differ("--enable-profilers", arguments.enable_profilers, study.enable_profilers);
    differ("--num-steps", arguments.num_steps.is_some(), asked.num_steps == study.num_steps);
    differ("--batch-size", arguments.batch_size.is_some(), asked.batch_size == study.batch_size);
    differ("--seq-len", arguments.seq_len.is_some(), asked.seq_len == study.seq_len);
    differ("--device", arguments.device.is_some(), asked.device == study.device);
    differ("--precision", arguments.precision.is_some(), asked.precision == study.precision);
    differ("--threads", arguments.threads.is_some(), asked.threads == study.threads);
    differ("--memory-limit", arguments.memory_limit.is_some(), asked.memory_limit == study.memory_limit);
    if !differences.is_empty() {
        bail!(
            "the study to resume was started with other {}\n  help: leave them out, or start a new study without --resume",
            differences.join(", ")
        );
    }
    Ok(())
}

fn sizes(named: &[String]) -> anyhow::Result<Vec<String>> {
    let table: Vec<&str> = SIZES.iter().map(|size| size.name).collect();
    if named.is_empty() {
        return Ok(DEFAULT_SIZES.map(String::from).to_vec());
    }
    let mut sizes: Vec<String> = vec![];
    for name in named.iter().flat_map(|name| name.split(',')) {
        let meant: Vec<&str> = match name {
            ALL => table.iter().copied().filter(|name| *name != "nano").collect(),
            name if Size::named(name).is_some() => vec![name],
            _ => bail!("there is no size `{name}`\n  help: choose from {}, or all", table.join(", ")),
        };
        sizes.extend(meant.into_iter().map(String::from));
    }
    // In table order, each once: the analysis reads from small to large.
    Ok(table.into_iter().filter(|name| sizes.iter().any(|size| size == name)).map(String::from).collect())
}

fn versions(list: &str) -> anyhow::Result<Vec<String>> {
    let mut versions: Vec<String> = vec![];
    for version in list.split(',').map(str::trim) {
        ensure!(!version.is_empty(), "--versions {list} has an empty name in it\n  help: such as v1,v2,all");
        PassList::parse(&passes_of(version)).map_err(anyhow::Error::msg)?;
        if !versions.iter().any(|known| known == version) {
            versions.push(version.into());
        }
    }
    Ok(versions)
}

/// `v2+fuse-loss` as `--passes` takes it.
pub fn passes_of(version: &str) -> String {
    version.replace('+', ",+")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn sizes_come_in_the_tables_order_each_once() {
        assert_eq!(sizes(&owned(&["small", "tiny,small"])).unwrap(), ["tiny", "small"]);
        assert_eq!(sizes(&owned(&["all"])).unwrap(), ["tiny", "small", "medium", "large", "very_large"]);
        assert_eq!(sizes(&[]).unwrap(), DEFAULT_SIZES);
        assert!(sizes(&owned(&["huge"])).unwrap_err().to_string().contains("there is no size `huge`"));
    }

    #[test]
    fn versions_are_lists_of_passes() {
        assert_eq!(versions("v1, v2,v1,all").unwrap(), ["v1", "v2", "all"]);
        assert_eq!(passes_of(&versions("v2+fuse-loss").unwrap()[0]), "v2,+fuse-loss");
        for bad in ["", "v1,,v2", "v9"] {
            assert!(versions(bad).is_err(), "{bad:?}");
        }
    }
}
