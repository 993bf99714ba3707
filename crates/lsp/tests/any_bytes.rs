//! Checks that any bytes on the editor's connection are messages or a refusal, without a panic and in bounded memory.

use fastrand::Rng;
use headroom_lsp::framing::{MOST_HEADER, read_message};
use std::time::{Duration, Instant};

/// Duration of the test; `cargo xtask fuzz` sets more.
fn time() -> Duration {
    Duration::from_secs(from_environment("HEADROOM_FUZZ_SECONDS").unwrap_or(3))
}

/// The same random draws on every run of the suite, unless another seed is set.
fn draws(own: u64) -> Rng {
    Rng::with_seed(own + from_environment("HEADROOM_FUZZ_SEED").unwrap_or(0))
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

const MESSAGES: [&str; 5] = [
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{}}}"#,
    r#"{"jsonrpc":"2.0","method":"initialized","params":{}}"#,
    r#"{"jsonrpc":"2.0","method":"textDocument/didOpen","params":{"textDocument":{"uri":"file:///a.py","text":"x = 1"}}}"#,
    r#"{"jsonrpc":"2.0","id":"2","result":null}"#,
    r#"{"jsonrpc":"2.0","method":"exit"}"#,
];

const PIECES: [&str; 17] = [
    "Content-Length: ",
    "content-length:",
    "Content-Length: 18446744073709551615\r\n\r\n",
    "Content-Length: 67108864\r\n\r\n",
    "Content-Type: application/vscode-jsonrpc; charset=utf-8\r\n",
    "\r\n\r\n",
    "\n",
    "\r",
    ":",
    "-1",
    "99999999999999999999",
    "0",
    "{}",
    "[[[[[[[[",
    "\0",
    "\u{fffd}",
    "\"",
];

/// A few frames, with pieces put in, bytes changed, and the end cut off.
fn mutated(draws: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..1 + draws.usize(..3) {
        let text = MESSAGES[draws.usize(..MESSAGES.len())];
        let length = if draws.u8(..8) == 0 { draws.usize(..200) } else { text.len() };
        bytes.extend(format!("Content-Length: {length}\r\n\r\n{text}").bytes());
    }
    for _ in 0..draws.usize(..4) {
        let at = draws.usize(..=bytes.len());
        match draws.u8(..4) {
            0 => drop(bytes.splice(at..at, PIECES[draws.usize(..PIECES.len())].bytes())),
            1 => bytes.truncate(at),
            2 => drop(bytes.drain(at..bytes.len().min(at + draws.usize(..20)))),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = draws.u8(..);
                }
            }
        }
    }
    bytes
}

#[test]
fn lsp_frames_of_any_bytes_are_messages_or_refused() {
    let mut draws = draws(41);
    let begin = Instant::now();
    let (mut runs, mut messages, mut refused) = (0u64, 0u64, 0u64);
    while begin.elapsed() < time() {
        for _ in 0..1000 {
            let bytes = mutated(&mut draws);
            let mut stream = bytes.as_slice();
            loop {
                let before = stream.len();
                match read_message(&mut stream) {
                    Ok(Some(_)) => messages += 1,
                    Ok(None) => break,
                    Err(_) => {
                        refused += 1;
                        break;
                    }
                }
                assert!(stream.len() < before, "a message without a byte: {:?}", String::from_utf8_lossy(&bytes));
            }
            runs += 1;
        }
        // A header of any bytes ends the connection within its limit.
        let noise: Vec<u8> = (0..2 * MOST_HEADER).map(|_| draws.u8(..)).collect();
        assert!(read_message(&mut noise.as_slice()).is_err());
    }
    println!("executions: {runs}, {messages} messages read, {refused} refused");
    assert!(messages > 100 && refused > 100, "{messages} and {refused} of {runs}");
}
