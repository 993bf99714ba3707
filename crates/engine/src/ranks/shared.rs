//! State shared between the communication thread and the threads that give it jobs.

use super::error::RanksError;
use super::heartbeats::RankActivity;
use super::transfer::Transfer;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub enum Job {
    Exchange(Arc<Transfer>),
    /// Sends a message to all other ranks and collects theirs.
    Say {
        mine: Vec<u8>,
    },
    Finish,
}

/// Jobs, their outcomes, and this process's progress.
#[derive(Debug)]
pub struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    pub patience: Duration,
    /// Held while memory of a transfer is touched; true once nobody may touch it any more.
    left: Mutex<bool>,
    /// Exit code with which all ranks are to end, plus one; zero if nobody requested it.
    abort: AtomicU64,
    work: Work,
}

/// Progress of this process, for the other ranks and for comparison with them.
#[derive(Debug, Default)]
struct Work {
    /// Device calls so far.
    calls: AtomicU64,
    /// Whether a step is running, in which calls follow each other. Saving, loading or writing may take long without
    /// any.
    watched: AtomicBool,
    /// Time spent in steps, and how much of it was spent waiting for other ranks.
    watched_nanos: AtomicU64,
    waited_nanos: AtomicU64,
    /// Delay added to each call, to simulate a slow rank.
    delay_nanos: AtomicU64,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    submitted: u64,
    done: u64,
    heard: Vec<Vec<u8>>,
    /// The first error; everyone who waits from then on gets it.
    failure: Option<RanksError>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(out, "{} of {} jobs done", self.done, self.submitted)
    }
}

/// Number of jobs for which capacity is reserved.
const WAITING_JOBS: usize = 1024;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub fn new(patience: Duration) -> Shared {
        let state = State { jobs: VecDeque::with_capacity(WAITING_JOBS), ..State::default() };
        Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            patience,
            left: Mutex::new(false),
            abort: AtomicU64::new(0),
            work: Work::default(),
        }
    }

    /// Queues a job and returns its ticket.
    pub fn submit(&self, job: Job) -> u64 {
        let mut state = locked(&self.state);
        state.jobs.push_back(job);
        state.submitted += 1;
        self.changed.notify_all();
        state.submitted
    }

    pub fn wait_for(&self, ticket: u64) -> Result<(), RanksError> {
        let begin = self.work.watched.load(Ordering::Relaxed).then(Instant::now);
        let outcome = self.wait_until_done(ticket);
        if let Some(begin) = begin {
            self.work.waited_nanos.fetch_add(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
        outcome
    }

    fn wait_until_done(&self, ticket: u64) -> Result<(), RanksError> {
        let mut state = locked(&self.state);
        loop {
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if state.done >= ticket {
                return Ok(());
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The ranks' latest messages.
    pub fn heard(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut locked(&self.state).heard)
    }

    pub fn leave(&self) {
        *locked(&self.left) = true;
    }

    /// Runs `work` on memory of a transfer, unless that may have been freed.
    pub fn touch(&self, work: impl FnOnce()) -> Result<(), RanksError> {
        let left = locked(&self.left);
        if *left {
            return Err(RanksError::Left);
        }
        work();
        Ok(())
    }

    /// Requests the end of all ranks, whatever the communication thread waits for.
    pub fn ask_to_abort(&self, code: i32) {
        self.abort.store(u64::from(code.unsigned_abs()) + 1, Ordering::Relaxed);
        self.changed.notify_all();
    }

    pub fn abort_code(&self) -> Option<i32> {
        let asked = self.abort.load(Ordering::Relaxed);
        asked.checked_sub(1).and_then(|code| i32::try_from(code).ok())
    }

    /// Notes that a device call finished.
    pub fn called(&self) {
        self.work.calls.fetch_add(1, Ordering::Relaxed);
        let delay = self.work.delay_nanos.load(Ordering::Relaxed);
        if delay > 0 {
            thread::sleep(Duration::from_nanos(delay));
        }
    }

    pub fn slow_down(&self, each_call: Duration) {
        self.work.delay_nanos.store(each_call.as_nanos() as u64, Ordering::Relaxed);
    }

    pub fn watch(&self, watched: bool) {
        self.work.watched.store(watched, Ordering::Relaxed);
    }

    pub fn was_watched(&self, time: Duration) {
        self.work.watched_nanos.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    pub fn worked(&self) -> Duration {
        let of = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Ordering::Relaxed));
        of(&self.work.watched_nanos).saturating_sub(of(&self.work.waited_nanos))
    }

    /// Calls so far, and the process's activity while the communication thread has no job.
    pub fn progress(&self) -> (u64, RankActivity) {
        let doing = if self.work.watched.load(Ordering::Relaxed) { RankActivity::Steps } else { RankActivity::Other };
        (self.work.calls.load(Ordering::Relaxed), doing)
    }

    /// The next job, if one comes within this time.
    pub fn next(&self, limit: Duration) -> Option<Job> {
        let mut state = locked(&self.state);
        if state.jobs.is_empty() {
            state = self.changed.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.jobs.pop_front()
    }

    pub fn has_failed(&self) -> bool {
        locked(&self.state).failure.is_some()
    }

    pub fn finished(&self, outcome: Result<Option<Vec<Vec<u8>>>, RanksError>) {
        let mut state = locked(&self.state);
        state.done += 1;
        match outcome {
            Ok(Some(heard)) => state.heard = heard,
            Ok(None) => {}
            Err(error) => {
                state.failure.get_or_insert(error);
            }
        }
        self.changed.notify_all();
    }
}
