//! Runs a child in a separate process: whatever happens to it, the study continues.

use crate::output;
use crate::registry::PARENT_VARIABLE;
use anyhow::Context;
use headroom_record::performance::{PERFORMANCE_FILE, PerformanceRecord};
use headroom_record::reading;
use headroom_scripts::printed::Lines;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::VecDeque;
use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Read, stderr};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

pub enum ChildEnd {
    Finished(Box<PerformanceRecord>),
    /// It reported what was wrong.
    Failed(String),
    /// It ended without a report.
    Killed(String),
    /// The study itself is ending, and ended the child.
    Stopped,
}

/// Polling interval of a child.
const GLANCE: Duration = Duration::from_millis(20);

/// Time between the request to end and the kill.
const GRACE: Duration = Duration::from_secs(5);

/// The number of last output lines searched for an error.
const LAST_WORDS: usize = 20;

/// The most bytes kept of one of them.
const MOST_LINE: usize = 4_000;

/// Starts `headroom` with these arguments, writing to `folder`, and waits for its end. `started` gets the process id
/// first, so that it is on record if this process goes away.
pub fn run_child(
    arguments: &[String],
    folder: &Path,
    parent: Option<i64>,
    stop: &AtomicBool,
    started: impl FnOnce(u32) -> anyhow::Result<()>,
) -> anyhow::Result<ChildEnd> {
    let program = std::env::current_exe().context("cannot find the program itself")?;
    run_program(&mut Command::new(program), arguments, folder, parent, stop, started)
}

/// Like [`run_child`], for another build or in another folder.
pub fn run_program(
    command: &mut Command,
    arguments: &[String],
    folder: &Path,
    parent: Option<i64>,
    stop: &AtomicBool,
    started: impl FnOnce(u32) -> anyhow::Result<()>,
) -> anyhow::Result<ChildEnd> {
    command.args(arguments).arg("--output-dir").arg(folder).arg("--overwrite");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    if let Some(parent) = parent {
        command.env(PARENT_VARIABLE, parent.to_string());
    }
    // A summary of an earlier attempt must not be mistaken for this one's.
    let _ = fs::remove_file(folder.join(PERFORMANCE_FILE));
    let mut child = command.spawn().with_context(|| format!("cannot start `{}`", command.get_program().display()))?;
    let words = child.stderr.take();
    let listener = thread::spawn(move || words.map(listen).unwrap_or_default());
    let told = started(child.id());
    let status = told.and_then(|()| wait(&mut child, stop))?;
    let last_words = listener.join().unwrap_or_default();
    Ok(match status {
        None => ChildEnd::Stopped,
        Some(status) if status.success() => match read_summary(folder) {
            Some(record) => ChildEnd::Finished(record),
            None => ChildEnd::Failed("it ended without a summary".into()),
        },
        Some(status) => how_it_died(status, &last_words),
    })
}

/// A child of a killed study may have survived. Waits for it and adopts its results; `None` if it is gone and left no
/// summary.
pub fn wait_for_orphan(folder: &Path, num_steps: u64, stop: &AtomicBool) -> Option<ChildEnd> {
    let mut said = false;
    while is_locked(folder) {
        if !said {
            output::note("      the process of the interrupted study is still running: waiting for it");
            said = true;
        }
        if stop.load(Ordering::Relaxed) {
            return Some(ChildEnd::Stopped);
        }
        sleep(GLANCE);
    }
    let record = read_summary(folder)?;
    (record.training_params.num_steps == num_steps).then_some(ChildEnd::Finished(record))
}

/// Whether a run holds the folder's lock, which it does while it lives.
fn is_locked(folder: &Path) -> bool {
    File::open(folder).is_ok_and(|folder| matches!(folder.try_lock(), Err(TryLockError::WouldBlock)))
}

fn read_summary(folder: &Path) -> Option<Box<PerformanceRecord>> {
    serde_json::from_slice(&reading::read(&folder.join(PERFORMANCE_FILE), reading::RECORD).ok()?).ok()
}

/// Waits for the run; `None` if it was ended because the study was.
fn wait(child: &mut Child, stop: &AtomicBool) -> anyhow::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for the run's process")? {
            if is_interrupted(status) {
                // Ctrl-C goes to the study and to its run: the run may have ended before the study noticed.
                sleep(10 * GLANCE);
            }
            return Ok((!stop.load(Ordering::Relaxed)).then_some(status));
        }
        if stop.load(Ordering::Relaxed) {
            end(child);
            return Ok(None);
        }
        sleep(GLANCE);
    }
}

/// Asks first: a launcher ends its ranks when asked to, and leaves them behind when killed.
fn end(child: &mut Child) {
    #[cfg(unix)]
    if let Some(process) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        let begin = Instant::now();
        while begin.elapsed() < GRACE && matches!(child.try_wait(), Ok(None)) {
            sleep(GLANCE);
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Shows each line on a terminal during the run; keeps the last ones.
fn listen(mut words: impl Read) -> Vec<String> {
    let bar = output::is_seen(&stderr()).then(|| {
        let bar = ProgressBar::new_spinner();
        bar.set_style(
            ProgressStyle::with_template("      {spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        bar
    });
    let mut last = VecDeque::new();
    let mut hear = |line: String| {
        if let Some(bar) = &bar {
            bar.set_message(line.clone());
            bar.tick();
        }
        last.push_back(line);
        if last.len() > LAST_WORDS {
            last.pop_front();
        }
    };
    let mut lines = Lines::new(MOST_LINE);
    let mut bytes = vec![0; 16 << 10];
    loop {
        match words.read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => lines.add(&bytes[..read], &mut hear),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    lines.rest().into_iter().for_each(hear);
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    last.into()
}

/// Exit codes of a command that was asked to stop.
fn is_interrupted(status: ExitStatus) -> bool {
    matches!(status.code(), Some(129 | 130 | 143))
}

fn how_it_died(status: ExitStatus, last_words: &[String]) -> ChildEnd {
    let error = last_words.iter().position(|line| line.starts_with("error: "));
    match (status.code(), error) {
        _ if is_interrupted(status) => {
            ChildEnd::Killed("told to stop (a hangup, Ctrl-C or a request to terminate)".into())
        }
        (Some(_), Some(line)) => ChildEnd::Failed(last_words[line..].join("\n")),
        (Some(code), None) => ChildEnd::Failed(format!("it ended with code {code}")),
        (None, _) => ChildEnd::Killed(format!("killed ({status}): by hand, or because memory ran out")),
    }
}
