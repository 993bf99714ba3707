//! Runs on a tree, several at a time: a small model leaves most of a second thread idle, a run of its own does not.

use super::{Arm, Task, Texts, TreeDesign, run};
use crate::bench::ExperimentError;
use headroom_record::k1_tree::K1TreeRun;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// One run to be done.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub arm: Arm,
    /// One of [`Task::NAMES`].
    pub task: &'static str,
    pub seed: u64,
    pub steps: u64,
}

/// Runs the jobs in order, `workers` at a time, and reports each as it finishes. When told to stop, it ends after those
/// in progress.
pub fn run_all<E: From<ExperimentError>>(
    design: &TreeDesign,
    texts: &Texts,
    jobs: &[Job],
    workers: usize,
    stop: &AtomicBool,
    mut tell: impl FnMut(K1TreeRun) -> Result<(), E>,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let is_over = || stop.load(Ordering::Relaxed) || failed.load(Ordering::Relaxed);
    let work = |done: mpsc::Sender<Result<K1TreeRun, ExperimentError>>| {
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)).filter(|_| !is_over()) {
            if done.send(run_job(design, texts, job)).is_err() {
                return;
            }
        }
    };
    thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for _ in 0..workers.max(1) {
            let sender = sender.clone();
            scope.spawn(|| work(sender));
        }
        drop(sender);
        for result in results {
            if let Err(error) = result.map_err(E::from).and_then(&mut tell) {
                failed.store(true, Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(())
    })
}

fn run_job(design: &TreeDesign, texts: &Texts, job: &Job) -> Result<K1TreeRun, ExperimentError> {
    let task = Task::named(job.task, design, texts, job.seed)?;
    run(design, &job.arm, &task, job.seed, job.steps)
}
