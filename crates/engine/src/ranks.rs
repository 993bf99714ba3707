//! Processes that train one model together, and the communication between them.
//!
//! A common launcher (`mpirun`, `srun`, …) starts them; MPI, found at run time, carries the messages. One thread per
//! process makes all calls to MPI, so that the exchange of one bucket overlaps the computation of the next gradient.
//! Sums are our own and run in rank order: their bytes depend only on the number of ranks.
//!
//! Between GPUs, NCCL carries tensors (`cuda::wire`); control messages go through MPI, or through `star` if the
//! launcher does not support MPI.

mod error;
mod exchange;
mod heartbeats;
mod jobs;
pub mod launch;
mod library;
pub mod measure;
mod mpi;
mod say;
mod shared;
mod star;
mod transfer;
mod waiting;

pub use error::RanksError;
pub use exchange::staging_elements;
pub use launch::{Launched, Launcher};
pub use star::Meeting;
pub use transfer::{Kind, Place, Transfer};

use library::Found;
use shared::{Job, Shared};
use star::Star;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// This process as one of the ranks. All ranks make every call, in the same order.
#[derive(Debug)]
pub struct Ranks {
    rank: usize,
    size: usize,
    library: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Carries control messages if there is no MPI.
    star: Option<Mutex<Star>>,
}

