//! The search's end of the socket: it lies in the folder of a process, which the script sees as well.

use super::messages::{Order, Report};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer paths do not fit into an address of the system: the folder is opened, and named by its number.
const MOST_PATH: usize = 100;

/// How long one look at the socket waits.
const GLANCE: Duration = Duration::from_millis(20);

/// A longer message is none of ours.
const MOST_BYTES: usize = 16 << 20;

/// Waits for the script to connect.
pub struct Listener {
    listener: UnixListener,
    pub path: PathBuf,
}

impl Listener {
    /// Makes the socket in a folder.
    pub fn in_folder(folder: &Path) -> io::Result<Listener> {
        let path = folder.join("conductor.socket");
        let listener = if path.as_os_str().len() <= MOST_PATH {
            UnixListener::bind(&path)?
        } else {
            let opened = folder_by_number(folder)?;
            UnixListener::bind(format!("/proc/self/fd/{}/conductor.socket", opened.as_raw_fd()))?
        };
        listener.set_nonblocking(true)?;
        Ok(Listener { listener, path })
    }

    /// The script's connection, if it has come.
    pub fn accept(&self) -> io::Result<Option<Line>> {
        match self.listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(Some(GLANCE))?;
                Ok(Some(Line { stream, unread: vec![] }))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn folder_by_number(folder: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?)
}

/// A connected script.
#[derive(Debug)]
pub struct Line {
    stream: UnixStream,
    unread: Vec<u8>,
}

/// One look at the socket.
#[derive(Debug, PartialEq)]
pub enum Received {
    Report(Report),
    /// Nothing yet.
    Nothing,
    /// The script has closed its end.
    Closed,
    /// A line that is not a report, and why.
    Wrong(String),
}

impl Line {
    pub fn send(&mut self, order: &Order) -> io::Result<()> {
        let mut text = serde_json::to_vec(order)?;
        text.push(b'\n');
        self.stream.write_all(&text)
    }

    /// Waits a moment for a report.
    pub fn receive(&mut self) -> Received {
        let mut bytes = vec![0; 64 << 10];
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return match serde_json::from_slice(&line) {
                    Ok(report) => Received::Report(report),
                    Err(error) => Received::Wrong(error.to_string()),
                };
            }
            if self.unread.len() > MOST_BYTES {
                return Received::Wrong(format!("a message of more than {MOST_BYTES} bytes"));
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return Received::Closed,
                Ok(read) => self.unread.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Received::Nothing;
                }
                Err(_) => return Received::Closed,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_reports_pass_also_where_the_path_is_long() {
        for name in ["short".to_string(), "long".repeat(30)] {
            let place = tempfile::tempdir().unwrap();
            let folder = place.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            let listener = Listener::in_folder(&folder).unwrap();
            assert!(listener.accept().unwrap().is_none());
            let opened = folder_by_number(&folder).unwrap();
            let mut script =
                UnixStream::connect(format!("/proc/self/fd/{}/conductor.socket", opened.as_raw_fd())).unwrap();
            let mut line = listener.accept().unwrap().unwrap();
            assert_eq!(line.receive(), Received::Nothing);
            script.write_all(b"{\"kind\": \"ended\", \"steps\": 9}\n{\"kind\": ").unwrap();
            assert_eq!(line.receive(), Received::Report(Report::Ended { steps: 9 }));
            assert_eq!(line.receive(), Received::Nothing, "half a line");
            script.write_all(b"\"other\"}\n").unwrap();
            assert!(matches!(line.receive(), Received::Wrong(why) if why.contains("other")));
            line.send(&Order::Finish {}).unwrap();
            let mut bytes = [0; 64];
            let read = script.read(&mut bytes).unwrap();
            assert_eq!(&bytes[..read], b"{\"kind\":\"finish\"}\n");
            drop(script);
            assert_eq!(line.receive(), Received::Closed);
        }
    }
}
