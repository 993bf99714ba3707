//! The machine that a figure was measured on, and the version it was measured with.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::process;

pub struct Machine {
    pub cpu: String,
    pub physical_cores: usize,
    pub logical_cores: usize,
}

pub fn machine() -> Machine {
    let logical_cores = std::thread::available_parallelism().map_or(1, usize::from);
    // Linux only; elsewhere the processor has no name and every logical core counts.
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    Machine {
        cpu: cpu_name(&cpuinfo).unwrap_or("unknown").to_string(),
        physical_cores: physical_cores(&cpuinfo).unwrap_or(logical_cores).min(logical_cores),
        logical_cores,
    }
}

impl Machine {
    pub fn to_json(&self) -> Value {
        json!({"cpu": self.cpu, "physical_cores": self.physical_cores, "logical_cores": self.logical_cores})
    }
}

/// `0.1.0 (commit 1a2b3c4)`, with a mark if the tree differs from the commit.
pub fn headroom_version() -> String {
    let git = |arguments: &[&str]| {
        process::capture("git", &[&["-c", "safe.directory=*"], arguments].concat()).map(|text| text.trim().to_string())
    };
    let commit = git(&["rev-parse", "--short", "HEAD"]).unwrap_or_else(|_| "unknown".to_string());
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_ok_and(|files| !files.is_empty());
    format!("{} (commit {commit}{})", env!("CARGO_PKG_VERSION"), if changed { ", changed" } else { "" })
}

/// In UTC, as `2026-01-31`.
pub fn today() -> String {
    process::capture("date", &["-u", "+%F"]).map_or_else(|_| "unknown".to_string(), |text| text.trim().to_string())
}

fn cpu_name(cpuinfo: &str) -> Option<&str> {
    values(cpuinfo, "model name").next()
}

/// Number of distinct (socket, core) pairs, which the hyper-threads of a core share.
fn physical_cores(cpuinfo: &str) -> Option<usize> {
    let cores: BTreeSet<(&str, &str)> = values(cpuinfo, "physical id").zip(values(cpuinfo, "core id")).collect();
    (!cores.is_empty()).then_some(cores.len())
}

fn values<'a>(cpuinfo: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(move |(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_THREADS_OF_ONE_CORE_AND_ANOTHER_SOCKET: &str = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nphysical id\t: 0\ncore id\t\t: 0\n\n\
         processor\t: 1\nmodel name\t: Some CPU @ 2 GHz\nphysical id\t: 0\ncore id\t\t: 0\n\n\
         processor\t: 2\nmodel name\t: Some CPU @ 2 GHz\nphysical id\t: 1\ncore id\t\t: 0\n";

    #[test]
    fn hyper_threads_count_once() {
        assert_eq!(physical_cores(TWO_THREADS_OF_ONE_CORE_AND_ANOTHER_SOCKET), Some(2));
        assert_eq!(physical_cores("processor: 0\n"), None);
    }

    #[test]
    fn the_processor_is_named() {
        assert_eq!(cpu_name(TWO_THREADS_OF_ONE_CORE_AND_ANOTHER_SOCKET), Some("Some CPU @ 2 GHz"));
    }
}
