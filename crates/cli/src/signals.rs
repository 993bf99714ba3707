//! Ctrl-C, the request to terminate and the limit of file sizes: what each means for the command that runs.

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// `timeout` asks a process and then its whole group: the same request, twice within an instant.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// How long a step may go on after the request; one that takes longer is left between two of its calls.
const PATIENCE: Duration = Duration::from_secs(2);

/// A request to end, as far as it got.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    /// Ends after the step, or whatever else is a whole.
    pub stop: Arc<AtomicBool>,
    /// Patience is over: what is being computed is given up.
    pub give_up: Arc<AtomicBool>,
    /// Zero, or the signal that asked first.
    signal: Arc<AtomicI32>,
    twice: Arc<AtomicBool>,
}

impl Interrupt {
    /// The exit code shells know: 130 for Ctrl-C, 143 for a request to terminate; success where nobody asked.
    pub fn exit_code(&self) -> ExitCode {
        match self.signal() {
            0 => ExitCode::SUCCESS,
            signal => ExitCode::from(code_of(signal)),
        }
    }

    pub fn is_asked(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// For those who listen for two.
    pub fn is_asked_twice(&self) -> bool {
        self.twice.load(Ordering::Relaxed)
    }

    /// Zero, or the signal that asked first.
    pub fn signal(&self) -> i32 {
        self.signal.load(Ordering::Relaxed)
    }
}

/// Listens from now on. The first request sets the flags and calls `asked`; a second one, more than a moment later, ends the
/// process at once.
pub fn listen(asked: impl Fn() + Send + 'static) -> anyhow::Result<Interrupt> {
    listen_and(asked, |signal| {
        #[expect(clippy::exit, reason = "asked for twice; files are whole at any moment")]
        std::process::exit(code_of(signal).into());
    })
}

/// As `listen`, for a command that has a process of its own to end first: the second request is only told.
pub fn listen_for_two(asked: impl Fn() + Send + 'static) -> anyhow::Result<Interrupt> {
    listen_and(asked, |_| {})
}

fn listen_and(
    asked: impl Fn() + Send + 'static,
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
                        asked();
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

/// Requests to end, one after the other; blocks between them.
#[cfg(unix)]
fn arriving() -> std::io::Result<impl Iterator<Item = i32> + Send + 'static> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    Ok(std::iter::from_fn(move || signals.forever().next()))
}

/// The same where the system calls a handler on a thread of its own: flags are looked at some times per second.
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

/// Makes a write past the limit of file sizes (`ulimit -f`) an error that can be told, instead of the end of the process.
/// Programs that are started from here have the system's default again.
#[cfg(unix)]
pub fn report_file_size_limit() {
    // Where it cannot be had, the system's default stays: the process is ended by the signal.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
}

/// Other systems have no such limit.
#[cfg(not(unix))]
pub fn report_file_size_limit() {}

fn code_of(signal: i32) -> u8 {
    128 + u8::try_from(signal).unwrap_or(0)
}
