//! Control messages between ranks: each rank's to all others.

use super::error::RanksError;
use super::waiting::{Line, wait};

/// Longest message of one rank: a list of flags, not data.
const MOST_WORDS: usize = 1 << 24;

/// Size of the first message of every rank: the length of its words, and as many of them as fit. Usually all do.
const LETTER: usize = 64;
const LENGTH: usize = 8;

/// Every rank's message, in rank order.
pub fn gather(line: &mut Line, mine: &[u8]) -> Result<Vec<Vec<u8>>, RanksError> {
    let mut letter = vec![0; LETTER];
    letter[..LENGTH].copy_from_slice(&(mine.len() as u64).to_le_bytes());
    let fits = mine.len().min(LETTER - LENGTH);
    letter[LENGTH..LENGTH + fits].copy_from_slice(&mine[..fits]);
    let size = line.world.size;
    let mut all = exchanged(line, &vec![LETTER; size], &letter)?;
    let length = |letter: &Vec<u8>| {
        let (length, _) = letter.split_first_chunk::<LENGTH>()?;
        usize::try_from(u64::from_le_bytes(*length)).ok()
    };
    let lengths: Vec<usize> = all.iter().map(|letter| length(letter).unwrap_or(usize::MAX)).collect();
    if let Some(rank) = lengths.iter().position(|length| *length > MOST_WORDS) {
        return Err(RanksError::OtherLength { rank, have: lengths[rank], want: MOST_WORDS });
    }
    let rest = |length: &usize| if *length > LETTER - LENGTH { *length } else { 0 };
    let rests: Vec<usize> = lengths.iter().map(rest).collect();
    let longer =
        if rests.iter().any(|rest| *rest > 0) { exchanged(line, &rests, &mine[..rest(&mine.len())])? } else { vec![] };
    for (rank, words) in all.iter_mut().enumerate() {
        match rests[rank] {
            0 => {
                words.truncate(LENGTH + lengths[rank]);
                words.drain(..LENGTH);
            }
            _ => words.clone_from(&longer[rank]),
        }
    }
    Ok(all)
}

/// Exchanges messages of these lengths; empty ones are not sent.
fn exchanged(line: &mut Line, lengths: &[usize], mine: &[u8]) -> Result<Vec<Vec<u8>>, RanksError> {
    let mut all: Vec<Vec<u8>> = lengths.iter().map(|length| vec![0; *length]).collect();
    let own = mine.to_vec();
    let mut requests = vec![];
    let mut started = Ok(());
    let (world, tag) = (line.world, line.tag());
    for peer in (0..world.size).filter(|peer| *peer != world.rank) {
        // SAFETY: both live until the requests are done, or are leaked.
        started = started.and_then(|()| unsafe {
            world.receive(peer, tag, &mut all[peer], &mut requests)?;
            world.send(peer, tag, &own, &mut requests)
        });
    }
    let outcome = started.and_then(|()| wait(line, &mut requests));
    if let Err(error) = outcome {
        // Messages may still arrive.
        std::mem::forget((all, own));
        return Err(error);
    }
    all[world.rank] = own;
    Ok(all)
}
