//! A cursor over JSON text that reads the requested values and skips the rest, without recursion.

use memchr::memchr2;

use super::words;

/// Why the cursor could not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The text ended first; the same call may succeed with more text.
    EndOfText,
    /// Something else is where the value should be.
    Unexpected,
}

pub type Step<T> = Result<T, Stop>;

#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    pub text: &'a [u8],
    pub at: usize,
}

/// A string as raw text, between its quotes.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawString<'a> {
    pub bytes: &'a [u8],
    pub has_escapes: bool,
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a [u8]) -> Cursor<'a> {
        Cursor { text, at: 0 }
    }

    #[inline]
    pub fn skip_whitespace(&mut self) {
        while let Some(byte @ (b' ' | b'\n' | b'\r' | b'\t')) = self.text.get(self.at) {
            self.at += 1;
            if *byte == b'\n' {
                self.at += words::of_spaces(&self.text[self.at..]);
            }
        }
    }

    /// The next byte that is not white space, without consuming it.
    #[inline]
    pub fn peek(&mut self) -> Step<u8> {
        self.skip_whitespace();
        self.text.get(self.at).copied().ok_or(Stop::EndOfText)
    }

    #[inline]
    pub fn expect(&mut self, byte: u8) -> Step<()> {
        if self.peek()? != byte {
            return Err(Stop::Unexpected);
        }
        self.at += 1;
        Ok(())
    }

    /// After a value: `true` when another follows, `false` when `closing` ended the list.
    #[inline]
    pub fn comma_or(&mut self, closing: u8) -> Step<bool> {
        let byte = self.peek()?;
        self.at += 1;
        match byte {
            b',' => Ok(true),
            byte if byte == closing => Ok(false),
            _ => {
                self.at -= 1;
                Err(Stop::Unexpected)
            }
        }
    }

    #[inline]
    pub fn string(&mut self) -> Step<RawString<'a>> {
        self.expect(b'"')?;
        let start = self.at;
        let mut has_escapes = false;
        loop {
            let rest = &self.text[self.at..];
            let found = memchr2(b'"', b'\\', rest).ok_or(Stop::EndOfText)?;
            self.at += found + 1;
            if rest[found] == b'"' {
                return Ok(RawString { bytes: &self.text[start..self.at - 1], has_escapes });
            }
            has_escapes = true;
            self.at += 1; // whatever is escaped
            if self.at > self.text.len() {
                self.at = self.text.len();
                return Err(Stop::EndOfText);
            }
        }
    }

    /// Reads a key. Keys are short, so eight bytes at a time beat a vectorised search.
    #[inline]
    pub fn key(&mut self) -> Step<&'a [u8]> {
        self.expect(b'"')?;
        let start = self.at;
        self.at += words::before_quote(&self.text[self.at..]);
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b'"' => {
                    self.at += 1;
                    let key = &self.text[start..self.at - 1];
                    self.expect(b':')?;
                    return Ok(key);
                }
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        Err(Stop::EndOfText)
    }

    /// Any value, as raw text.
    #[inline]
    pub fn raw_value(&mut self) -> Step<&'a [u8]> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            b'"' => {
                self.string()?;
            }
            b'[' | b'{' => self.skip_nested()?,
            b',' | b':' | b']' | b'}' => return Err(Stop::Unexpected),
            _ => self.skip_bare(),
        }
        Ok(&self.text[start..self.at])
    }

    /// Skips a number, `true`, `false` or `null`. Also stops at the end of the text, where more of the value may
    /// follow.
    #[inline]
    fn skip_bare(&mut self) {
        self.at += words::of_number(&self.text[self.at..]);
        while let Some(&byte) = self.text.get(self.at) {
            if matches!(byte, b',' | b']' | b'}' | b' ' | b'\n' | b'\r' | b'\t' | b':' | b'"' | b'[' | b'{') {
                break;
            }
            self.at += 1;
        }
    }

    /// Skips a list or an object of any depth.
    fn skip_nested(&mut self) -> Step<()> {
        let mut depth = 0u32;
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
        Err(Stop::EndOfText)
    }
}

impl RawString<'_> {
    /// The decoded text. An escape that JSON does not know (as in unescaped Windows paths) stays as it is.
    pub fn unescaped(&self) -> String {
        let text = String::from_utf8_lossy(self.bytes);
        if !self.has_escapes {
            return text.into_owned();
        }
        let quoted = format!("\"{text}\"");
        serde_json::from_str(&quoted).unwrap_or_else(|_| text.into_owned())
    }
}

