//! Text of any size, read in pieces that end where a tokenizer would cut anyway.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use headroom_record::atomic::FileError;

use super::DataError;

const PIECE_BYTES: usize = 1 << 20;

/// Hands over the text of a file in pieces of about a megabyte. `bad` makes the error for the first byte that is not UTF-8.
pub(super) fn read_text<E: From<DataError>>(
    path: &Path,
    bad: impl Fn(u64) -> DataError,
    mut take: impl FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let reading = |source| DataError::from(FileError::new("read", path)(source));
    let mut file = File::open(path).map_err(reading)?;
    let mut pending: Vec<u8> = Vec::new();
    let mut done_bytes = 0;
    loop {
        let read = (&mut file).take(PIECE_BYTES as u64).read_to_end(&mut pending).map_err(reading)?;
        let ended = read < PIECE_BYTES;
        let whole = if ended { pending.len() } else { end_of_piece(&pending) };
        let piece =
            std::str::from_utf8(&pending[..whole]).map_err(|error| bad(done_bytes + error.valid_up_to() as u64))?;
        take(piece)?;
        if ended {
            return Ok(());
        }
        pending.drain(..whole);
        done_bytes += whole as u64;
    }
}

/// After the last line's end; in a piece without one, before the last space, which tokenizers join to the word after it;
/// in a piece without either, before a character that may go on in the next.
fn end_of_piece(bytes: &[u8]) -> usize {
    let last = |wanted: u8| bytes.iter().rposition(|byte| *byte == wanted);
    if let Some(newline) = last(b'\n') {
        return newline + 1;
    }
    if let Some(space) = last(b' ').filter(|space| *space > 0) {
        return space;
    }
    let tail = bytes.len().saturating_sub(4);
    let last_start = bytes[tail..].iter().rposition(|byte| byte & 0xC0 != 0x80);
    last_start.map_or(bytes.len(), |place| tail + place)
}