impl Ranks {
    /// Joins the other ranks. A rank that does not appear, or later sends nothing, is waited for at most `patience`.
    pub fn connect(launched: &Launched, patience: Duration) -> Result<Ranks, RanksError> {
        let found = library::open(launched.by)?;
        let Found { calls, path } = found;
        let (tell, told) = sync_channel(1);
        let shared = Arc::new(Shared::new(patience));
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("ranks".into())
            .spawn(move || match calls.start() {
                Ok(world) => {
                    let _ = tell.send(Ok((world.rank, world.size, world.version.clone())));
                    jobs::serve(&world, &own);
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                }
            })
            .map_err(|error| RanksError::Thread { error: error.to_string() })?;
        let (rank, size, version) = match told.recv_timeout(patience) {
            Ok(answer) => answer?,
            Err(RecvTimeoutError::Timeout) => return Err(RanksError::NotAllCame { seconds: patience.as_secs_f64() }),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(RanksError::Thread { error: "it ended before it could answer".into() });
            }
        };
        if (rank, size) != (launched.rank, launched.size) {
            return Err(RanksError::OtherWorld { launched: *launched, path, version, rank, size });
        }
        Ok(Ranks { rank, size, library: version, shared, thread: Some(thread), star: None })
    }

    /// Joins the other ranks for control messages only, between GPUs: through MPI if the launcher supports it, else
    /// through rank 0's host and port as named by the launcher's variables.
    pub fn connect_words(launched: &Launched, patience: Duration) -> Result<Ranks, RanksError> {
        let meeting = Meeting::of(launched.by.name(), |name| std::env::var(name).ok());
        // Scripts that start PyTorch with srun set both variables and use no MPI.
        let prefers_star = launched.by == Launcher::Slurm && meeting.is_ok();
        if launched.by.serves_mpi() && !prefers_star {
            match Ranks::connect(launched, patience) {
                Err(RanksError::NoLibrary { .. }) if meeting.is_ok() => {}
                other => return other,
            }
        }
        Ranks::meet(launched, &meeting?, patience)
    }

    /// Meets the other ranks at rank 0's port.
    pub fn meet(launched: &Launched, meeting: &Meeting, patience: Duration) -> Result<Ranks, RanksError> {
        let star = Some(Mutex::new(Star::meet(launched, meeting, patience)?));
        let library = format!("NCCL, with control messages through {}", meeting.host);
        let &Launched { rank, size, .. } = launched;
        Ok(Ranks { rank, size, library, shared: Arc::new(Shared::new(patience)), thread: None, star })
    }

    /// How long to wait for a silent rank.
    pub fn patience(&self) -> Duration {
        self.shared.patience
    }

    /// A rank whose connection shows that it has gone. `None` while messages are being exchanged, or if they go through
    /// MPI.
    pub(crate) fn lost_rank(&self) -> Option<usize> {
        self.star.as_ref()?.try_lock().ok()?.lost_rank()
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn size(&self) -> usize {
        self.size
    }

    /// MPI's name and version, as it reports them.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// Every rank's message, in rank order. Waits for a rank that has something long to do first.
    pub fn gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>, RanksError> {
        if let Some(star) = &self.star {
            return star.lock().unwrap_or_else(PoisonError::into_inner).gather(mine);
        }
        let ticket = self.shared.submit(Job::Say { mine: mine.to_vec() });
        self.shared.wait_for(ticket)?;
        Ok(self.shared.heard())
    }

    /// The largest of the ranks' values.
    pub fn largest(&self, mine: u64) -> Result<u64, RanksError> {
        let said = self.gather(&mine.to_le_bytes())?;
        let number = |words: Vec<u8>| words.try_into().map_or(0, u64::from_le_bytes);
        Ok(said.into_iter().map(number).max().unwrap_or(mine))
    }

    /// Starts an exchange; `wait_for` returns when it is done.
    ///
    /// # Safety
    /// The memory that the transfer reads and writes must stay live and otherwise untouched until it was waited for, or
    /// `leave` returned.
    pub(crate) unsafe fn start(&self, transfer: &Arc<Transfer>) -> u64 {
        self.shared.submit(Job::Exchange(Arc::clone(transfer)))
    }

    pub(crate) fn wait_for(&self, ticket: u64) -> Result<(), RanksError> {
        if self.star.is_some() {
            return Err(RanksError::Left);
        }
        self.shared.wait_for(ticket)
    }

    /// After this, no memory of a transfer is touched: the values that exchanges read and write may be freed.
    pub(crate) fn leave(&self) {
        self.shared.leave();
    }

    /// Until the guard is dropped, device calls must keep coming: a rank on which none finishes for as long as the
    /// patience lasts counts as hung.
    pub fn stepping(self: &Arc<Ranks>) -> Stepping {
        self.shared.watch(true);
        Stepping { ranks: Arc::clone(self), begin: Instant::now() }
    }

    /// Time that this rank spent in steps, without waiting for other ranks.
    pub fn worked(&self) -> Duration {
        self.shared.worked()
    }

    /// Notes that a device call finished.
    pub(crate) fn called(&self) {
        self.shared.called();
    }

    /// Adds this delay to every later device call, to test how a slow rank affects the others.
    pub fn slow_down(&self, each_call: Duration) {
        self.shared.slow_down(each_call);
    }

    /// Ends every rank with this exit code, whatever is in flight. Returns if MPI does not end this process at once.
    pub fn abort(&self, code: i32) {
        if let Some(star) = &self.star {
            star.lock().unwrap_or_else(PoisonError::into_inner).tell(&RanksError::Closed { rank: self.rank });
            return;
        }
        self.shared.ask_to_abort(code);
        // MPI ends the process long before this expires.
        thread::sleep(Duration::from_secs(5));
    }

    /// Leaves together with the other ranks. Waits for them as long as they send heartbeats.
    pub fn finish(&mut self) -> Result<(), RanksError> {
        if self.star.is_some() {
            // Whoever left first would look dead to the others.
            return self.gather(&[]).map(|_| ());
        }
        let ticket = self.shared.submit(Job::Finish);
        self.shared.wait_for(ticket)?;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        Ok(())
    }
}

/// Steps run while this guard lives.
pub struct Stepping {
    ranks: Arc<Ranks>,
    begin: Instant,
}

impl Drop for Stepping {
    fn drop(&mut self) {
        self.ranks.shared.watch(false);
        self.ranks.shared.was_watched(self.begin.elapsed());
    }
}
