//! A fixed team of pinned threads for kernels: nothing is spawned, allocated or locked for long inside a call.

pub mod affinity;
mod chunks;
#[cfg(all(test, loom))]
mod loom_tests;
mod sync;
mod waiting;

use std::any::Any;
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use chunks::Chunks;
use sync::{
    Arc, AtomicBool, AtomicUsize, Builder, JoinHandle, Mutex, MutexGuard, Ordering, UnsafeCell, order_of_all, park,
};
use waiting::Waiting;
pub(crate) use waiting::{Barrier, Leader, Padded, StepProgress};

/// How long an idle worker spins before it sleeps. Waking a sleeper costs 5-50 µs, while a spinning worker responds
/// within 1 µs. Some microseconds pass between two ops of a step, and perhaps a millisecond between two steps.
const SPIN: Duration = Duration::from_millis(1);

/// Number of polls (some 50 ns each) before a waiting thread yields, if there is a CPU per thread and if not. Even with
/// a CPU per thread, the caller, which is not pinned, may share a worker's CPU and must not be kept waiting there.
const SPINS: u32 = 1000;
const SPINS_WHEN_CROWDED: u32 = 64;

/// The calling thread is worker 0; `threads - 1` more wait for its calls.
///
/// Calls from several threads take turns. A call from inside a job runs on the calling thread.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    turn: Mutex<()>,
}

