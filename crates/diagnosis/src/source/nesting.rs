//! How deep an expression nests, found without recursion, so that no input can exhaust the stack of what reads it.

pub const MOST_LEVELS: u32 = 400;

/// An upper estimate: within one bracket every operator up to the next comma may add a level.
pub fn is_too_deep(text: &str) -> bool {
    let bytes = text.as_bytes();
    // One count for the statement and one for every open bracket.
    let mut counts: Vec<u32> = vec![0];
    let mut indents: Vec<usize> = Vec::new();
    let mut total: u32 = 0;
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        let before = if at == 0 { b' ' } else { bytes[at - 1] };
        let mut grows = false;
        match byte {
            b'#' => {
                at += bytes[at..].iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len() - at);
                continue;
            }
            // Formatted strings hold expressions: their inside counts like code.
            b'"' | b'\'' if !starts_formatted(bytes, at) => {
                at = after_string(bytes, at);
                continue;
            }
            b'\n' if counts.len() == 1 => {
                total -= counts[0];
                counts[0] = 0;
                let line = &bytes[at + 1..];
                let width = line.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
                if !matches!(line.get(width), None | Some(b'\n' | b'\r' | b'#')) {
                    while indents.last().is_some_and(|last| *last >= width) {
                        indents.pop();
                    }
                    indents.push(width);
                }
            }
            b'(' | b'[' | b'{' => {
                counts.push(1);
                total += 1;
            }
            b')' | b']' | b'}' if counts.len() > 1 => {
                total -= counts.pop().unwrap_or(0);
                grows = true;
            }
            b',' | b';' => {
                if let Some(last) = counts.last_mut() {
                    total -= *last;
                    *last = 0;
                }
            }
            b'+' | b'-' | b'*' | b'/' | b'%' | b'@' | b'&' | b'|' | b'^' | b'~' | b'<' | b'>' | b'.' | b':' => {
                grows = true
            }
            // Words such as `not`, `lambda`, `await`, `if` and `else` nest too: any word after white space may.
            _ if byte.is_ascii_alphabetic() && !is_word(before) => grows = true,
            _ => {}
        }
        if grows && let Some(last) = counts.last_mut() {
            *last += 1;
            total += 1;
        }
        if total > MOST_LEVELS * 4 || counts.len() > MOST_LEVELS as usize || indents.len() > MOST_LEVELS as usize / 4 {
            return true;
        }
        at += 1;
    }
    false
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Whether the quote at `at` opens an f-string or t-string.
fn starts_formatted(bytes: &[u8], at: usize) -> bool {
    let prefix = bytes[..at].iter().rev().take_while(|byte| byte.is_ascii_alphabetic()).count();
    prefix <= 2 && bytes[at - prefix..at].iter().any(|byte| matches!(byte, b'f' | b'F' | b't' | b'T'))
}

/// The place behind the string that opens at `at`; an unclosed plain string ends with its line.
fn after_string(bytes: &[u8], at: usize) -> usize {
    let quote = bytes[at];
    let triple = bytes[at..].starts_with(&[quote; 3]);
    let mut at = at + if triple { 3 } else { 1 };
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'\n' if !triple => return at,
            byte if byte == quote && !triple => return at + 1,
            byte if byte == quote && bytes[at..].starts_with(&[quote; 3]) => return at + 3,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_code_and_long_tables_are_not_deep() {
        assert!(!is_too_deep("x = f(a, [b, {c: (d)}])\n"));
        assert!(!is_too_deep(&format!("x = [\n{}]\n", "  -0.5, 1.25,\n".repeat(10_000))));
        assert!(!is_too_deep(&format!("\"\"\"{}\"\"\"\n", "a (long. text: ".repeat(5_000))));
        assert!(!is_too_deep(&"x = a + b\n".repeat(10_000)));
    }

    #[test]
    fn brackets_operators_words_and_blocks_are_counted() {
        let blocks: String = (0..200).map(|level| format!("{}if x:\n", " ".repeat(level))).collect();
        for deep in ["(".repeat(2_000), "not ".repeat(5_000), "1+".repeat(5_000), "a.".repeat(5_000), blocks] {
            assert!(is_too_deep(&deep), "{}", &deep[..10]);
        }
    }
}
