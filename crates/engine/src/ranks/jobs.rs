//! The communication thread: it runs jobs in order, reports when each is done, and sends heartbeats in between.

use super::exchange::{Staging, exchange};
use super::heartbeats::Heartbeats;
use super::mpi::World;
use super::say;
use super::shared::{Job, Shared};
use super::waiting::{Line, leave};

/// Runs jobs until told to finish. After a failure, the only thing left to request is the end of all ranks.
pub fn serve(world: &World, shared: &Shared) {
    let mut staging = Staging::default();
    let mut line = Line { world, shared, heartbeats: Heartbeats::new(world, shared.patience), job: 0, words: false };
    loop {
        let next = shared.next(line.heartbeats.interval() / 2);
        if let Some(code) = shared.abort_code() {
            world.abort(code);
        }
        let Some(job) = next else {
            // A failure here belongs to messages of other ranks, and surfaces where they are waited for.
            if !shared.has_failed() {
                let _ = line.heartbeats.tell(world, shared.progress(), line.job);
            }
            continue;
        };
        let outcome = match job {
            _ if shared.has_failed() => Ok(None),
            Job::Finish => leave(&mut line).map(|()| None),
            Job::Exchange(ref transfer) => {
                line.words = false;
                exchange(&mut line, shared, transfer, &mut staging).map(|()| None)
            }
            Job::Say { ref mine } => {
                line.words = true;
                say::gather(&mut line, mine).map(Some)
            }
        };
        line.job += 1;
        if outcome.is_err() {
            // Unfinished requests may still be written to: the memory they point to is leaked.
            std::mem::forget(std::mem::take(&mut staging));
        }
        shared.finished(outcome);
        if matches!(job, Job::Finish) {
            return;
        }
    }
}
