//! Messages of collectives, as the profiler records them with their kernels.

use crate::columns::TrackId;
use crate::names::NameId;

/// The message of a collective's kernel. A missing text is empty, a missing number 0.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// The kernel it belongs to: its track and start.
    pub track: TrackId,
    pub start: i64,
    /// `allreduce`, `_allgather_base`: as the profiler spells it.
    pub collective: NameId,
    pub group: NameId,
    /// The group's ranks as the profiler lists them, which may be shortened.
    pub ranks: NameId,
    pub group_size: u32,
    pub bytes_in: u64,
    pub bytes_out: u64,
}

/// Sorts messages by the track and start of their kernels.
pub fn sort(messages: &mut [Message]) {
    messages.sort_by_key(|message| (message.track, message.start));
}

/// The message of the kernel on `track` that starts at `start`.
pub fn find(messages: &[Message], track: TrackId, start: i64) -> Option<&Message> {
    let at = messages.binary_search_by_key(&(track, start), |message| (message.track, message.start)).ok()?;
    messages.get(at)
}
