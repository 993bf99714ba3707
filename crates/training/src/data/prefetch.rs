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
    filled: Option<Receiver<Result<Batch, DataError>>>,
    empty: Option<SyncSender<Batch>>,
    thread: Option<JoinHandle<()>>,
    in_use: Option<Batch>,
    next_position: u64,
    stride: u64,
}

#[derive(Debug)]
pub struct Fetched<'a> {
    pub batch: &'a Batch,
    pub position: u64,
}

impl Prefetcher {
    pub fn start(source: Source, first_position: u64) -> Result<Prefetcher, DataError> {
        Prefetcher::every(source, first_position, 1)
    }

    /// Every `stride`-th batch: the batches of one rank out of `stride`.
    pub fn every(source: Source, first_position: u64, stride: u64) -> Result<Prefetcher, DataError> {
        // Both channels have room for every buffer, so neither side ever blocks on a send.
        let (give_filled, filled) = sync_channel(BUFFERS);
        let (empty, take_empty) = sync_channel(BUFFERS);
        for _ in 0..BUFFERS {
            empty.send(Batch::new(source.shape())).map_err(|_| DataError::Ended)?;
        }
        let thread = thread::Builder::new()
            .name("data".to_string())
            .spawn(move || fill_batches(&source, first_position, stride, &take_empty, &give_filled))
            .map_err(DataError::Thread)?;
        Ok(Prefetcher {
            filled: Some(filled),
            empty: Some(empty),
            thread: Some(thread),
            in_use: None,
            next_position: first_position,
            stride,
        })
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
        let batch = filled.recv().map_err(|_| DataError::Ended)??;
        let position = self.next_position;
        self.next_position = self.next_position.wrapping_add(self.stride);
        Ok(Fetched { batch: self.in_use.insert(batch), position })
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
    first_position: u64,
    stride: u64,
    empty: &Receiver<Batch>,
    filled: &SyncSender<Result<Batch, DataError>>,
) {
    let mut next = first_position;
    loop {
        let position = next;
        next = next.wrapping_add(stride);
        let Ok(mut batch) = empty.recv() else { return };
        let outcome = source.fill(position, &mut batch).map(|()| batch);
        let failed = outcome.is_err();
        if filled.send(outcome).is_err() || failed {
            return;
        }
    }
}
