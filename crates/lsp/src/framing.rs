//! Messages in their frames: a few header lines, an empty line, and as many bytes of JSON as the header says.
//!
//! Whatever is sent, memory stays within these limits and the next message is never guessed at: a frame that breaks the
//! rules ends the connection.

use std::io::{self, BufRead, Read};

use lsp_server::Message;
use thiserror::Error;

/// An editor sends texts of at most a few megabytes; larger scripts are not read either.
pub const MOST_MESSAGE: u64 = 64 << 20;
/// All header lines together. Editors send one or two, of some twenty bytes each.
pub const MOST_HEADER: u64 = 8 << 10;

const LENGTH: &str = "content-length";

#[derive(Debug, Error)]
pub enum FrameError {
    #[error("a message of {0} bytes is announced, and at most {MOST_MESSAGE} are read")]
    Long(u64),
    #[error("a header does not end within {MOST_HEADER} bytes")]
    LongHeader,
    #[error("a header line has no colon: `{0}`")]
    NoColon(String),
    #[error("a header has no Content-Length")]
    NoLength,
    #[error("a Content-Length is not a number of bytes: `{0}`")]
    NotALength(String),
    #[error("the stream ends inside a message")]
    Cut,
    #[error("a message is not JSON-RPC: {0}")]
    Payload(#[from] serde_json::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The next message; `None` where the stream ends between two.
pub fn read_message(stream: &mut impl BufRead) -> Result<Option<Message>, FrameError> {
    let Some(length) = read_header(stream)? else { return Ok(None) };
    if length > MOST_MESSAGE {
        return Err(FrameError::Long(length));
    }
    let mut text = Vec::new();
    // Memory grows with what arrives, not with what is announced.
    stream.take(length).read_to_end(&mut text)?;
    if (text.len() as u64) < length {
        return Err(FrameError::Cut);
    }
    Ok(Some(serde_json::from_slice(&text)?))
}

/// The length that a header announces; `None` where the stream ends before one.
fn read_header(stream: &mut impl BufRead) -> Result<Option<u64>, FrameError> {
    let mut left = stream.take(MOST_HEADER);
    let mut length = None;
    let mut line = Vec::new();
    for number in 0.. {
        line.clear();
        let read = left.read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            return match (left.limit(), read, number) {
                (0, _, _) => Err(FrameError::LongHeader),
                (_, 0, 0) => Ok(None),
                _ => Err(FrameError::Cut),
            };
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if text.is_empty() {
            break;
        }
        let (name, value) = text.split_once(':').ok_or_else(|| FrameError::NoColon(shown(text)))?;
        if name.trim().eq_ignore_ascii_case(LENGTH) {
            let value = value.trim();
            length = Some(value.parse().map_err(|_| FrameError::NotALength(shown(value)))?);
        }
    }
    length.map(Some).ok_or(FrameError::NoLength)
}

/// The beginning of what was sent, for a message.
fn shown(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_default).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Option<Message>, FrameError> {
        read_message(&mut &bytes[..])
    }

    fn refused(bytes: &[u8]) -> String {
        read(bytes).expect_err("a refusal").to_string()
    }

    #[test]
    fn messages_are_read_one_after_the_other_to_the_end() {
        let text = b"content-LENGTH:  24 \r\nContent-Type: x\r\n\r\n{\"method\":\"initialized\"}Content-Length: 17\n\n{\"method\":\"exit\"}";
        let mut stream = &text[..];
        let mut methods = vec![];
        while let Some(message) = read_message(&mut stream).expect("a message") {
            let Message::Notification(notification) = message else { panic!("another kind") };
            methods.push(notification.method);
        }
        assert_eq!(methods, ["initialized", "exit"]);
    }

    #[test]
    fn announced_lengths_beyond_the_limit_are_refused_before_any_byte_is_read() {
        let most = u64::MAX;
        let told = refused(format!("Content-Length: {most}\r\n\r\n").as_bytes());
        assert!(told.contains("18446744073709551615 bytes is announced, and at most 67108864"), "{told}");
        assert!(matches!(read(b"Content-Length: 67108865\r\n\r\n"), Err(FrameError::Long(67_108_865))));
        // Within the limit, what is announced is not taken beforehand.
        assert!(matches!(read(b"Content-Length: 67108864\r\n\r\n{}"), Err(FrameError::Cut)));
        let told = refused(b"Content-Length: 184467440737095516160\r\n\r\n");
        assert!(told.contains("not a number of bytes: `184467440737095516160`"), "{told}");
        assert!(refused(b"Content-Length: -1\r\n\r\n").contains("`-1`"));
    }

    #[test]
    fn headers_without_an_end_are_refused() {
        let many = b"A: b\r\n".repeat(10_000);
        assert!(matches!(read(&many), Err(FrameError::LongHeader)));
        assert!(matches!(read(&vec![b'x'; 1 << 20]), Err(FrameError::LongHeader)));
        let mut endless = io::BufReader::new(io::repeat(b'\r'));
        assert!(matches!(read_message(&mut endless), Err(FrameError::LongHeader)));
    }

    #[test]
    fn what_is_not_a_frame_is_refused_with_its_reason() {
        assert!(read(b"").expect("the end").is_none());
        assert_eq!(refused(b"Content-Length: 3"), "the stream ends inside a message");
        assert_eq!(refused(b"\r\n"), "a header has no Content-Length");
        assert_eq!(refused(b"{\"a\"\x1b\r\n\r\n"), "a header line has no colon: `{\\\"a\\\"\\u{1b}`");
        assert!(refused(b"Content-Length: 2\r\n\r\n{}").starts_with("a message is not JSON-RPC"));
        assert!(refused(b"Content-Length: 2\r\n\r\n\xff\xff").starts_with("a message is not JSON-RPC"));
        let deep = "[".repeat(100_000);
        let told = refused(format!("Content-Length: {}\r\n\r\n{deep}", deep.len()).as_bytes());
        assert!(told.starts_with("a message is not JSON-RPC"), "{told}");
    }
}
