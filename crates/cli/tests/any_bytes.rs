//! Checks that a session of any bytes with the server for agents ends, without a panic, and that every answer is JSON.

use fastrand::Rng;
use headroom_cli::InMemory;
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

const HELLO: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"#,
    r#""clientInfo":{"name":"a","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n",
);

const MESSAGES: [&str; 7] = [
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#,
    r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#,
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"analyze","arguments":{"traces":["a.json"]}}}"#,
    r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"lint","arguments":{"paths":["../x"],"at":"/a"}}}"#,
    r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"optimize","arguments":{"command":["sh"]}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#,
    r#"{"jsonrpc":"2.0","id":5,"result":{}}"#,
];

const PIECES: [&str; 12] = [
    "\n",
    "\r\n",
    "null",
    "[]",
    "{",
    "\"\\ud800\"",
    "1e400",
    "18446744073709551616",
    "\0",
    "[[[[[[[[[[[[[[[[",
    "\u{feff}",
    "Content-Length: 3\r\n\r\n",
];

/// A session with pieces put in, bytes changed, and parts left out.
fn mutated(draws: &mut Rng) -> Vec<u8> {
    // Most sessions begin correctly, so that what follows is answered.
    let mut bytes = if draws.u8(..8) == 0 { vec![] } else { HELLO.as_bytes().to_vec() };
    let begin = if draws.u8(..4) == 0 { 0 } else { bytes.len() };
    for _ in 0..draws.usize(..4) {
        bytes.extend(format!("{}\n", MESSAGES[draws.usize(..MESSAGES.len())]).bytes());
    }
    for _ in 0..draws.usize(..4) {
        let at = begin + draws.usize(..=bytes.len() - begin);
        match draws.u8(..4) {
            0 => drop(bytes.splice(at..at, PIECES[draws.usize(..PIECES.len())].bytes())),
            1 => bytes.truncate(at.max(begin)),
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
fn mcp_sessions_of_any_bytes_end_and_answers_are_json() {
    let server = InMemory::new().unwrap();
    let mut draws = draws(43);
    let begin = Instant::now();
    let (mut runs, mut answers) = (0u64, 0u64);
    while begin.elapsed() < time() {
        let bytes = mutated(&mut draws);
        let sent = server.session(bytes.clone());
        let sent = sent.unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&bytes)));
        for line in sent.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let answer: serde_json::Value = serde_json::from_slice(line)
                .unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&bytes)));
            assert_eq!(answer["jsonrpc"], "2.0", "{answer}");
            answers += 1;
        }
        runs += 1;
    }
    println!("executions: {runs}, {answers} answers");
    assert!(runs > 10 && answers > 10, "{answers} answers in {runs} runs");
}
