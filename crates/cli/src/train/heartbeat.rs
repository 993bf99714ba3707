//! A heartbeat during long steps: prints a line at intervals until the step is over.

use crate::output;
use headroom_report::numbers::seconds;
use indicatif::ProgressBar;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Ends its thread when dropped.
pub struct Heartbeat {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Steps completed.
    step: u64,
    since: Instant,
    ended: bool,
}

impl Heartbeat {
    /// Starts it; `None` if it is off or no thread can be started: the run does without.
    pub fn start(every: u64, (first, last): (u64, u64), predicted: Option<f64>, bar: ProgressBar) -> Option<Heartbeat> {
        if every == 0 {
            return None;
        }
        let state = State { step: first, since: Instant::now(), ended: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let seen = Arc::clone(&shared);
        let plan = predicted.map_or(String::new(), |time| format!("; the plan takes at least {}", seconds(time)));
        let say = move |step: u64, passed: Duration| {
            let passed = seconds(passed.as_secs_f64());
            bar.suspend(|| {
                output::note(&format!("step {} of {last} is still running: {passed} so far{plan}", step + 1))
            });
        };
        let every = Duration::from_secs(every);
        let thread = thread::Builder::new().name("heartbeat".into()).spawn(move || watch(&seen, every, say)).ok()?;
        Some(Heartbeat { shared, thread: Some(thread) })
    }

    /// Records that a step is over.
    pub fn stepped(&self, step: u64) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.step, state.since) = (step, Instant::now());
    }
}

/// Wakes every interval, and reports if the same step has run that long.
fn watch(shared: &Shared, every: Duration, say: impl Fn(u64, Duration)) {
    let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
    let mut told = Instant::now();
    while !state.ended {
        let quiet = state.since.max(told).elapsed();
        if quiet >= every {
            told = Instant::now();
            let (step, passed) = (state.step, state.since.elapsed());
            drop(state);
            say(step, passed);
            state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let waited = shared.changed.wait_timeout(state, every - quiet);
        state = waited.map_or_else(|broken| broken.into_inner().0, |(state, _)| state);
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_goes_on_is_told_and_one_that_ends_is_not() {
        let state = State { step: 4, since: Instant::now(), ended: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let heard = Arc::new(Mutex::new(vec![]));
        let (seen, told) = (Arc::clone(&shared), Arc::clone(&heard));
        let say = move |step, _| told.lock().unwrap().push(step);
        let thread = Some(thread::spawn(move || watch(&seen, Duration::from_millis(300), say)));
        let beat = Heartbeat { shared, thread };
        for step in 5..15 {
            thread::sleep(Duration::from_millis(20));
            beat.stepped(step);
        }
        assert!(heard.lock().unwrap().is_empty(), "steps of 20 ms are short");
        thread::sleep(Duration::from_millis(750));
        let asked = Instant::now();
        drop(beat);
        assert!(asked.elapsed() < Duration::from_millis(250), "it ends at once");
        let heard = heard.lock().unwrap();
        assert!(!heard.is_empty() && heard.len() <= 2 && heard.iter().all(|step| *step == 14), "{heard:?}");
    }
}
