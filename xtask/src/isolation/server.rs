//! A server on loopback from which scripts download a file, with a count of the requests.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};

/// The file that every path leads to.
const FILE: &[u8] = &[7; 100_000];

pub struct Server {
    port: u16,
    paths: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Answers until the process ends.
    pub fn start() -> Result<Server> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot listen on loopback")?;
        let server = Server { port: listener.local_addr()?.port(), paths: Arc::default() };
        let paths = Arc::clone(&server.paths);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that leaves early is not answered; its request counts.
                let _ = answer(stream, &paths);
            }
        });
        Ok(server)
    }

    pub fn address(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    /// Number of times that a path was asked for.
    pub fn requests(&self, path: &str) -> usize {
        let asked = format!("/{path}");
        self.paths.lock().map_or(0, |paths| paths.iter().filter(|one| **one == asked).count())
    }
}

fn answer(mut stream: TcpStream, paths: &Mutex<Vec<String>>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut request = vec![];
    let mut piece = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < 1 << 16 {
        match stream.read(&mut piece)? {
            0 => break,
            length => request.extend(&piece[..length]),
        }
    }
    let request = String::from_utf8_lossy(&request);
    let path = request.split_whitespace().nth(1).unwrap_or_default().to_string();
    if let Ok(mut paths) = paths.lock() {
        paths.push(path);
    }
    write!(stream, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", FILE.len())?;
    stream.write_all(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_answered_and_counted_by_path() {
        let server = Server::start().unwrap();
        for _ in 0..2 {
            let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
            stream.write_all(b"GET /one HTTP/1.0\r\n\r\n").unwrap();
            let mut answer = vec![];
            stream.read_to_end(&mut answer).unwrap();
            assert!(answer.starts_with(b"HTTP/1.0 200 OK") && answer.ends_with(FILE));
        }
        assert_eq!([server.requests("one"), server.requests("on")], [2, 0]);
        assert!(server.address("one").ends_with("/one"));
    }
}
