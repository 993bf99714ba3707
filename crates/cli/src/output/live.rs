//! A line that says what is going on, for a person at a terminal. It is written over and over, below the other lines, and
//! never into a file or a pipe.

use super::is_seen;
use headroom_report::printable::printable;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::stderr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The line that is shown now; other lines are printed above it.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// The time left is counted down this often.
const TICK: Duration = Duration::from_millis(250);

/// Shown until it is ended or dropped.
pub struct LiveLine;

impl LiveLine {
    /// Begins a line with the time left until `ends`, if standard error is a terminal.
    pub fn until(ends: Instant) -> LiveLine {
        if is_seen(&stderr()) {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let left = move |_: &ProgressState, out: &mut dyn Write| {
                let _ = write!(out, "{}", time_left(ends.saturating_duration_since(Instant::now())));
            };
            let style = ProgressStyle::with_template("{spinner} {left} · {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()).with_key("left", left));
            bar.enable_steady_tick(TICK);
            *shown() = Some(bar);
        }
        LiveLine
    }

    pub fn show(&self, text: &str) {
        if let Some(bar) = shown().as_ref() {
            bar.set_message(printable(text).into_owned());
        }
    }

    pub fn end(&self) {
        if let Some(bar) = shown().take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for LiveLine {
    fn drop(&mut self) {
        self.end();
    }
}

/// Prints something above the line, if there is one.
pub fn above(print: impl FnOnce()) {
    match shown().as_ref() {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

fn shown() -> MutexGuard<'static, Option<ProgressBar>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn time_left(left: Duration) -> String {
    let seconds = left.as_secs();
    match seconds / 60 {
        0 => format!("{seconds} s left"),
        minutes => format!("{minutes} min {:02} s left", seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_in_minutes_and_seconds() {
        let said = |seconds| time_left(Duration::from_secs(seconds));
        assert_eq!((said(0), said(59), said(128)), ("0 s left".into(), "59 s left".into(), "2 min 08 s left".into()));
    }
}
