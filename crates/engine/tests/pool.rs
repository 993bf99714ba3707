//! Tests the thread pool: every item runs once, panics propagate, nested and repeated use.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use headroom_engine::cpu::pool::Pool;

const THREADS: [usize; 4] = [1, 2, 3, 5];

fn counters(count: usize) -> Vec<AtomicUsize> {
    (0..count).map(|_| AtomicUsize::new(0)).collect()
}

fn values(counters: &[AtomicUsize]) -> Vec<usize> {
    counters.iter().map(|counter| counter.load(Ordering::SeqCst)).collect()
}

#[test]
fn broadcast_runs_once_on_every_worker() {
    for threads in THREADS {
        let pool = Pool::new(threads).unwrap();
        let runs = counters(threads);
        for _ in 0..100 {
            pool.broadcast(&|worker| {
                runs[worker].fetch_add(1, Ordering::SeqCst);
            });
        }
        assert_eq!(pool.threads(), threads);
        assert_eq!(values(&runs), vec![100; threads]);
    }
}

#[test]
fn every_item_is_run_exactly_once() {
    for threads in THREADS {
        let pool = Pool::new(threads).unwrap();
        for items in [0, 1, 2, 7, 1000] {
            let runs = counters(items);
            pool.for_each(items, &|item, worker| {
                assert!(worker < threads);
                runs[item].fetch_add(1, Ordering::SeqCst);
            });
            assert_eq!(values(&runs), vec![1; items], "{threads} threads");
        }
    }
}

#[test]
fn work_is_found_after_the_workers_have_gone_to_sleep() {
    let pool = Pool::new(2).unwrap();
    let runs = counters(2);
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(10));
        pool.broadcast(&|worker| {
            runs[worker].fetch_add(1, Ordering::SeqCst);
        });
    }
    assert_eq!(values(&runs), [5, 5]);
}

#[test]
fn chunks_are_disjoint_and_the_last_may_be_shorter() {
    for threads in THREADS {
        let pool = Pool::new(threads).unwrap();
        let mut data = vec![0; 23];
        pool.for_each_chunk(&mut data, 5, |i, chunk| chunk.fill(i * 10 + chunk.len()));
        let want: Vec<usize> = (0..23).map(|at| at / 5 * 10 + if at < 20 { 5 } else { 3 }).collect();
        assert_eq!(data, want);
        pool.for_each_chunk(&mut Vec::<u8>::new(), 4, |_, _| panic!("an empty slice has no chunks"));
    }
}

#[test]
fn slices_chunked_in_step_keep_their_own_chunk_lengths() {
    let pool = Pool::new(2).unwrap();
    let (mut rows, mut norms, mut names) = (vec![1.0f32; 7 * 3], vec![0.0f32; 7], vec![0u8; 14]);
    pool.for_each_chunk2((&mut rows, 3), (&mut norms, 1), |i, row, norm| {
        row[0] = i as f32;
        norm[0] = row.iter().sum();
    });
    assert_eq!(norms, [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    pool.for_each_chunk3((&mut rows, 3), (&mut norms, 1), (&mut names, 2), |i, row, norm, name| {
        norm[0] -= row[0];
        name.fill(i as u8);
    });
    assert_eq!(norms, [2.0; 7]);
    assert_eq!(names, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]);
}

#[test]
fn a_panic_in_any_worker_reaches_the_caller_and_the_pool_stays_usable() {
    for threads in THREADS {
        let pool = Pool::new(threads).unwrap();
        for culprit in 0..threads {
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.broadcast(&|worker| {
                    if worker == culprit {
                        std::panic::panic_any(format!("worker {worker}"));
                    }
                });
            }));
            let message = *result.expect_err("the panic is passed on").downcast::<String>().unwrap();
            assert_eq!(message, format!("worker {culprit}"));
        }
        let runs = counters(threads);
        pool.broadcast(&|worker| {
            runs[worker].fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(values(&runs), vec![1; threads]);
    }
}

#[test]
fn a_call_from_inside_a_job_runs_every_item_too() {
    for threads in THREADS {
        let pool = Pool::new(threads).unwrap();
        let (outer, inner) = (counters(8), counters(8 * threads));
        pool.for_each(8, &|item, _| {
            outer[item].fetch_add(1, Ordering::SeqCst);
            pool.broadcast(&|worker| {
                inner[item * threads + worker].fetch_add(1, Ordering::SeqCst);
            });
        });
        assert_eq!(values(&outer), [1; 8]);
        assert_eq!(values(&inner), vec![1; 8 * threads]);
    }
}

#[test]
fn calls_from_two_threads_take_turns() {
    let pool = Pool::new(2).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let runs = counters(2);
                    pool.broadcast(&|worker| {
                        runs[worker].fetch_add(1, Ordering::SeqCst);
                    });
                    assert_eq!(values(&runs), [1, 1]);
                }
            });
        }
    });
}

#[test]
fn dropping_a_pool_ends_its_threads() {
    let before = thread_count();
    for _ in 0..20 {
        let pool = Pool::new(4).unwrap();
        pool.broadcast(&|_| {});
    }
    // Other tests of this file run at the same time; twenty leaked pools of three workers would show.
    assert!(thread_count() < before + 40, "{} threads, {before} before", thread_count());
}

#[cfg(target_os = "linux")]
fn thread_count() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

#[cfg(not(target_os = "linux"))]
fn thread_count() -> usize {
    0
}

#[test]
fn a_held_team_serves_its_holder_and_then_everybody() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let pool = Pool::new(3).unwrap();
    let runs = AtomicUsize::new(0);
    {
        let _held = pool.hold();
        let _again = pool.hold();
        for _ in 0..100 {
            pool.broadcast(&|_| _ = runs.fetch_add(1, Ordering::Relaxed));
        }
    }
    assert_eq!(runs.load(Ordering::Relaxed), 300);
    std::thread::scope(|scope| {
        scope.spawn(|| pool.broadcast(&|_| _ = runs.fetch_add(1, Ordering::Relaxed)));
        pool.broadcast(&|_| _ = runs.fetch_add(1, Ordering::Relaxed));
    });
    assert_eq!(runs.load(Ordering::Relaxed), 306);
}
