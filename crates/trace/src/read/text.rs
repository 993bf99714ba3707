//! Splits a trace file, plain or gzipped, into blocks that probably end between events. Reads in order, never the whole
//! file.

use std::fs::File;
use std::io::{self, Read};
use std::sync::mpsc::SyncSender;

use thiserror::Error;

use super::event::last_candidate;

/// Large enough that passing blocks between threads costs nothing. Small enough that a dozen add little to a trace's
/// memory and that one stays in a core's cache from fetching to parsing.
const BLOCK_BYTES: usize = 1 << 20;
/// A block without a place to cut grows up to this size, then is cut anywhere: the reader joins the parts again.
const LARGEST_BLOCK_BYTES: usize = 16 << 20;

/// Profilers' traces compress to a tenth, repetitive ones to a fiftieth; a denser file was crafted to exhaust memory.
pub const MOST_GZIP_RATIO: u64 = 200;
/// Text up to this size is harmless, however well it compresses.
const FREE_TEXT_BYTES: u64 = 16 << 20;

/// Summary that the sender of blocks returns at the end.
#[derive(Debug, Default)]
pub struct Sent {
    pub bytes: u64,
    /// The error, if the file ended or broke off within its compressed stream.
    pub broke_off: Option<io::Error>,
}

pub enum Source {
    Plain(File),
    Gzip(Box<Unpacking>),
}

pub struct Unpacking {
    decoder: flate2::read::MultiGzDecoder<io::BufReader<Counted>>,
    text_bytes: u64,
    ratio: GzipRatio,
}

/// How much text a gzipped file may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GzipRatio {
    /// Up to 200 times the file's size.
    #[default]
    Usual,
    Any,
}

/// A gzipped file holds more text than [`GzipRatio`] allows.
#[derive(Clone, Copy, Debug, Error)]
#[error("{packed_bytes} bytes unpack to more than {text_bytes} bytes of text, over {MOST_GZIP_RATIO} times as much")]
pub struct TooDense {
    pub packed_bytes: u64,
    pub text_bytes: u64,
}

/// A file that counts the bytes read from it.
pub struct Counted {
    file: File,
    bytes: u64,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

impl Read for Unpacking {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.decoder.read(buffer)?;
        self.text_bytes += read as u64;
        let packed_bytes = self.decoder.get_ref().get_ref().bytes;
        let is_dense = self.text_bytes > FREE_TEXT_BYTES && self.text_bytes / MOST_GZIP_RATIO > packed_bytes;
        if is_dense && self.ratio == GzipRatio::Usual {
            return Err(io::Error::other(TooDense { packed_bytes, text_bytes: self.text_bytes }));
        }
        Ok(read)
    }
}

/// Detects gzip by the file's first bytes, whatever its name says.
pub fn open(mut file: File, ratio: GzipRatio) -> io::Result<Source> {
    use std::io::Seek;
    let mut magic = [0; 2];
    let read = file.read(&mut magic)?;
    file.rewind()?;
    Ok(match (read, magic) {
        (2, [0x1f, 0x8b]) => {
            let packed = io::BufReader::with_capacity(1 << 20, Counted { file, bytes: 0 });
            let decoder = flate2::read::MultiGzDecoder::new(packed);
            Source::Gzip(Box::new(Unpacking { decoder, text_bytes: 0, ratio }))
        }
        _ => Source::Plain(file),
    })
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::Plain(file) => file.read(buffer),
            Source::Gzip(unpacking) => unpacking.read(buffer),
        }
    }
}

/// Sends the text block by block until it ends or the receiver is gone. A read error also ends it and is returned.
pub fn send_blocks(mut source: impl Read, blocks: &SyncSender<Vec<u8>>) -> Sent {
    let mut sent = Sent::default();
    let mut block: Vec<u8> = Vec::with_capacity(BLOCK_BYTES + (BLOCK_BYTES >> 3));
    let mut want = BLOCK_BYTES;
    loop {
        let missing = (want - block.len()) as u64;
        let end_of_text = match source.by_ref().take(missing).read_to_end(&mut block) {
            Ok(read) => (read as u64) < missing,
            Err(error) => {
                sent.broke_off = Some(error);
                true
            }
        };
        if end_of_text {
            sent.bytes += block.len() as u64;
            let _ = blocks.send(block);
            return sent;
        }
        let cut = match last_candidate(&block) {
            Some(cut) => cut,
            None if want < LARGEST_BLOCK_BYTES => {
                want *= 2;
                continue;
            }
            None => block.len(),
        };
        want = BLOCK_BYTES;
        let mut rest = Vec::with_capacity(BLOCK_BYTES + (BLOCK_BYTES >> 3));
        rest.extend_from_slice(&block[cut..]);
        want = want.max(rest.len() + 1);
        block.truncate(cut);
        sent.bytes += block.len() as u64;
        if blocks.send(std::mem::replace(&mut block, rest)).is_err() {
            return sent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    /// The blocks of a text, at most 64 of them, and the sender's summary.
    fn blocks_of(text: impl Read + Send) -> (Vec<Vec<u8>>, Sent) {
        let (sender, receiver) = sync_channel(2);
        std::thread::scope(|scope| {
            let sending = scope.spawn(move || send_blocks(text, &sender));
            let blocks: Vec<Vec<u8>> = receiver.iter().take(64).collect();
            drop(receiver);
            (blocks, sending.join().expect("does not panic"))
        })
    }

    #[test]
    fn blocks_end_before_an_event_and_make_up_the_text() {
        let event = br#"{"name":"aten::mm"},"#;
        for bytes in [0, 1, event.len(), BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 5 * BLOCK_BYTES / 2] {
            let text: Vec<u8> = event.iter().copied().cycle().take(bytes).collect();
            let (blocks, sent) = blocks_of(text.as_slice());
            assert_eq!(sent.bytes, bytes as u64);
            assert!(sent.broke_off.is_none());
            assert!(blocks.concat() == text, "{bytes} bytes");
            assert_eq!(blocks.len(), 1 + bytes / BLOCK_BYTES, "{bytes} bytes");
            let cut = &blocks[..blocks.len() - 1];
            assert!(
                cut.iter().all(|block| block.ends_with(b"},") && block.len() > BLOCK_BYTES - event.len()),
                "{bytes} bytes"
            );
        }
    }

    #[test]
    fn text_without_a_place_to_cut_grows_to_the_largest_block() {
        let text = vec![b' '; LARGEST_BLOCK_BYTES + 100];
        let (blocks, sent) = blocks_of(text.as_slice());
        assert_eq!(blocks.iter().map(Vec::len).collect::<Vec<_>>(), [LARGEST_BLOCK_BYTES, 100]);
        assert_eq!(sent.bytes, text.len() as u64);
    }

    #[test]
    fn text_that_breaks_off_is_sent_up_to_there_with_the_error() {
        struct Breaking;
        impl Read for Breaking {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("the disk is gone"))
            }
        }
        let (blocks, sent) = blocks_of((&b"[{},"[..]).chain(Breaking));
        assert_eq!(blocks.concat(), b"[{},");
        assert_eq!((sent.bytes, sent.broke_off.map(|error| error.to_string())), (4, Some("the disk is gone".into())));
    }
}
