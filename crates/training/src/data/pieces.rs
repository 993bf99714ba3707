//! Reads text of any size in pieces that end where a tokenizer would split anyway.

use std::io::Read;
use std::path::Path;

use headroom_record::atomic::FileError;
use headroom_record::reading;

use super::DataError;

const PIECE_BYTES: usize = 1 << 20;

/// Hands over the text of a file in pieces of about a megabyte. `bad` builds the error for the first byte that is not
/// UTF-8.
pub(super) fn read_text<E: From<DataError>>(
    path: &Path,
    bad: impl Fn(u64) -> DataError,
    mut take: impl FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let reading = |source| DataError::from(FileError::new("read", path)(source));
    let mut file = reading::open(path).map_err(reading)?;
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

/// Ends a piece after its last newline. Without one, before its last space, which tokenizers join to the following
/// word. Without either, before a character that may continue in the next piece.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths of the pieces of a text; the pieces concatenated are the text.
    fn lengths(text: &str) -> Vec<usize> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text.txt");
        std::fs::write(&path, text).unwrap();
        let (mut whole, mut lengths) = (String::new(), vec![]);
        let bad = |offset| -> DataError { panic!("byte {offset} is taken for no UTF-8") };
        let taken: Result<(), DataError> = read_text(&path, bad, |piece| {
            whole.push_str(piece);
            lengths.push(piece.len());
            Ok(())
        });
        taken.unwrap();
        assert!(whole == text, "the pieces are not the text");
        lengths
    }

    #[test]
    fn pieces_end_after_a_line_before_a_space_or_between_characters() {
        let piece = PIECE_BYTES;
        assert_eq!(lengths(""), [0]);
        assert_eq!(lengths("a b\nc"), [5]);
        let long = |end: &str| format!("{}{end}{}", "x".repeat(piece - 10), "y".repeat(20));
        assert_eq!(lengths(&long("\n")), [piece - 9, 20]);
        assert_eq!(lengths(&long(" ")), [piece - 10, 21]);
        assert_eq!(lengths(&long(" z\nz ")), [piece - 7, 22]);
        // Characters of two, three and four bytes are never split; a last one that might continue waits for the next
        // piece.
        for (character, first) in [("é", piece - 2), ("€", (piece - 1) / 3 * 3), ("𝄞", piece - 4), ("x", piece - 1)]
        {
            let text = character.repeat(piece / character.len() + 8);
            assert_eq!(lengths(&text), [first, text.len() - first], "{character}");
        }
        // A leading space is not a place to end a piece.
        let spaced = format!(" {}", "x".repeat(piece + 5));
        assert_eq!(lengths(&spaced), [piece - 1, spaced.len() + 1 - piece]);
    }

    #[test]
    fn the_first_byte_that_is_no_text_is_told_by_its_place_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text.txt");
        let mut bytes = "line\n".repeat(PIECE_BYTES / 5 + 3).into_bytes();
        let place = bytes.len() - 4;
        bytes[place] = 0xFF;
        std::fs::write(&path, &bytes).unwrap();
        let told = std::cell::Cell::new(None);
        let bad = |offset| {
            told.set(Some(offset));
            DataError::NotSettled { change: 0.0 }
        };
        let taken: Result<(), DataError> = read_text(&path, bad, |_| Ok(()));
        assert!(taken.is_err());
        assert_eq!(told.get(), Some(place as u64));
    }
}