impl Pool {
    /// Starts the workers, each pinned to its own CPU out of those this process may use, if there are enough. The
    /// calling thread's affinity does not change.
    pub fn new(threads: usize) -> io::Result<Pool> {
        let threads = threads.max(1);
        let cpus = affinity::allowed_cpus();
        // An unknown affinity does not mean that the machine is crowded.
        let crowded = !cpus.is_empty() && threads > cpus.len();
        let shared = Arc::new(Shared {
            number: POOLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            job: UnsafeCell::new(None),
            generation: Padded(AtomicUsize::new(0)),
            running: Padded(AtomicUsize::new(0)),
            held: AtomicBool::new(false),
            parked: (1..threads).map(|_| Padded(AtomicBool::new(false))).collect(),
            stopping: AtomicBool::new(false),
            panic: Mutex::new(None),
            spins: if crowded { SPINS_WHEN_CROWDED } else { SPINS },
        });
        // Dropped on an early return, so that the workers already started are stopped and joined.
        let mut pool = Pool { shared, workers: Vec::with_capacity(threads - 1), turn: Mutex::new(()) };
        for worker in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let cpu = if crowded { None } else { affinity::cpu_for_worker(&cpus, worker) };
            pool.workers.push(Builder::new().name(format!("headroom-{worker}")).spawn(move || {
                if let Some(cpu) = cpu {
                    affinity::pin_this_thread(cpu);
                }
                shared.serve(worker);
            })?);
        }
        Ok(pool)
    }

    /// Number of workers, including the caller.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Every worker runs `job(worker)` once; returns when all are done. A panic in any of them is propagated.
    ///
    /// The runs are not necessarily simultaneous (inside another job they run sequentially on one thread), so they must
    /// not wait for each other.
    pub fn broadcast(&self, job: &(dyn Fn(usize) + Sync)) {
        if self.workers.is_empty() || INSIDE_A_JOB.with(Cell::get) {
            (0..self.threads()).for_each(job);
        } else {
            self.run_on_all(job);
        }
    }

    /// Runs `job(item, worker)` for every item below `items`, each claimed by whichever worker is free first. Items are
    /// claimed in order: a job may wait for an earlier item (with a `StepProgress`), never for a later one.
    pub fn for_each(&self, items: usize, job: &(dyn Fn(usize, usize) + Sync)) {
        self.for_each_limited(self.threads(), items, job);
    }

    /// As [`for_each`](Self::for_each), but only on workers below `limit`.
    pub(crate) fn for_each_limited(&self, limit: usize, items: usize, job: &(dyn Fn(usize, usize) + Sync)) {
        if items <= 1 || limit <= 1 || self.workers.is_empty() || INSIDE_A_JOB.with(Cell::get) {
            (0..items).for_each(|item| job(item, 0));
            return;
        }
        let next = Padded(AtomicUsize::new(0));
        self.run_on_all(&|worker| {
            if worker >= limit {
                return;
            }
            loop {
                let item = next.0.fetch_add(1, Ordering::Relaxed);
                if item >= items {
                    break;
                }
                job(item, worker);
            }
        });
    }

    /// Runs `job(i, chunk)` for every `chunk_len` elements of `data` (the last chunk may be shorter).
    pub fn for_each_chunk<T: Send>(&self, data: &mut [T], chunk_len: usize, job: impl Fn(usize, &mut [T]) + Sync) {
        let data = Chunks::new(data, chunk_len);
        self.for_each(data.count(), &|i, _| {
            // SAFETY: `for_each` hands out every index once, so no two chunks overlap.
            job(i, unsafe { data.chunk(i) });
        });
    }

    /// As [`for_each_chunk`](Self::for_each_chunk) over two slices in lockstep: both must have the same number of
    /// chunks.
    pub fn for_each_chunk2<T: Send, U: Send>(
        &self,
        (first, first_len): (&mut [T], usize),
        (second, second_len): (&mut [U], usize),
        job: impl Fn(usize, &mut [T], &mut [U]) + Sync,
    ) {
        let (first, second) = (Chunks::new(first, first_len), Chunks::new(second, second_len));
        assert_eq!(first.count(), second.count(), "slices chunked in step have as many chunks as each other");
        self.for_each(first.count(), &|i, _| {
            // SAFETY: `for_each` hands out every index once, so no two chunks of one slice overlap.
            let (first, second) = unsafe { (first.chunk(i), second.chunk(i)) };
            job(i, first, second);
        });
    }

    /// As [`for_each_chunk`](Self::for_each_chunk) over three slices in lockstep.
    pub fn for_each_chunk3<T: Send, U: Send, V: Send>(
        &self,
        (first, first_len): (&mut [T], usize),
        (second, second_len): (&mut [U], usize),
        (third, third_len): (&mut [V], usize),
        job: impl Fn(usize, &mut [T], &mut [U], &mut [V]) + Sync,
    ) {
        let (first, second) = (Chunks::new(first, first_len), Chunks::new(second, second_len));
        let third = Chunks::new(third, third_len);
        assert_eq!(first.count(), second.count(), "slices chunked in step have as many chunks as each other");
        assert_eq!(first.count(), third.count(), "slices chunked in step have as many chunks as each other");
        self.for_each(first.count(), &|i, _| {
            // SAFETY: `for_each` hands out every index once, so no two chunks of one slice overlap.
            let (first, second, third) = unsafe { (first.chunk(i), second.chunk(i), third.chunk(i)) };
            job(i, first, second, third);
        });
    }

    /// Runs `job(worker, team)` on `team` workers *at the same time*, so that they may wait for each other at a
    /// [`Barrier`]. The team has at most `limit` workers, and 1 if the call comes from inside another job.
    pub(crate) fn team(&self, limit: usize, job: &(dyn Fn(usize, usize) + Sync)) {
        let team = limit.min(self.threads());
        if team <= 1 || INSIDE_A_JOB.with(Cell::get) {
            job(0, 1);
        } else {
            self.run_on_all(&|worker| {
                if worker < team {
                    job(worker, team);
                }
            });
        }
    }

    /// Number of polls before a waiting worker yields.
    pub(crate) fn spins(&self) -> u32 {
        self.shared.spins
    }

    /// Keeps the team awake, and reserved for this thread, until the guard is dropped: hand-overs in between take no
    /// lock.
    pub fn hold(&self) -> Held<'_> {
        if self.shared.is_held_here() {
            return Held { pool: None, _turn: None };
        }
        let turn = lock(&self.turn);
        self.shared.held.store(true, Ordering::Relaxed);
        HELD.with(|held| held.set(self.shared.number));
        Held { pool: Some(self), _turn: Some(turn) }
    }

    fn run_on_all(&self, job: &(dyn Fn(usize) + Sync)) {
        let shared = &*self.shared;
        let turn = (!shared.is_held_here()).then(|| lock(&self.turn));
        // SAFETY: only the lifetime changes. No worker touches the job after `running` is back at zero, and this
        // function does not return, nor unwind, before that.
        let job: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(job) };
        // SAFETY: `running` is zero and this thread has the turn, so nobody else reads or writes the cell.
        shared.job.with_mut(|cell| unsafe { *cell = Some(job) });
        shared.running.0.store(self.workers.len(), Ordering::Relaxed);
        // SeqCst pairs with the worker's "parked, then check again": one of the two sees the other.
        shared.generation.0.fetch_add(1, Ordering::SeqCst);
        order_of_all();
        for (parked, worker) in shared.parked.iter().zip(&self.workers) {
            if parked.0.load(Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
        let own = run_guarded(job, 0);
        let mut waiting = Waiting::new(shared.spins);
        while shared.running.0.load(Ordering::Acquire) != 0 {
            waiting.pause();
        }
        let panic = own.err().or_else(|| lock(&shared.panic).take());
        if let Some(panic) = panic {
            lock(&shared.panic).take();
            drop(turn);
            resume_unwind(panic);
        }
    }
}

