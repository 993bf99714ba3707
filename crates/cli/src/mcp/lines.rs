//! A client's lines, bounded: a longer one is dropped as it arrives, and answered with an error.
//!
//! The protocol's library drops such a line too, but without a word: the client would wait for its answer for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// Bytes of the longest line; the library's own limit is a little more.
const MOST: usize = (16 << 20) - 1024;
/// A line that is JSON but not a message: the library answers that the request is invalid, without a number.
const NOT_A_MESSAGE: &[u8] = b"{}\n";
const PIECE: usize = 8192;

/// Input whose long lines are replaced by one that is refused.
pub struct BoundedLines<R> {
    from: R,
    /// Bytes of the current line so far, dropped ones too.
    length: usize,
    /// Bytes to hand on.
    ready: Vec<u8>,
    /// Tells about a dropped line.
    tell: fn(&str),
}

impl<R> BoundedLines<R> {
    pub fn new(from: R, tell: fn(&str)) -> BoundedLines<R> {
        BoundedLines { from, length: 0, ready: vec![], tell }
    }

    fn take(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            let room = MOST.saturating_sub(self.length);
            let was_within = self.length <= MOST;
            self.length = self.length.saturating_add(text.len());
            let is_within = self.length <= MOST;
            self.ready.extend(&text[..text.len().min(room)]);
            if was_within && !is_within {
                // Whatever has been handed on is not JSON now.
                self.ready.push(0);
            }
            if part.len() > text.len() {
                self.ready.push(b'\n');
                if !is_within {
                    (self.tell)("a message of more than 16 MiB was dropped");
                    self.ready.extend(NOT_A_MESSAGE);
                }
                self.length = 0;
            }
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedLines<R> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let own = self.get_mut();
        while own.ready.is_empty() {
            let mut space = [0; PIECE];
            let mut piece = ReadBuf::new(&mut space);
            ready!(Pin::new(&mut own.from).poll_read(context, &mut piece))?;
            if piece.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            own.take(piece.filled());
        }
        let length = own.ready.len().min(buffer.remaining());
        buffer.put_slice(&own.ready[..length]);
        own.ready.drain(..length);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    async fn passed(sent: &[u8]) -> Vec<u8> {
        let mut received = vec![];
        BoundedLines::new(sent, |_| {}).read_to_end(&mut received).await.unwrap();
        received
    }

    #[tokio::test]
    async fn lines_up_to_the_limit_pass_as_they_are() {
        let longest = [vec![b'a'; MOST], b"\n\nb\r\nc".to_vec()].concat();
        for sent in [&b""[..], b"\n", b"one\ntwo", &longest] {
            assert!(passed(sent).await == sent, "{} bytes", sent.len());
        }
    }

    #[tokio::test]
    async fn a_longer_line_is_cut_spoilt_and_followed_by_one_that_is_refused() {
        for beyond in [1, PIECE, 3 * MOST] {
            let sent = [b"one\n".to_vec(), vec![b'1'; MOST + beyond], b"\ntwo\n".to_vec()].concat();
            let received = passed(&sent).await;
            assert_eq!(received.len(), 4 + MOST + 1 + 1 + NOT_A_MESSAGE.len() + 4, "{beyond}");
            assert!(received.ends_with(b"1\0\n{}\ntwo\n"), "{beyond}");
        }
        // Without an end it is dropped with the connection.
        assert_eq!(passed(&vec![b'1'; 2 * MOST]).await.len(), MOST + 1);
    }
}
