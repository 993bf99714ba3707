//! Requests as raw bytes over loopback, so that malformed ones can be sent too.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value)
        });
        line.map(str::trim)
    }
}

/// A request with the given headers and an optional body.
pub fn request(port: u16, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
    let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        text += &format!("Content-Length: {}\r\n", body.len());
    }
    text += "\r\n";
    send(port, &[text.as_bytes(), body].concat())
}

/// Sends raw bytes. A server that answers before it has read everything may reset the connection; its answer counts.
pub fn send(port: u16, bytes: &[u8]) -> Response {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let mut block = [0; 65536];
    loop {
        match stream.read(&mut block) {
            Ok(0) | Err(_) => break,
            Ok(count) => answer.extend_from_slice(&block[..count]),
        }
        if is_whole(&answer) {
            break;
        }
    }
    let split = find(&answer, b"\r\n\r\n").unwrap_or(answer.len());
    let head = String::from_utf8_lossy(&answer[..split]).into_owned();
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Response { status, head, body: answer.get(split + 4..).unwrap_or_default().to_vec() }
}

fn is_whole(answer: &[u8]) -> bool {
    let Some(split) = find(answer, b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&answer[..split]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    length.is_some_and(|length| answer.len() >= split + 4 + length)
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}