/// A pool's team, reserved by one thread.
pub struct Held<'a> {
    /// Absent inside another hold of the same pool.
    pool: Option<&'a Pool>,
    _turn: Option<MutexGuard<'a, ()>>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(pool) = self.pool {
            pool.shared.held.store(false, Ordering::Relaxed);
            HELD.with(|held| held.set(NO_POOL));
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.generation.0.fetch_add(1, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // Panics of jobs are caught, so a worker ends only by returning.
            let _ = worker.join();
        }
    }
}

/// Counter of pools: numbers are never reused, unlike addresses.
static POOLS: AtomicU64 = AtomicU64::new(1);
const NO_POOL: u64 = 0;

struct Shared {
    number: u64,
    /// Written by the caller while `running` is zero, read by workers after `generation` has moved.
    job: UnsafeCell<Option<&'static (dyn Fn(usize) + Sync)>>,
    generation: Padded<AtomicUsize>,
    running: Padded<AtomicUsize>,
    parked: Vec<Padded<AtomicBool>>,
    /// Whether a thread holds the team: nobody goes to sleep.
    held: AtomicBool,
    stopping: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Number of polls before a waiting thread yields its CPU: fewer if threads outnumber CPUs.
    spins: u32,
}

// SAFETY: `job` is the only field that is not `Sync`; `generation` and `running` order its writes and reads.
unsafe impl Sync for Shared {}
// SAFETY: the only field that is not `Send` is `job`, and a `&(dyn Fn + Sync)` may go to another thread.
unsafe impl Send for Shared {}

/// Polls of the generation between readings of the clock; one under loom, since more change nothing.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 64 };

/// Whether an idle worker keeps polling. Loom has no time: there it sleeps at once, which is the case to check.
fn is_early(start: Instant) -> bool {
    !cfg!(loom) && start.elapsed() < SPIN
}

#[cfg(not(loom))]
thread_local! {
    static INSIDE_A_JOB: Cell<bool> = const { Cell::new(false) };
    /// Number of the pool that this thread holds.
    static HELD: Cell<u64> = const { Cell::new(NO_POOL) };
}

#[cfg(loom)]
loom::thread_local! {
    static INSIDE_A_JOB: Cell<bool> = Cell::new(false);
    static HELD: Cell<u64> = Cell::new(NO_POOL);
}

impl Shared {
    fn is_held_here(&self) -> bool {
        HELD.with(Cell::get) == self.number
    }

    fn serve(&self, worker: usize) {
        let mut seen = 0;
        loop {
            seen = self.next_generation(worker, seen);
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            // SAFETY: the caller wrote the job before it moved `generation`, and does not write again before this
            // worker has counted itself out of `running`.
            let job = self.job.with(|cell| unsafe { *cell });
            if let Some(job) = job
                && let Err(panic) = run_guarded(job, worker)
            {
                lock(&self.panic).get_or_insert(panic);
            }
            self.running.0.fetch_sub(1, Ordering::Release);
        }
    }

    fn next_generation(&self, worker: usize, seen: usize) -> usize {
        let start = Instant::now();
        let mut waiting = Waiting::new(self.spins);
        loop {
            for _ in 0..LOOKS {
                let generation = self.generation.0.load(Ordering::Acquire);
                if generation != seen {
                    return generation;
                }
                waiting.pause();
            }
            if is_early(start) || self.held.load(Ordering::Relaxed) {
                continue;
            }
            let parked = &self.parked[worker - 1].0;
            parked.store(true, Ordering::SeqCst);
            order_of_all();
            while self.generation.0.load(Ordering::SeqCst) == seen {
                park();
            }
            parked.store(false, Ordering::Relaxed);
        }
    }
}

fn run_guarded(job: &(dyn Fn(usize) + Sync), worker: usize) -> Result<(), Box<dyn Any + Send>> {
    INSIDE_A_JOB.with(|inside| inside.set(true));
    let result = catch_unwind(AssertUnwindSafe(|| job(worker)));
    INSIDE_A_JOB.with(|inside| inside.set(false));
    result
}

/// Ignores poisoning: a panic in a job leaves nothing half-written under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
