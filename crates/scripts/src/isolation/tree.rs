//! A process with everything that it started: found by the system's table of processes, and ended.

use headroom_record::reading;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const GLANCE: Duration = Duration::from_millis(5);

/// Kills all descendants of a process, those too that are started meanwhile. Returns whether none is left; a process
/// that waits for a device cannot be ended.
pub fn end_descendants(of: u32, within: Duration) -> bool {
    let begin = Instant::now();
    loop {
        let found = descendants(of);
        if found.is_empty() {
            return true;
        }
        if begin.elapsed() > within {
            return false;
        }
        signal_all(&found, Signal::KILL);
        sleep(GLANCE);
    }
}

/// Sends a signal to all descendants of a process.
pub fn signal_descendants(of: u32, signal: Signal) {
    signal_all(&descendants(of), signal);
}

fn signal_all(processes: &[u32], signal: Signal) {
    for process in processes {
        if let Some(process) = i32::try_from(*process).ok().and_then(Pid::from_raw) {
            let _ = kill_process(process, signal);
        }
    }
}

/// Processes that descend from this one and still run, parents first.
pub fn descendants(of: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        let stat = reading::read(Path::new(&format!("/proc/{process}/stat")), reading::SETTINGS).unwrap_or_default();
        if let Some((state, parent)) = state_and_parent(&stat)
            && !matches!(state, 'Z' | 'X')
        {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut found = vec![];
    let mut open = vec![of];
    while let Some(process) = open.pop() {
        let mut own = children.remove(&process).unwrap_or_default();
        own.sort_unstable();
        found.extend(&own);
        open.extend(own);
    }
    found
}

/// Fields 3 and 4. The name before them stands in parentheses and may hold any character.
fn state_and_parent(stat: &[u8]) -> Option<(char, u32)> {
    let text = String::from_utf8_lossy(stat);
    let mut words = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_name_may_hold_anything() {
        assert_eq!(state_and_parent(b"12 (a) R 7) S 3 12 0"), Some(('S', 3)));
        assert_eq!(state_and_parent(b"12 (a"), None);
        assert_eq!(state_and_parent(b""), None);
    }

    #[test]
    fn descendants_are_found_and_ended_with_their_children() {
        let own = std::process::id();
        let script = "sleep 300 & sh -c 'sleep 300; true' & echo started; wait";
        let mut shell = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = [0; 8];
        std::io::Read::read_exact(&mut shell.stdout.take().unwrap(), &mut line).unwrap();
        assert!(descendants(own).contains(&shell.id()));
        let begin = Instant::now();
        while descendants(shell.id()).len() < 3 && begin.elapsed() < Duration::from_secs(10) {
            sleep(GLANCE);
        }
        assert!(end_descendants(shell.id(), Duration::from_secs(10)));
        shell.wait().unwrap();
        assert_eq!(descendants(shell.id()), Vec::<u32>::new());
    }
}
