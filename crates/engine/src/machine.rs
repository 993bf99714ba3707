//! This machine: its processor, its memory, and this process's use of them.

pub mod amd;
pub mod isolation;

use std::fs;

#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    pub cpu_name: String,
    /// Cores that this process may use; two hyper-threads of one core count as one.
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

/// Vendor, family and model of the processor as it reports them; `None` if the system does not say.
pub fn processor_model() -> Option<(String, u32, u32)> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").ok()?;
    let named = |key: &str| {
        let mut pairs = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_string())
    };
    Some((named("vendor_id")?, named("cpu family")?.parse().ok()?, named("model")?.parse().ok()?))
}

/// Measures how much processor time other programs take over an interval.
pub struct LoadWatch {
    busy: u64,
    all: u64,
    own: u64,
}

impl LoadWatch {
    /// Returns `None` if the system does not count.
    pub fn start() -> Option<LoadWatch> {
        let (busy, all) = processor_ticks(&fs::read_to_string("/proc/stat").ok()?)?;
        Some(LoadWatch { busy, all, own: own_ticks(&fs::read_to_string("/proc/self/stat").ok()?)? })
    }

    /// The fraction of all processor time since the start that went to other programs.
    pub fn others(&self) -> Option<f64> {
        let now = LoadWatch::start()?;
        let busy = now.busy.saturating_sub(self.busy).saturating_sub(now.own.saturating_sub(self.own));
        Some(busy as f64 / now.all.saturating_sub(self.all).max(1) as f64)
    }
}

/// Busy ticks of all processors, including stolen ones, and total ticks.
fn processor_ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // user, nice, system, idle, waiting, interrupts (two kinds), stolen
    let ticks: Vec<u64> = line.split_whitespace().take(8).filter_map(|ticks| ticks.parse().ok()).collect();
    let idle = ticks.get(3)? + ticks.get(4)?;
    let all: u64 = ticks.iter().sum();
    Some((all - idle, all))
}

/// Ticks of this process and its ended children. The name, in parentheses, may contain anything.
fn own_ticks(stat: &str) -> Option<u64> {
    let after_name = stat.rsplit_once(')')?.1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    fields.get(11..15)?.iter().map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// Bytes available now without swapping, within the limits of the control group and of the process (`ulimit -v`) if
/// there are any.
pub fn memory_available_bytes() -> Option<u64> {
    let system = meminfo("MemAvailable")?;
    let group = cgroup_limit().zip(cgroup_number("memory.current")).map(|(limit, used)| limit.saturating_sub(used));
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let process = address_space_limit(&limits).zip(status("VmSize"));
    // Needed beside the plan: thread stacks, batches, file buffers.
    const BESIDE: u64 = 96 << 20;
    let process = process.map(|(limit, used)| limit.saturating_sub(used + BESIDE));
    Some([group, process].into_iter().flatten().fold(system, u64::min))
}

/// The soft limit in `/proc/self/limits`; `None` if there is none.
fn address_space_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The peak resident memory of this process.
pub fn peak_resident_bytes() -> Option<u64> {
    status("VmHWM")
}

/// Restarts the peak, so that memory released earlier does not count.
pub fn forget_peak_resident() {
    // If the system does not support it, the peak stays as it was.
    let _ = fs::write("/proc/self/clear_refs", "5");
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

/// Parses `Key:   123 kB` into bytes.
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

/// Number of distinct (physical id, core id) pairs.
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
    fn the_limit_of_the_address_space_is_read_where_there_is_one() {
        let limits = |limit: &str| {
            format!("Max stack size 8388608 unlimited bytes\nMax address space   {limit}  unlimited  bytes\n")
        };
        assert_eq!(address_space_limit(&limits("1048576")), Some(1 << 20));
        assert_eq!(address_space_limit(&limits("unlimited")), None);
        assert_eq!(address_space_limit(""), None);
    }

    #[test]
    fn hyper_threads_of_one_core_count_once() {
        let cpu = |physical: u32, core: u32| format!("processor : 0\nphysical id : {physical}\ncore id : {core}\n\n");
        let text: String = [(0, 0), (0, 0), (0, 1), (1, 0)].map(|(p, c)| cpu(p, c)).concat();
        assert_eq!(physical_cores(&text), Some(3));
        assert_eq!(physical_cores("nothing here"), None);
    }

    #[test]
    fn ticks_of_others_are_what_is_left_of_the_busy_ones() {
        let stat = "cpu  100 20 30 800 50 1 2 7 0 0\ncpu0 1 2 3\n";
        assert_eq!(processor_ticks(stat), Some((160, 1010)));
        let own = "12 (a ) name) S 1 1 1 0 -1 4194560 100 0 0 0 30 12 5 3 20 0 1 0";
        assert_eq!(own_ticks(own), Some(50));
    }

    #[test]
    fn a_peak_that_was_forgotten_does_not_count() {
        let large = vec![1u8; 64 << 20];
        let before = peak_resident_bytes();
        drop(std::hint::black_box(large));
        forget_peak_resident();
        if let (Some(before), Some(after)) = (before, peak_resident_bytes()) {
            assert!(after + (32 << 20) < before, "{after} bytes after, {before} before");
        }
    }

    #[test]
    fn sizes_in_kilobytes_are_read_in_bytes() {
        let text = "MemTotal:       24 kB\nMemTotalOther:   9 kB\n";
        assert_eq!(kilobytes(text, "MemTotal"), Some(24 * 1024));
        assert_eq!(kilobytes(text, "MemFree"), None);
    }
}