/// A decimal number times 1000, truncated: microseconds to nanoseconds. `None` when it is not a number or is too large.
/// `6.2309999999999999`, which some profilers write for the binary number nearest to 6.231, gives 6231.
#[inline]
pub fn thousandths(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let mut value: i64 = 0;
    let mut index = 0;
    while let Some(digit @ b'0'..=b'9') = digits.get(index) {
        value = value.checked_mul(10)?.checked_add(i64::from(digit - b'0'))?;
        index += 1;
    }
    if index == 0 {
        return None;
    }
    let mut decimals = 0;
    if digits.get(index) == Some(&b'.') {
        index += 1;
        let point = index;
        while let Some(digit @ b'0'..=b'9') = digits.get(index) {
            if decimals < 3 {
                value = value.checked_mul(10)?.checked_add(i64::from(digit - b'0'))?;
                decimals += 1;
            }
            index += 1;
        }
        if index - point > 9 && digits[point + 3..point + 9] == *b"999999" {
            value = value.checked_add(1)?;
        }
    }
    if index < digits.len() {
        // An exponent, or not a number: rare enough for the standard parser.
        let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
        let scaled = number * 1000.0;
        return (scaled.abs() < 9.0e18).then_some(scaled as i64);
    }
    for _ in decimals..3 {
        value = value.checked_mul(10)?;
    }
    Some(if negative { -value } else { value })
}

/// An integer, possibly in quotes or with decimals (which are truncated). `None` when it is not a number or is too
/// large.
#[inline]
pub fn integer(text: &[u8]) -> Option<i64> {
    let text = match text {
        [b'"', inner @ .., b'"'] => inner,
        _ => text,
    };
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let mut value: i64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
            return (number.abs() < 9.0e18).then_some(number as i64);
        }
        value = value.checked_mul(10)?.checked_add(i64::from(digit - b'0'))?;
    }
    (!digits.is_empty()).then_some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_become_whole_nanoseconds() {
        let cases: [(&str, Option<i64>); 15] = [
            ("3843902032038.851", Some(3_843_902_032_038_851)),
            ("12", Some(12_000)),
            ("0.5", Some(500)),
            ("-1.25", Some(-1_250)),
            ("1.23456789", Some(1_234)),
            ("6.2309999999999999", Some(6_231)),
            // Nine decimals are taken literally; ten mark the expansion of a binary number.
            ("6.230999999", Some(6_230)),
            ("6.2309999990", Some(6_231)),
            ("21.748000000000001", Some(21_748)),
            ("-1e3", Some(-1_000_000)),
            ("1e3", Some(1_000_000)),
            ("1e300", None),
            ("99999999999999999999", None),
            ("", None),
            ("null", None),
        ];
        for (text, want) in cases {
            assert_eq!(thousandths(text.as_bytes()), want, "{text}");
        }
    }

    #[test]
    fn integers_may_be_quoted_and_too_large_ones_are_none() {
        let cases = [
            ("7", Some(7)),
            ("\"12\"", Some(12)),
            ("-3", Some(-3)),
            ("1e2", Some(100)),
            ("x", None),
            ("\"\"", None),
            ("-", None),
            ("-2.5", Some(-2)),
        ];
        for (text, want) in cases {
            assert_eq!(integer(text.as_bytes()), want, "{text}");
        }
        assert_eq!(integer(b"123456789012345678901234567890"), None);
        assert_eq!(integer(b""), None);
    }

    #[test]
    fn a_value_is_stepped_over_whole_however_deep() {
        let deep = format!("{}{}, 1", "[".repeat(100_000), "]".repeat(100_000));
        let mut cursor = Cursor::new(deep.as_bytes());
        assert_eq!(cursor.raw_value().map(<[u8]>::len), Ok(200_000));
        assert_eq!(cursor.comma_or(b']'), Ok(true));
        let mut cursor = Cursor::new(br#"{"a": "}\"", "b": [1, {"c": "]"}]} x"#);
        assert_eq!(cursor.raw_value().map(<[u8]>::len), Ok(34));
    }

    #[test]
    fn a_cut_value_asks_for_more_text() {
        for text in ["\"abc", "\"abc\\", "[1, 2", "{\"a\": \"", "", "  "] {
            assert_eq!(Cursor::new(text.as_bytes()).raw_value().err(), Some(Stop::EndOfText), "{text:?}");
        }
        assert_eq!(Cursor::new(b"]").raw_value().err(), Some(Stop::Unexpected));
    }
}
