//! Scans text eight bytes at a time, as one integer: for spans too short for a vectorised search.

const LOW_BITS: u64 = each(0x01);
const HIGH_BITS: u64 = each(0x80);

const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// The number of bytes before the first quote or backslash, counting whole words only.
#[inline]
pub fn before_quote(text: &[u8]) -> usize {
    let is_zero = |word: u64| word.wrapping_sub(LOW_BITS) & !word & HIGH_BITS;
    up_to(text, |word| is_zero(word ^ each(b'"')) | is_zero(word ^ each(b'\\')))
}

/// The number of leading bytes between `-` and `9` (digits, points, signs), counting whole words only.
#[inline]
pub fn of_number(text: &[u8]) -> usize {
    up_to(text, |word| {
        let above = word.wrapping_add(each(0x80 - (b'9' + 1))) | word;
        let not_below = (word | HIGH_BITS).wrapping_sub(each(b'-'));
        (above | !not_below) & HIGH_BITS
    })
}

/// The number of leading spaces, counting whole words only: the indentation of a line.
#[inline]
pub fn of_spaces(text: &[u8]) -> usize {
    up_to(text, |word| word ^ each(b' '))
}

/// The offset of the first byte in which `marks` sets a bit; bits in later bytes are ignored.
#[inline]
fn up_to(text: &[u8], marks: impl Fn(u64) -> u64) -> usize {
    let mut at = 0;
    while let Some(bytes) = text.get(at..).and_then(<[u8]>::first_chunk) {
        let found = marks(u64::from_le_bytes(*bytes));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares every byte at every offset of two words with a plain loop.
    #[test]
    fn words_tell_what_single_bytes_tell() {
        for byte in 0..=255u8 {
            for place in 0..16 {
                let mut text = *b"0123-567.9012345";
                text[place] = byte;
                let quote = text.iter().position(|byte| matches!(byte, b'"' | b'\\')).unwrap_or(16);
                assert_eq!(before_quote(&text), quote, "{byte} at {place}");
                let number = text.iter().position(|byte| !matches!(byte, b'-'..=b'9')).unwrap_or(16);
                assert_eq!(of_number(&text), number, "{byte} at {place}");
            }
        }
        assert_eq!((before_quote(b"abc"), of_number(b"123")), (0, 0), "shorter than a word");
        for count in 0..=16 {
            assert_eq!(of_spaces(format!("{}{}", " ".repeat(count), "x".repeat(16 - count)).as_bytes()), count);
        }
    }
}
