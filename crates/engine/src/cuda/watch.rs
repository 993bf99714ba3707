//! Watches work that involves other ranks. If one has gone, or nothing moves for as long as the patience lasts, the
//! work in flight is aborted, so that the thread waiting for it returns.

use super::nccl::{Comm, Nccl};
use super::nccl_error::NcclError;
use crate::ranks::{Ranks, RanksError};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// States of the work; any value between is the time at which it began, in nanoseconds.
const AT_REST: u64 = 0;
const ENDING: u64 = u64::MAX - 1;
const ENDED: u64 = u64::MAX;

struct Shared {
    state: AtomicU64,
    leaves: AtomicBool,
    since: Instant,
    patience: Duration,
    why: Mutex<Option<NcclError>>,
    /// Aborts the work in flight.
    end: Box<dyn Fn() + Send + Sync>,
}

impl Shared {
    fn why(&self) -> MutexGuard<'_, Option<NcclError>> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        (self.since.elapsed().as_nanos() as u64).clamp(AT_REST + 1, ENDING - 1)
    }

    /// Aborts the work, once.
    fn give_up(&self, why: NcclError) {
        self.why().get_or_insert(why);
        if self.state.swap(ENDING, Ordering::SeqCst) < ENDING {
            (self.end)();
        }
        self.state.store(ENDED, Ordering::SeqCst);
    }

    /// Whether the current work has taken too long.
    fn is_stuck(&self) -> bool {
        let begun = self.state.load(Ordering::SeqCst);
        let has_begun = begun > AT_REST && begun < ENDING;
        has_begun && Duration::from_nanos(self.now().saturating_sub(begun)) > self.patience
    }
}

pub struct Watch {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A handle held by the watching thread.
struct Watched(Comm);

// SAFETY: NCCL allows querying errors and aborting from a thread other than the one that queues calls.
unsafe impl Send for Watched {}
// SAFETY: a shared handle is only passed to calls that NCCL allows from any thread.
unsafe impl Sync for Watched {}

/// Time between two polls.
const PAUSE: Duration = Duration::from_millis(50);

impl Watch {
    pub fn start(nccl: Arc<Nccl>, comm: Comm, ranks: Arc<Ranks>) -> Watch {
        let (asked, watched) = (Arc::clone(&nccl), Arc::new(Watched(comm)));
        let own = Arc::clone(&watched);
        // SAFETY: it is called once, by whoever sets the state to `ENDING` first.
        let end = Box::new(move || unsafe { nccl.abort(own.0) });
        let patience = ranks.patience();
        // SAFETY: only `end` ends the handle, and this is called before that.
        let failed = move || unsafe { asked.failure(watched.0) };
        let gone = move || ranks.lost_rank().map(|rank| NcclError::Ranks(RanksError::Closed { rank }));
        Watch::over(patience, end, move || gone().or_else(&failed))
    }

    /// Polls periodically for a failure, or for lack of progress.
    fn over(
        patience: Duration,
        end: Box<dyn Fn() + Send + Sync>,
        failed: impl Fn() -> Option<NcclError> + Send + 'static,
    ) -> Watch {
        let shared = Arc::new(Shared {
            state: AtomicU64::new(AT_REST),
            leaves: AtomicBool::new(false),
            since: Instant::now(),
            patience,
            why: Mutex::new(None),
            end,
        });
        let own = Arc::clone(&shared);
        let look = move || {
            while !own.leaves.load(Ordering::SeqCst) && own.state.load(Ordering::SeqCst) < ENDING {
                if let Some(why) = failed() {
                    own.give_up(why);
                } else if own.is_stuck() {
                    own.give_up(NcclError::NoProgress { seconds: own.patience.as_secs_f64() });
                }
                thread::sleep(PAUSE);
            }
        };
        // Without a thread nothing is watched: work then takes as long as it takes.
        let thread = thread::Builder::new().name("nccl watch".into()).spawn(look);
        Watch { shared, thread: Mutex::new(thread.ok()) }
    }

    /// Runs work under the watch; the error says why it was aborted.
    pub fn around<T>(&self, work: impl FnOnce() -> T) -> Result<T, NcclError> {
        let now = self.shared.now();
        if self.shared.state.compare_exchange(AT_REST, now, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return Err(self.ended());
        }
        let done = work();
        match self.shared.state.compare_exchange(now, AT_REST, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => Ok(done),
            Err(_) => Err(self.ended()),
        }
    }

    /// The reason, once the abort is complete.
    fn ended(&self) -> NcclError {
        while self.shared.state.load(Ordering::SeqCst) == ENDING {
            thread::sleep(Duration::from_millis(1));
        }
        self.shared.why().clone().unwrap_or(NcclError::NoProgress { seconds: self.shared.patience.as_secs_f64() })
    }

    /// Aborts the work in flight.
    pub fn abort(&self) {
        self.leave();
        self.shared.give_up(RanksError::Left.into());
    }

    /// Stops watching.
    pub fn leave(&self) {
        self.shared.leaves.store(true, Ordering::SeqCst);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::channel;

    const SHORT: Duration = Duration::from_millis(200);

    /// A watch whose abort releases the work, and a count of aborts.
    fn watched(failed: impl Fn() -> Option<NcclError> + Send + 'static) -> (Watch, impl FnOnce(), Arc<AtomicUsize>) {
        let (release, released) = channel();
        let times = Arc::new(AtomicUsize::new(0));
        let own = Arc::clone(&times);
        let release = Mutex::new(release);
        let end = Box::new(move || {
            own.fetch_add(1, Ordering::SeqCst);
            let _ = release.lock().unwrap().send(());
        });
        (Watch::over(SHORT, end, failed), move || released.recv().unwrap(), times)
    }

    #[test]
    fn work_that_does_not_move_is_ended_once_and_nothing_is_started_after_it() {
        let (watch, stuck, times) = watched(|| None);
        assert_eq!(watch.around(|| 7), Ok(7));
        let begin = Instant::now();
        assert_eq!(watch.around(stuck), Err(NcclError::NoProgress { seconds: 0.2 }));
        assert!(begin.elapsed() >= SHORT && begin.elapsed() < 20 * SHORT);
        assert_eq!(watch.around(|| 7), Err(NcclError::NoProgress { seconds: 0.2 }));
        watch.abort();
        assert_eq!(times.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_rank_that_has_gone_ends_the_work_before_the_patience_does() {
        let gone = NcclError::Ranks(RanksError::Closed { rank: 3 });
        let told = gone.clone();
        let (watch, stuck, _) = watched(move || Some(told.clone()));
        assert_eq!(watch.around(stuck), Err(gone));
    }

    #[test]
    fn rest_is_not_watched() {
        let (watch, _, times) = watched(|| None);
        for _ in 0..3 {
            assert_eq!(watch.around(|| thread::sleep(SHORT / 2)), Ok(()));
            thread::sleep(2 * SHORT);
        }
        assert_eq!(times.load(Ordering::SeqCst), 0);
    }
}
