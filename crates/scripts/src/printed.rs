//! A process's output in bounded memory: its first and last parts, and lines of bounded length.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

/// Interval between looks at whether the output has ended.
const GLANCE: Duration = Duration::from_millis(5);

/// Bytes kept of the beginning of a script's output, and as many of its end.
pub const MOST_OUTPUT: usize = 64 << 10;

/// Begins the lines of a script's output within an error. The registry of runs keeps what stands before it.
pub const LAST_OUTPUT: &str = "; its last output:\n";

/// An error's text without what a script printed: that belongs to the run's folder, and goes with it.
pub fn without_output(error: &str) -> &str {
    error.find(LAST_OUTPUT).map_or(error, |at| &error[..at])
}

/// The first and the last bytes of a stream, and how many were between them.
#[derive(Clone, Debug)]
pub struct HeadAndTail {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// The most bytes of each of the two.
    most: usize,
    bytes: u64,
}

impl HeadAndTail {
    pub fn new(most: usize) -> HeadAndTail {
        HeadAndTail { head: vec![], tail: VecDeque::new(), most, bytes: 0 }
    }

    /// As text, with a line in place of what is missing. Lines that were cut are left out as a whole: half of a
    /// password is not recognised as one.
    pub fn text(&self) -> String {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if self.bytes == (self.head.len() + tail.len()) as u64 {
            return String::from_utf8_lossy(&[self.head.as_slice(), &tail].concat()).into_owned();
        }
        let is_end = |byte: &u8| *byte == b'\n';
        let is_gap = u8::is_ascii_whitespace;
        let last = self.head.iter().rposition(is_end).or_else(|| self.head.iter().rposition(is_gap));
        let first = tail.iter().position(is_end).or_else(|| tail.iter().position(is_gap));
        let head = &self.head[..last.map_or(0, |at| at + 1)];
        let tail = &tail[first.map_or(tail.len(), |at| at + 1)..];
        let missing = self.bytes - (head.len() + tail.len()) as u64;
        format!(
            "{}\n[{missing} of {} bytes are left out here]\n{}",
            String::from_utf8_lossy(head).trim_end_matches('\n'),
            self.bytes,
            String::from_utf8_lossy(tail)
        )
    }
}

impl Write for HeadAndTail {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (first, rest) = bytes.split_at(bytes.len().min(self.most - self.head.len()));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.most)..];
        let surplus = (self.tail.len() + rest.len()).saturating_sub(self.most);
        self.tail.drain(..surplus);
        self.tail.extend(rest);
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Takes a process's output as it comes, so that the process never waits and the output fills neither memory nor disk.
pub struct Capture {
    so_far: Arc<Mutex<HeadAndTail>>,
    reader: JoinHandle<()>,
}

impl Capture {
    pub fn of(mut stream: impl Read + Send + 'static, most: usize) -> Capture {
        let so_far = Arc::new(Mutex::new(HeadAndTail::new(most)));
        let shared = so_far.clone();
        let reader = thread::spawn(move || {
            let mut bytes = vec![0; 64 << 10];
            loop {
                match stream.read(&mut bytes) {
                    Ok(0) => return,
                    // Writing to memory does not fail.
                    Ok(read) => drop(shared.lock().unwrap_or_else(PoisonError::into_inner).write(&bytes[..read])),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => return,
                }
            }
        });
        Capture { so_far, reader }
    }

    /// The output. Waits for its end, but no longer than `patience`: a process that outlived the
    /// one that was started may hold the other end.
    pub fn end(self, patience: Duration) -> HeadAndTail {
        let until = Instant::now() + patience;
        while !self.reader.is_finished() && Instant::now() < until {
            sleep(GLANCE);
        }
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Cuts a stream into lines. Of a longer line only the beginning is kept.
pub struct Lines {
    line: Vec<u8>,
    most: usize,
}

impl Lines {
    pub fn new(most: usize) -> Lines {
        Lines { line: vec![], most }
    }

    /// Adds bytes; `each` gets every line that they complete.
    pub fn add(&mut self, bytes: &[u8], mut each: impl FnMut(String)) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = part.strip_suffix(b"\n").unwrap_or(part);
            let room = self.most - self.line.len();
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            if part.len() > text.len() {
                each(self.take());
            }
        }
    }

    /// The last line, if it has no end.
    pub fn rest(mut self) -> Option<String> {
        (!self.line.is_empty()).then(|| self.take())
    }

    fn take(&mut self) -> String {
        let line = String::from_utf8_lossy(&self.line).trim_end().to_string();
        self.line.clear();
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(most: usize, pieces: &[&[u8]]) -> HeadAndTail {
        let mut kept = HeadAndTail::new(most);
        for piece in pieces {
            kept.write_all(piece).unwrap();
        }
        kept
    }

    #[test]
    fn short_output_is_kept_whole_however_it_comes() {
        assert_eq!(kept(8, &[b"abc", b"", b"defgh", b"ij\n"]).text(), "abcdefghij\n");
        assert_eq!(kept(8, &[b"0123456789abcdef"]).text(), "0123456789abcdef");
        assert_eq!(kept(8, &[]).text(), "");
    }

    #[test]
    fn long_output_keeps_whole_lines_of_both_ends_and_says_what_is_missing() {
        let text: String = (0..1000).map(|line| format!("line {line}\n")).collect();
        for size in [1, 7, 100, 100_000] {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            let kept = kept(20, &pieces).text();
            assert_eq!(
                kept, "line 0\nline 1\n[8858 of 8890 bytes are left out here]\nline 998\nline 999\n",
                "pieces of {size}"
            );
        }
    }

    #[test]
    fn a_cut_line_is_left_out_so_that_no_half_of_a_word_is_shown() {
        let text = kept(10, &[b"before secret", &[b'x'; 100], b"secret after"]).text();
        assert_eq!(text, "before \n[113 of 125 bytes are left out here]\nafter");
        assert_eq!(kept(4, &[&[b'x'; 100]]).text(), "\n[100 of 100 bytes are left out here]\n");
    }

    #[test]
    fn gigabytes_take_no_more_memory_than_the_two_ends() {
        let capture = Capture::of(io::repeat(b'x').take(1 << 30), 64 << 10);
        let kept = capture.end(Duration::from_secs(120));
        assert_eq!(kept.bytes, 1 << 30);
        assert!(kept.head.capacity() + kept.tail.capacity() <= 512 << 10, "{}", kept.tail.capacity());
    }

    #[test]
    fn output_that_never_ends_is_not_waited_for() {
        let (reader, mut writer) = io::pipe().unwrap();
        let capture = Capture::of(reader, 100);
        writer.write_all(b"so far").unwrap();
        let began = Instant::now();
        let mut text = String::new();
        while text.is_empty() && began.elapsed() < Duration::from_secs(20) {
            text = capture.so_far.lock().unwrap().text();
        }
        assert_eq!(capture.end(Duration::from_millis(50)).text(), "so far");
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn lines_are_cut_at_their_limit_and_the_rest_of_them_is_skipped() {
        let mut lines = Lines::new(4);
        let mut all = vec![];
        for piece in [&b"ab"[..], b"c\r\nlonger th", b"an that\n\nend"] {
            lines.add(piece, |line| all.push(line));
        }
        all.extend(lines.rest());
        assert_eq!(all, ["abc", "long", "", "end"]);
    }
}
