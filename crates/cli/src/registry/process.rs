//! Process that a run lives in, so that a run that vanished without a word is told from one that still runs.

use std::fs;

/// Host and process as they are kept with a run. The process's start is part of it: numbers come round again.
pub fn own() -> (Option<String>, Option<String>) {
    let id = std::process::id();
    (host(), start_of(id).map(|start| format!("{id}:{start}")))
}

/// Returns `None` where this cannot be known: another host's run, or a system without `/proc`.
pub fn is_alive(host_then: Option<&str>, process: Option<&str>) -> Option<bool> {
    let host = host()?;
    if host_then != Some(host.as_str()) {
        return None;
    }
    let (id, start) = process?.split_once(':')?;
    let now = start_of(id.parse().ok()?);
    Some(now.is_some_and(|now| now.to_string() == start))
}

/// The name and, since a start counts from the boot, which boot.
fn host() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Some(format!("{} {}", name.trim(), boot.trim()))
}

/// Clock ticks from the boot to the process's start; none once it is gone or only waits to be reaped.
fn start_of(id: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}
