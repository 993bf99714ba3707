//! Rust source with comments and the contents of literals blanked, so that words can be searched for in the code alone.

/// Same length and same lines as `source`; quotes stay, and everything between them becomes spaces.
pub fn without_comments_and_literals(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut blanked = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let (inside, next) = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => {
                let end = end_of_line(bytes, at);
                (at..end, end)
            }
            b'/' if bytes[at..].starts_with(b"/*") => {
                let end = end_of_block_comment(bytes, at);
                (at..end, end)
            }
            b'"' => {
                let close = closing_quote(bytes, at + 1, b'"');
                (at + 1..close, close + 1)
            }
            b'r' if starts_raw_string(bytes, at) => {
                let hashes = count_hashes(bytes, at + 1);
                let open = at + 1 + hashes + 1;
                let close = closing_raw_quote(bytes, open, hashes);
                (open..close, close + 1 + hashes)
            }
            b'\'' if is_char_literal(source, at) => {
                let close = closing_quote(bytes, at + 1, b'\'');
                (at + 1..close, close + 1)
            }
            _ => (at..at, at + 1),
        };
        for byte in &mut blanked[inside] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = next;
    }
    // Only whole literals and comments were replaced, so no character is split.
    String::from_utf8_lossy(&blanked).into_owned()
}

/// Byte offsets at which `word` occurs in `code` as a whole name.
pub fn find_word<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(offset, _)| offset).filter(move |offset| {
        let before = code[..*offset].bytes().next_back();
        let after = code[offset + word.len()..].bytes().next();
        let joins_after = word.bytes().next_back().is_some_and(is_name_byte) && after.is_some_and(is_name_byte);
        !before.is_some_and(is_name_byte) && !joins_after
    })
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn end_of_line(bytes: &[u8], from: usize) -> usize {
    bytes[from..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| from + length)
}

/// Block comments nest in Rust.
fn end_of_block_comment(bytes: &[u8], from: usize) -> usize {
    let mut depth = 0;
    let mut at = from;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn closing_quote(bytes: &[u8], from: usize, quote: u8) -> usize {
    let mut at = from;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at.min(bytes.len())
}

fn count_hashes(bytes: &[u8], from: usize) -> usize {
    bytes[from..].iter().take_while(|byte| **byte == b'#').count()
}

/// `r"`, `r#"` and so on, if the `r` (or `br`, `cr`) does not end a longer name.
fn starts_raw_string(bytes: &[u8], at: usize) -> bool {
    let quote = at + 1 + count_hashes(bytes, at + 1);
    let name_start = if at > 0 && matches!(bytes[at - 1], b'b' | b'c') { at - 1 } else { at };
    bytes.get(quote) == Some(&b'"') && !(name_start > 0 && is_name_byte(bytes[name_start - 1]))
}

fn closing_raw_quote(bytes: &[u8], from: usize, hashes: usize) -> usize {
    (from..bytes.len()).find(|at| bytes[*at] == b'"' && count_hashes(bytes, at + 1) >= hashes).unwrap_or(bytes.len())
}

/// Whether the quote opens a character literal, not a lifetime.
fn is_char_literal(source: &str, at: usize) -> bool {
    let mut following = source[at + 1..].chars();
    following.next() == Some('\\') || following.next() == Some('\'')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, blanked: &str) {
        assert_eq!(without_comments_and_literals(source), blanked);
    }

    #[test]
    fn comments_are_blanked_and_lines_kept() {
        check("a // unsafe\nb", "a          \nb");
        check("a /* x /* y */ z */ b", "a                   b");
    }

    #[test]
    fn insides_of_literals_are_blanked_and_their_quotes_kept() {
        check(r#"f("un\"safe", 'x', '\'')"#, r#"f("        ", ' ', '  ')"#);
        check("f(r#\"a\"b\"#, br\"c\")", "f(r#\"   \"#, br\" \")");
    }

    #[test]
    fn lifetimes_and_raw_names_are_no_literals() {
        check("fn f<'a>(x: &'a str) -> r#type { var\"\" }", "fn f<'a>(x: &'a str) -> r#type { var\"\" }");
    }

    #[test]
    fn an_unclosed_literal_ends_with_the_file() {
        check("f(\"abc", "f(\"   ");
        check("f(r#\"abc", "f(r#\"   ");
        check("f(\"abc\\", "f(\"    ");
    }

    #[test]
    fn words_inside_longer_names_are_not_found() {
        assert_eq!(find_word("unsafe_code unsafe not_unsafe", "unsafe").collect::<Vec<_>>(), [12]);
        assert_eq!(find_word("my_print!() print!()", "print!").collect::<Vec<_>>(), [12]);
    }
}
