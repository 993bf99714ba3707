//! Handles Ctrl-C, the request to terminate, the terminal's hangup, and the file size limit.

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// `timeout` signals a process and then its whole group: the same request, twice within an instant.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// How long a step may continue after the request; a longer one is abandoned between two of its calls.
const PATIENCE: Duration = Duration::from_secs(2);

/// The state of a request to end.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    /// Ends after the step, or after another complete unit of work.
    pub stop: Arc<AtomicBool>,
    /// Patience is over: the current computation is abandoned.
    pub give_up: Arc<AtomicBool>,
    /// Zero, or the signal that asked first.
    signal: Arc<AtomicI32>,
    twice: Arc<AtomicBool>,
}

impl Interrupt {
    /// The exit code that shells know: 129 for a hangup, 130 for Ctrl-C, 143 for a request to terminate; success without a
    /// request.
    pub fn exit_code(&self) -> ExitCode {
        match self.signal() {
            0 => ExitCode::SUCCESS,
            signal => ExitCode::from(code_of(signal)),
        }
    }

    pub fn is_asked(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether there was a second request, for commands that listen for two.
    pub fn is_asked_twice(&self) -> bool {
        self.twice.load(Ordering::Relaxed)
    }

    /// Whether there is no time to finish anything: a second request, or one that is not a person's Ctrl-C.
    pub fn ends_at_once(&self) -> bool {
        self.is_asked() && (self.signal() != SIGINT || self.is_asked_twice())
    }

    /// Zero, or the signal that asked first.
    pub fn signal(&self) -> i32 {
        self.signal.load(Ordering::Relaxed)
    }
}

/// Whether a signal is a person's Ctrl-C.
pub fn is_ctrl_c(signal: i32) -> bool {
    signal == SIGINT
}

/// Starts listening. The first request sets the flags and calls `asked`; a second one, more than a moment later, ends
/// the process at once.
pub fn listen(asked: impl Fn() + Send + 'static) -> anyhow::Result<Interrupt> {
    listen_and(
        move |_| asked(),
        |signal| {
            #[expect(clippy::exit, reason = "asked for twice; files are whole at any moment")]
            std::process::exit(code_of(signal).into());
        },
    )
}

/// Like [`listen`], for a command that has a child process to end first: the second request is only recorded. `asked` is
/// given the signal.
pub fn listen_for_two(asked: impl Fn(i32) + Send + 'static) -> anyhow::Result<Interrupt> {
    listen_and(asked, |_| {})
}

/// For a command that cannot stop in between: the first request calls `leave`, and then ends the process.
pub fn end_on_request(leave: impl Fn() + Send + 'static) -> anyhow::Result<()> {
    let mut signals = arriving().context("cannot listen for Ctrl-C")?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if let Some(signal) = signals.next() {
                leave();
                #[expect(clippy::exit, reason = "the command was asked to end; files are whole at any moment")]
                std::process::exit(code_of(signal).into());
            }
        })
        .context("cannot start the thread that listens for Ctrl-C")?;
    Ok(())
}

fn listen_and(
    asked: impl Fn(i32) + Send + 'static,
    asked_twice: impl Fn(i32) + Send + 'static,
) -> anyhow::Result<Interrupt> {
    let interrupt = Interrupt::default();
    let seen = interrupt.clone();
    let signals = arriving().context("cannot listen for Ctrl-C")?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            let mut first: Option<Instant> = None;
            for signal in signals {
                match first {
                    None => {
                        first = Some(Instant::now());
                        seen.signal.store(signal, Ordering::Relaxed);
                        seen.stop.store(true, Ordering::Relaxed);
                        asked(signal);
                        end_patience_later(&seen.give_up);
                    }
                    Some(first) if first.elapsed() > SAME_REQUEST => {
                        seen.twice.store(true, Ordering::Relaxed);
                        asked_twice(signal);
                    }
                    Some(_) => {}
                }
            }
        })
        .context("cannot start the thread that listens for Ctrl-C")?;
    Ok(interrupt)
}

/// An iterator over requests to end; blocks between them.
#[cfg(unix)]
fn arriving() -> std::io::Result<impl Iterator<Item = i32> + Send + 'static> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    // Under `nohup` a run is meant to go on.
    if !headroom_engine::machine::isolation::hangup_is_ignored() {
        signals.add_signal(signal_hook::consts::SIGHUP)?;
    }
    Ok(std::iter::from_fn(move || signals.forever().next()))
}

/// The same where the system calls a handler on its own thread: the flags are polled several times per second.
#[cfg(not(unix))]
fn arriving() -> std::io::Result<impl Iterator<Item = i32> + Send + 'static> {
    const GLANCE: Duration = Duration::from_millis(50);
    let mut flags = vec![];
    for signal in [SIGINT, SIGTERM] {
        let flag = Arc::<AtomicBool>::default();
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
        flags.push((signal, flag));
    }
    Ok(std::iter::from_fn(move || {
        loop {
            if let Some((signal, _)) = flags.iter().find(|(_, flag)| flag.swap(false, Ordering::Relaxed)) {
                return Some(*signal);
            }
            thread::sleep(GLANCE);
        }
    }))
}

fn end_patience_later(give_up: &Arc<AtomicBool>) {
    let later = Arc::clone(give_up);
    let waits = thread::Builder::new().spawn(move || {
        thread::sleep(PATIENCE);
        later.store(true, Ordering::Relaxed);
    });
    if waits.is_err() {
        give_up.store(true, Ordering::Relaxed);
    }
}

/// Turns a write past the file size limit (`ulimit -f`) into a reportable error, instead of the end of the process.
/// Child processes get the system's default again.
#[cfg(unix)]
pub fn report_file_size_limit() {
    // If this fails, the system's default stays: the signal ends the process.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
}

/// Other systems have no such limit.
#[cfg(not(unix))]
pub fn report_file_size_limit() {}

fn code_of(signal: i32) -> u8 {
    128 + u8::try_from(signal).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_ctrl_c_leaves_time_to_finish() {
        let interrupt = Interrupt::default();
        assert!(!interrupt.ends_at_once());
        let ask = |signal: i32| {
            let interrupt = Interrupt::default();
            interrupt.signal.store(signal, Ordering::Relaxed);
            interrupt.stop.store(true, Ordering::Relaxed);
            interrupt
        };
        assert!(!ask(SIGINT).ends_at_once() && ask(SIGTERM).ends_at_once());
        let twice = ask(SIGINT);
        twice.twice.store(true, Ordering::Relaxed);
        assert!(twice.ends_at_once());
    }
}
