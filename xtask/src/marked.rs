//! Processes that one run of a check has started, found by a variable of their environment however they were detached.

use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub const VARIABLE: &str = "HEADROOM_SUITE_MARK";

/// Numbers of the processes with this mark, sorted. One that has ended has no environment.
pub fn processes(mark: &str) -> Vec<u32> {
    let wanted = format!("{VARIABLE}={mark}");
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_marked = |process: &u32| {
        let variables = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        variables.split(|byte| *byte == 0).any(|pair| pair == wanted.as_bytes())
    };
    let mut found: Vec<u32> = numbers.filter(is_marked).collect();
    found.sort_unstable();
    found
}

/// Waits for the processes with this mark to end, and returns those that are left.
pub fn left_after(mark: &str, patience: Duration) -> Vec<u32> {
    let begin = Instant::now();
    loop {
        let left = processes(mark);
        if left.is_empty() || begin.elapsed() > patience {
            return left;
        }
        sleep(Duration::from_millis(20));
    }
}

/// Kills the processes with this mark, those too that they start meanwhile.
pub fn end(mark: &str) {
    for _ in 0..100 {
        let left = processes(mark);
        if left.is_empty() {
            return;
        }
        for process in left {
            // One that has just ended needs no signal.
            let _ = kill(process);
        }
        sleep(Duration::from_millis(20));
    }
}

/// Kills one process.
pub fn kill(process: u32) -> std::io::Result<bool> {
    let mut command = Command::new("kill");
    Ok(command.args(["-9", &process.to_string()]).stderr(Stdio::null()).status()?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_found_by_their_mark_and_ended() {
        let mark = format!("marked-test-{}", std::process::id());
        let mut child = Command::new("sleep").arg("300").env(VARIABLE, &mark).spawn().unwrap();
        let begin = Instant::now();
        while processes(&mark) != [child.id()] {
            assert!(begin.elapsed() < Duration::from_secs(10), "it is not found");
            sleep(Duration::from_millis(5));
        }
        assert_eq!(processes(&mark[1..]), Vec::<u32>::new(), "a part of a mark is another mark");
        assert_eq!(left_after(&mark, Duration::ZERO), [child.id()]);
        end(&mark);
        child.wait().unwrap();
        assert_eq!(left_after(&mark, Duration::from_secs(10)), Vec::<u32>::new());
    }
}
