//! Batches prepared ahead by a thread, so that the training step finds its data ready.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use super::{Batch, DataError, Source};

/// Batches in circulation: one in use, the others ready or being filled.
const BUFFERS: usize = 3;

/// Hands out the batches of a source in order. All buffers are allocated at the start and reused.
#[derive(Debug)]
pub struct Prefetcher {
    /// `None` only while dropping: closing both channels is what ends the thread.
    filled: Option<Receiver<Result<Filled, DataError>>>,
    empty: Option<SyncSender<Batch>>,
    thread: Option<JoinHandle<()>>,
    in_use: Option<Batch>,
}

#[derive(Debug)]
pub struct Fetched<'a> {
    pub batch: &'a Batch,
    /// Index of the first sample that no rank has read after this batch.
    pub next_sample: u64,
}

/// A batch, and the index of the sample after it and its fellows on the other ranks.
type Filled = (Batch, u64);

/// One of the processes that share the data: of every `ranks` batches in a row, it reads number `rank`.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub rank: usize,
    pub ranks: usize,
}

impl Share {
    pub const WHOLE: Share = Share { rank: 0, ranks: 1 };
}

impl Prefetcher {
    /// All batches from sample `first` on.
    pub fn start(source: Source, first: u64) -> Result<Prefetcher, DataError> {
        Prefetcher::of_rank(source, first, Share::WHOLE)
    }

    /// One rank's batches from sample `first` on.
    pub fn of_rank(source: Source, first: u64, share: Share) -> Result<Prefetcher, DataError> {
        // Both channels have room for every buffer, so neither side ever blocks on a send.
        let (give_filled, filled) = sync_channel(BUFFERS);
        let (empty, take_empty) = sync_channel(BUFFERS);
        for _ in 0..BUFFERS {
            empty.send(Batch::new(source.shape())).map_err(|_| DataError::Ended)?;
        }
        let thread = thread::Builder::new()
            .name("data".to_string())
            .spawn(move || fill_batches(&source, first, share, &take_empty, &give_filled))
            .map_err(DataError::Thread)?;
        Ok(Prefetcher { filled: Some(filled), empty: Some(empty), thread: Some(thread), in_use: None })
    }

    /// The next batch; the previous one goes back to be refilled. After an error there are no more batches.
    pub fn fetch(&mut self) -> Result<Fetched<'_>, DataError> {
        let (Some(filled), Some(empty)) = (&self.filled, &self.empty) else {
            return Err(DataError::Ended);
        };
        if let Some(used) = self.in_use.take() {
            // A thread that has ended gave the reason in its last message.
            let _ = empty.send(used);
        }
        let (batch, next_sample) = filled.recv().map_err(|_| DataError::Ended)??;
        Ok(Fetched { batch: self.in_use.insert(batch), next_sample })
    }
}

impl Drop for Prefetcher {
    fn drop(&mut self) {
        self.filled = None;
        self.empty = None;
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic in the thread.
            let _ = thread.join();
        }
    }
}

fn fill_batches(
    source: &Source,
    first: u64,
    share: Share,
    empty: &Receiver<Batch>,
    filled: &SyncSender<Result<Filled, DataError>>,
) {
    let rows = source.shape().batch_size as u64;
    let mut next = first;
    loop {
        let Ok(mut batch) = empty.recv() else { return };
        let own = source.after(next, share.rank as u64 * rows);
        next = source.after(own, (share.ranks - share.rank) as u64 * rows);
        let outcome = source.fill_from(own, &mut batch).map(|()| (batch, next));
        let failed = outcome.is_err();
        if filled.send(outcome).is_err() || failed {
            return;
        }
    }
}
