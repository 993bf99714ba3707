//! Makes text safe to print: names in traces, scripts and registries are untrusted, and terminals obey control
//! characters.

use std::borrow::Cow;

/// Shows control characters as `\u001b`, which is also how JSON writes them; newlines and tabs stay. Marks that change
/// the text direction are shown the same way, because they make a line read as another.
pub fn printable(text: &str) -> Cow<'_, str> {
    // Nearly all of a report is plain ASCII: only the characters that start at other bytes are examined.
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t');
    let is_unsafe_at = |at: usize| text.get(at..).and_then(|rest| rest.chars().next()).is_some_and(is_unsafe);
    if !text.bytes().enumerate().any(|(at, byte)| !is_plain(byte) && is_unsafe_at(at)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match is_unsafe(letter) {
            true => shown.push_str(&format!("\\u{:04x}", u32::from(letter))),
            false => shown.push(letter),
        }
    }
    Cow::Owned(shown)
}

fn is_unsafe(letter: char) -> bool {
    (letter.is_control() && !matches!(letter, '\n' | '\t'))
        || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_written_out() {
        assert_eq!(printable("a\u{1b}[31mred\u{7}"), "a\\u001b[31mred\\u0007");
        assert_eq!(printable("\u{9b}2J\u{7f}\r\u{202e}"), "\\u009b2J\\u007f\\u000d\\u202e");
    }

    #[test]
    fn other_text_stays_as_it_is() {
        let text = "λ → 模型\n\ttable │ 1.5 µs\n";
        assert!(matches!(printable(text), Cow::Borrowed(same) if same == text));
    }
}
