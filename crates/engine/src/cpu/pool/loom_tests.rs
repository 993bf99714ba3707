//! Checks the pool's guarantees under every thread interleaving: run by `cargo xtask miri`.
//!
//! `preemption_bound` limits how often a thread may be preempted where it does not wait. Three finds every bug that
//! small tests of this kind are known to hide, and keeps them within seconds.

use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};

use super::waiting::{Barrier, StepProgress};
use super::*;

fn in_every_order(check: impl Fn() + Sync + Send + 'static) {
    let mut model = Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

/// One cell per worker.
struct Cells<'a>(&'a [UnsafeCell<usize>]);

// SAFETY: each worker writes its own cell; the caller reads after all are done.
unsafe impl Sync for Cells<'_> {}

impl Cells<'_> {
    fn of(&self, worker: usize) -> &UnsafeCell<usize> {
        &self.0[worker]
    }
}

#[test]
fn a_job_is_seen_by_a_worker_that_sleeps_or_does_not() {
    in_every_order(|| {
        let pool = Pool::new(2).unwrap();
        // Written without an atomic by each worker and read by the caller: loom reports any access that the pool does
        // not order.
        let written = [UnsafeCell::new(0), UnsafeCell::new(0)];
        let cells = Cells(&written);
        for round in 1..=2 {
            // SAFETY: each worker writes its own cell.
            pool.broadcast(&|worker| cells.of(worker).with_mut(|cell| unsafe { *cell += round }));
        }
        // SAFETY: all workers are done when `broadcast` returns, so nobody writes.
        let sum: usize = written.iter().map(|cell| cell.with(|cell| unsafe { *cell })).sum();
        assert_eq!(sum, 6);
    });
}

#[test]
fn every_item_is_claimed_once_whoever_is_first() {
    in_every_order(|| {
        let pool = Pool::new(2).unwrap();
        let runs: Vec<AtomicUsize> = (0..3).map(|_| AtomicUsize::new(0)).collect();
        pool.for_each(3, &|item, _| {
            runs[item].fetch_add(1, Ordering::Relaxed);
        });
        assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1));
    });
}

#[test]
fn a_panic_of_a_worker_reaches_the_caller_and_the_pool_goes_on() {
    in_every_order(|| {
        let pool = Pool::new(2).unwrap();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            pool.broadcast(&|worker| {
                if worker == 1 {
                    std::panic::resume_unwind(Box::new("within a job"));
                }
            });
        }));
        assert!(ended.is_err());
        let runs = AtomicUsize::new(0);
        pool.broadcast(&|_| {
            runs.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(runs.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn callers_take_turns() {
    in_every_order(|| {
        let pool = Arc::new(Pool::new(2).unwrap());
        let runs = Arc::new(AtomicUsize::new(0));
        let count = |pool: &Pool, runs: &AtomicUsize| {
            pool.broadcast(&|_| {
                runs.fetch_add(1, Ordering::Relaxed);
            });
        };
        let other = {
            let (pool, runs) = (pool.clone(), runs.clone());
            loom::thread::spawn(move || count(&pool, &runs))
        };
        count(&pool, &runs);
        other.join().unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 4);
    });
}

#[test]
fn a_held_team_takes_jobs_and_is_let_go() {
    in_every_order(|| {
        let pool = Pool::new(2).unwrap();
        let runs = AtomicUsize::new(0);
        let job = |_: usize| {
            runs.fetch_add(1, Ordering::Relaxed);
        };
        let held = pool.hold();
        pool.broadcast(&job);
        drop(held);
        pool.broadcast(&job);
        assert_eq!(runs.load(Ordering::Relaxed), 4);
    });
}

#[test]
fn what_was_written_before_a_barrier_is_read_after_it() {
    in_every_order(|| {
        let shared = Arc::new((Barrier::new(), UnsafeCell::new(0), AtomicUsize::new(0)));
        let other = {
            let shared = shared.clone();
            loom::thread::spawn(move || {
                // SAFETY: before the barrier only this thread writes; after it, both read.
                shared.1.with_mut(|cell| unsafe { *cell = 7 });
                shared.0.wait(2, 1, || _ = shared.2.fetch_add(1, Ordering::Relaxed));
            })
        };
        shared.0.wait(2, 1, || _ = shared.2.fetch_add(1, Ordering::Relaxed));
        // SAFETY: after the barrier nobody writes; both read.
        assert_eq!(shared.1.with(|cell| unsafe { *cell }), 7);
        assert_eq!(shared.2.load(Ordering::Relaxed), 1, "one of them runs what lies between");
        other.join().unwrap();
    });
}

#[test]
fn a_follower_reads_what_its_leader_wrote() {
    in_every_order(|| {
        let shared = Arc::new((StepProgress::new(), UnsafeCell::new(0)));
        let leader = {
            let shared = shared.clone();
            loom::thread::spawn(move || {
                let lead = shared.0.lead();
                // SAFETY: the follower reads only after the step is done.
                shared.1.with_mut(|cell| unsafe { *cell = 3 });
                lead.has_done(1);
            })
        };
        shared.0.follow(1, 1);
        // SAFETY: the leader wrote before it said that the step is done, and does not write again.
        assert_eq!(shared.1.with(|cell| unsafe { *cell }), 3);
        leader.join().unwrap();
    });
}
