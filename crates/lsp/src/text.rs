//! A text with its lines, and positions in the client's encoding.

use lsp_types::{Position, Range, TextDocumentContentChangeEvent};

/// How columns of a position are counted: negotiated during initialization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    Utf8,
    /// The protocol's default, which every client supports.
    #[default]
    Utf16,
}

impl Encoding {
    fn length(self, letter: char) -> usize {
        match self {
            Encoding::Utf8 => letter.len_utf8(),
            Encoding::Utf16 => letter.len_utf16(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    text: String,
    /// Where every line begins.
    starts: Vec<usize>,
}

impl Text {
    pub fn new(text: String) -> Text {
        let starts = line_starts(&text);
        Text { text, starts }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The line with this number, from 0, without its line ending; empty past the last line.
    pub fn line(&self, number: usize) -> &str {
        let Some(start) = self.starts.get(number) else { return "" };
        let end = self.starts.get(number + 1).copied().unwrap_or(self.text.len());
        self.text[*start..end].trim_end_matches(['\n', '\r'])
    }

    /// The byte offset of a position. Columns past a line's end mean its end; lines past the last mean the text's end.
    pub fn offset(&self, position: Position, encoding: Encoding) -> usize {
        let line = position.line as usize;
        let Some(start) = self.starts.get(line) else { return self.text.len() };
        let mut left = position.character as usize;
        for (at, letter) in self.line(line).char_indices() {
            // A column inside a character means that character.
            if left < encoding.length(letter) {
                return start + at;
            }
            left -= encoding.length(letter);
        }
        start + self.line(line).len()
    }

    /// The position of a byte offset.
    pub fn position(&self, offset: usize, encoding: Encoding) -> Position {
        let offset = self.letter_at(offset.min(self.text.len()));
        let line = self.starts.partition_point(|start| *start <= offset).saturating_sub(1);
        let units: usize = self.text[self.starts[line]..offset].chars().map(|letter| encoding.length(letter)).sum();
        Position::new(line as u32, units as u32)
    }

    pub fn range(&self, start: usize, end: usize, encoding: Encoding) -> Range {
        Range::new(self.position(start, encoding), self.position(end, encoding))
    }

    /// The position of a line and a column as findings count them: from 1, in characters, without a byte order mark.
    pub fn position_of_place(&self, line: u32, column: u32, encoding: Encoding) -> Position {
        let number = line.saturating_sub(1) as usize;
        let text = self.line(number);
        let mark = usize::from(number == 0 && text.starts_with('\u{feff}'));
        let letters = (column.saturating_sub(1) as usize).saturating_add(mark);
        let units: usize = text.chars().take(letters).map(|letter| encoding.length(letter)).sum();
        Position::new(number as u32, units as u32)
    }

    /// The end of a line, numbered from 0.
    pub fn end_of_line(&self, number: u32, encoding: Encoding) -> Position {
        let units: usize = self.line(number as usize).chars().map(|letter| encoding.length(letter)).sum();
        Position::new(number, units as u32)
    }

    /// Applies one change, to a range or to the whole text.
    pub fn change(&mut self, change: TextDocumentContentChangeEvent, encoding: Encoding) {
        match change.range {
            Some(range) => {
                let start = self.offset(range.start, encoding);
                let end = self.offset(range.end, encoding).max(start);
                self.text.replace_range(start..end, &change.text);
            }
            None => self.text = change.text,
        }
        self.starts = line_starts(&self.text);
    }

    /// The start of the character that contains the byte.
    fn letter_at(&self, mut offset: usize) -> usize {
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        offset
    }
}

/// Splits at `\n`, `\r\n` or `\r`, as the protocol defines line endings.
fn line_starts(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let ends = (0..bytes.len()).filter(|at| match bytes[*at] {
        b'\n' => true,
        b'\r' => bytes.get(at + 1) != Some(&b'\n'),
        _ => false,
    });
    std::iter::once(0).chain(ends.map(|at| at + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `é` is two bytes and one UTF-16 unit, `𝄞` four bytes and two units.
    const LETTERS: &str = "aé𝄞b\r\nsecond\rthird\n";

    fn change(range: Option<Range>, text: &str) -> TextDocumentContentChangeEvent {
        TextDocumentContentChangeEvent { range, range_length: None, text: text.to_string() }
    }

    #[test]
    fn columns_are_counted_as_agreed() {
        let text = Text::new(LETTERS.to_string());
        let at_b = LETTERS.find('b').unwrap();
        assert_eq!(text.position(at_b, Encoding::Utf16), Position::new(0, 4));
        assert_eq!(text.position(at_b, Encoding::Utf8), Position::new(0, 7));
        assert_eq!(text.offset(Position::new(0, 4), Encoding::Utf16), at_b);
        assert_eq!(text.offset(Position::new(0, 7), Encoding::Utf8), at_b);
        assert_eq!(text.position_of_place(1, 4, Encoding::Utf16), Position::new(0, 4));
        assert_eq!(text.position_of_place(1, 4, Encoding::Utf8), Position::new(0, 7));
    }

    #[test]
    fn every_byte_has_its_position_and_back() {
        let text = Text::new(LETTERS.to_string());
        for encoding in [Encoding::Utf8, Encoding::Utf16] {
            for (offset, letter) in LETTERS.char_indices().filter(|(_, letter)| !matches!(letter, '\r' | '\n')) {
                let position = text.position(offset, encoding);
                assert_eq!(text.offset(position, encoding), offset, "{letter} in {encoding:?}");
            }
        }
        let lines: Vec<&str> = (0..4).map(|line| text.line(line)).collect();
        assert_eq!(lines, ["aé𝄞b", "second", "third", ""]);
    }

    #[test]
    fn positions_out_of_the_text_mean_its_nearest_part() {
        let text = Text::new(LETTERS.to_string());
        let at_music = LETTERS.find('𝄞').unwrap();
        assert_eq!(text.offset(Position::new(0, 3), Encoding::Utf16), at_music, "the middle of a letter");
        assert_eq!(text.offset(Position::new(0, 99), Encoding::Utf16), at_music + 5);
        assert_eq!(text.offset(Position::new(99, 0), Encoding::Utf16), LETTERS.len());
        assert_eq!(text.position(usize::MAX, Encoding::Utf8), Position::new(3, 0));
        assert_eq!(text.position(at_music + 2, Encoding::Utf8), Position::new(0, 3));
        assert_eq!(text.position_of_place(99, 99, Encoding::Utf16), Position::new(98, 0));
    }

    #[test]
    fn a_byte_order_mark_is_no_column_of_a_finding() {
        let text = Text::new("\u{feff}x = 1\n".to_string());
        assert_eq!(text.position_of_place(1, 1, Encoding::Utf16), Position::new(0, 1));
        assert_eq!(text.position_of_place(1, 1, Encoding::Utf8), Position::new(0, 3));
    }

    #[test]
    fn changes_are_made_one_after_the_other() {
        let mut text = Text::new("one\ntwo\n".to_string());
        text.change(change(Some(Range::new(Position::new(0, 3), Position::new(1, 0))), " 𝄞\n"), Encoding::Utf16);
        assert_eq!(text.as_str(), "one 𝄞\ntwo\n");
        text.change(change(Some(Range::new(Position::new(0, 6), Position::new(1, 1))), "!\nT"), Encoding::Utf16);
        assert_eq!(text.as_str(), "one 𝄞!\nTwo\n");
        let backwards = Range::new(Position::new(1, 2), Position::new(1, 1));
        text.change(change(Some(backwards), "x"), Encoding::Utf16);
        assert_eq!(text.as_str(), "one 𝄞!\nTwxo\n");
        text.change(change(None, "new"), Encoding::Utf16);
        assert_eq!((text.as_str(), text.line(0)), ("new", "new"));
    }
}
