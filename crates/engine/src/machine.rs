//! What this machine is: processor, memory, and what this process has used of it.

use std::fs;

#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    pub cpu_name: String,
    /// Cores that this process may use; two hyper-threads of one core count once.
    pub cores: usize,
    pub memory_total_bytes: u64,
}

impl Machine {
    pub fn detect() -> Machine {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let named = |key: &str| {
            let line = cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|name| name.trim() == key))?;
            line.split_once(':').map(|(_, value)| value.trim().to_string())
        };
        let logical = std::thread::available_parallelism().map_or(1, usize::from);
        Machine {
            cpu_name: named("model name").unwrap_or_else(|| format!("unknown {} processor", std::env::consts::ARCH)),
            cores: physical_cores(&cpuinfo).map_or(logical, |cores| cores.min(logical)).max(1),
            memory_total_bytes: meminfo("MemTotal").unwrap_or(0).min(cgroup_limit().unwrap_or(u64::MAX)),
        }
    }
}

/// Bytes that could be had now without swapping, within the limit of the control group if there is one.
pub fn memory_available_bytes() -> Option<u64> {
    let system = meminfo("MemAvailable")?;
    let group = cgroup_limit().zip(cgroup_number("memory.current")).map(|(limit, used)| limit.saturating_sub(used));
    Some(group.map_or(system, |group| group.min(system)))
}

/// The most memory this process ever had resident.
pub fn peak_resident_bytes() -> Option<u64> {
    status("VmHWM")
}

pub fn resident_bytes() -> Option<u64> {
    status("VmRSS")
}

fn status(key: &str) -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/self/status").ok()?, key)
}

fn meminfo(key: &str) -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/meminfo").ok()?, key)
}

/// `Key:   123 kB` in bytes.
fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

fn cgroup_limit() -> Option<u64> {
    cgroup_number("memory.max")
}

fn cgroup_number(file: &str) -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?.trim().to_string();
    fs::read_to_string(format!("/sys/fs/cgroup{path}/{file}")).ok()?.trim().parse().ok()
}

/// Distinct (physical id, core id) pairs.
fn physical_cores(cpuinfo: &str) -> Option<usize> {
    let mut cores = std::collections::BTreeSet::new();
    let mut package = "";
    for line in cpuinfo.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        match key.trim() {
            "physical id" => package = value.trim(),
            "core id" => {
                cores.insert((package.to_string(), value.trim().to_string()));
            }
            _ => {}
        }
    }
    (!cores.is_empty()).then_some(cores.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hyper_threads_of_one_core_count_once() {
        let cpu = |physical: u32, core: u32| format!("processor : 0\nphysical id : {physical}\ncore id : {core}\n\n");
        let text: String = [(0, 0), (0, 0), (0, 1), (1, 0)].map(|(p, c)| cpu(p, c)).concat();
        assert_eq!(physical_cores(&text), Some(3));
        assert_eq!(physical_cores("nothing here"), None);
    }

    #[test]
    fn sizes_in_kilobytes_are_read_in_bytes() {
        let text = "MemTotal:       24 kB\nMemTotalOther:   9 kB\n";
        assert_eq!(kilobytes(text, "MemTotal"), Some(24 * 1024));
        assert_eq!(kilobytes(text, "MemFree"), None);
    }
}
