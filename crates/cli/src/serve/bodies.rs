//! Bodies of answers that take little memory, however slowly a client reads: a file is sent in pieces, and a large
//! computed answer is such a file too.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

const PIECE_BYTES: u64 = 64 << 10;

/// The bytes that a file had when it was opened, read as the client takes them.
pub struct Pieces {
    file: File,
    left: u64,
}

impl Pieces {
    pub fn of(file: File) -> io::Result<Pieces> {
        let left = file.metadata()?.len();
        Ok(Pieces { file, left })
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let mut piece = Vec::new();
        let most = self.left.min(PIECE_BYTES);
        let read = (&mut self.file).take(most).read_to_end(&mut piece);
        Poll::Ready(Some(match read {
            // Shorter than announced, so the connection ends: the client sees that the answer is not whole.
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                self.left -= read as u64;
                Ok(Frame::data(piece.into()))
            }
            Err(error) => Err(error),
        }))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// Larger answers wait for their clients on disk: a hundred that do not read would hold a hundred copies.
const MOST_IN_MEMORY: usize = 256 << 10;

/// The body of a computed answer.
pub fn computed(bytes: Vec<u8>) -> Body {
    if bytes.len() <= MOST_IN_MEMORY {
        return bytes.into();
    }
    // Without room on disk, memory has to do.
    spooled(&bytes).map_or_else(|_| bytes.into(), Body::new)
}

/// A file without a name, so that nothing is left behind however the process ends.
fn spooled(bytes: &[u8]) -> io::Result<Pieces> {
    let mut file = tempfile::tempfile()?;
    file.write_all(bytes)?;
    file.rewind()?;
    Pieces::of(file)
}
