//! Text broken into lines for a terminal.

/// Columns of the terminals that our texts are made for.
pub const WIDTH: usize = 120;

/// Breaks a text at spaces so that no line is wider than [`WIDTH`]; `indent` stands before every line. A word that is
/// longer than a line stays whole.
pub fn wrapped(text: &str, indent: &str) -> String {
    wrapped_at(text, WIDTH, indent, indent)
}

/// The same for `width` columns; `first` stands before the first line, `below` before the others.
pub fn wrapped_at(text: &str, width: usize, first: &str, below: &str) -> String {
    let mut out = String::new();
    for paragraph in text.lines() {
        let mut line = String::from(if out.is_empty() { first } else { below });
        let mut is_empty = true;
        for word in paragraph.split_whitespace() {
            if !is_empty && line.chars().count() + 1 + word.chars().count() > width {
                out += &line;
                out.push('\n');
                line = String::from(below);
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line += word;
            is_empty = false;
        }
        out += &line;
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_spaces_and_no_word_is_lost() {
        let text = "word ".repeat(100);
        let found = wrapped(&text, "  ");
        assert!(found.lines().all(|line| line.starts_with("  word") && line.chars().count() <= WIDTH), "{found}");
        assert_eq!(found.split_whitespace().count(), 100);
        let long = "x".repeat(2 * WIDTH);
        assert_eq!(wrapped(&format!("a {long} b"), ""), format!("a\n{long}\nb\n"));
        assert_eq!(wrapped("one\ntwo", "> "), "> one\n> two\n");
        assert_eq!(wrapped_at("one two three", 8, "→ ", "  "), "→ one\n  two\n  three\n");
    }
}
