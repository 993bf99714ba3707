//! Words between ranks: each one's to all others.

use super::error::RanksError;
use super::mpi::World;
use super::waiting::wait;
use std::time::Duration;

/// Words of one rank at most: a list of flags, not data.
const MOST_WORDS: usize = 1 << 24;

/// Every rank's words, in the order of the ranks.
pub fn gather(world: &World, mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>, RanksError> {
    let lengths = exchanged(world, &vec![8; world.size], &(mine.len() as u64).to_le_bytes(), patience)?;
    let lengths: Vec<usize> =
        lengths.into_iter().map(|words| words.try_into().map_or(0, u64::from_le_bytes) as usize).collect();
    if let Some(rank) = lengths.iter().position(|length| *length > MOST_WORDS) {
        return Err(RanksError::OtherLength { rank, have: lengths[rank], want: mine.len() });
    }
    exchanged(world, &lengths, mine, patience)
}

fn exchanged(world: &World, lengths: &[usize], mine: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>, RanksError> {
    let mut all: Vec<Vec<u8>> = lengths.iter().map(|length| vec![0; *length]).collect();
    let own = mine.to_vec();
    let mut requests = vec![];
    let mut started = Ok(());
    for peer in (0..world.size).filter(|peer| *peer != world.rank) {
        // SAFETY: both live until the requests are done, or are never given back.
        started = started.and_then(|()| unsafe {
            world.receive(peer, &mut all[peer], &mut requests)?;
            world.send(peer, &own, &mut requests)
        });
    }
    let outcome = started.and_then(|()| wait(world, &mut requests, patience));
    if let Err(error) = outcome {
        // Messages may still come in.
        std::mem::forget((all, own));
        return Err(error);
    }
    all[world.rank] = own;
    Ok(all)
}
