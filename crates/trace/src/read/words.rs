//! Eight bytes of text at a time, as one number: for what is too short to call a vectorised search for.

const LOW_BITS: u64 = each(0x01);
const HIGH_BITS: u64 = each(0x80);

const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// How many bytes stand before the first quote or backslash, as far as that is seen in whole words.
#[inline]
pub fn before_quote(text: &[u8]) -> usize {
    let is_zero = |word: u64| word.wrapping_sub(LOW_BITS) & !word & HIGH_BITS;
    up_to(text, |word| is_zero(word ^ each(b'"')) | is_zero(word ^ each(b'\\')))
}

/// How many bytes from the first on are digits, points or signs (`-` to `9`), as far as that is seen in whole words.
#[inline]
pub fn of_number(text: &[u8]) -> usize {
    up_to(text, |word| {
        let above = word.wrapping_add(each(0x80 - (b'9' + 1))) | word;
        let not_below = (word | HIGH_BITS).wrapping_sub(each(b'-'));
        (above | !not_below) & HIGH_BITS
    })
}

/// How many spaces stand first, as far as that is seen in whole words: the indentation of a line.
#[inline]
pub fn of_spaces(text: &[u8]) -> usize {
    up_to(text, |word| word ^ each(b' '))
}

/// The place of the first byte that `marks` sets a bit of; what it sets in later bytes does not count.
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

    /// Every byte at every place of two words, against a plain loop.
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
