//! Identifies a run's process, to distinguish a run that vanished from one that is still running.

use std::path::Path;

use headroom_record::reading;

/// Host and process as stored with a run. The process's start time is included, since process ids are reused.
pub fn own() -> (Option<String>, Option<String>) {
    let id = std::process::id();
    (host(), start_of(id).map(|start| format!("{id}:{start}")))
}

/// Whether the process is alive; `None` if unknown: a run on another host, or a system without `/proc`.
pub fn is_alive(host_then: Option<&str>, process: Option<&str>) -> Option<bool> {
    let host = host()?;
    if host_then != Some(host.as_str()) {
        return None;
    }
    let (id, start) = process?.split_once(':')?;
    let now = start_of(id.parse().ok()?);
    Some(now.is_some_and(|now| now.to_string() == start))
}

/// The host's name and boot id, since start times count from the boot.
fn host() -> Option<String> {
    let name = read("/proc/sys/kernel/hostname")?;
    let boot = read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Some(format!("{} {}", name.trim(), boot.trim()))
}

fn read(path: &str) -> Option<String> {
    reading::read_text(Path::new(path), reading::SETTINGS).ok()
}

/// Clock ticks from the boot to the process's start; `None` once it is gone or a zombie.
fn start_of(id: u32) -> Option<u64> {
    let stat = read(&format!("/proc/{id}/stat"))?;
    // The name, in parentheses, may contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}
