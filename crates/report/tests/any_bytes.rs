//! Checks that a trace of any bytes is read or refused, analyzed and shown in every format without a panic.

use fastrand::Rng;
use headroom_diagnosis::{Options, analyze, compare};
use headroom_report as report;
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

fn below(draws: &mut Rng, limit: usize) -> usize {
    draws.usize(..limit.max(1))
}

/// The longest that one damaged trace may take, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Parts of a real trace, cut, repeated, and with bytes and numbers changed.
fn mutate_trace(text: &[u8], draws: &mut Rng) -> Vec<u8> {
    const PIECES: &[&str] = &[
        "-1",
        "1e308",
        "1e400",
        "NaN",
        "\"\\ud800\"",
        "9223372036854775807",
        "null",
        "[]",
        "{}",
        "}",
        "]",
        "\"",
        "\\",
        ",",
        "0.0000001",
        "18446744073709551616",
        "\"ts\":",
        "\"dur\":-5",
        "\u{0}",
    ];
    let length = 1 + below(draws, 60_000);
    let from = below(draws, text.len().saturating_sub(length));
    let mut bytes = b"{\"traceEvents\": [".to_vec();
    // Most parts begin at an event.
    let start = match below(draws, 4) {
        0 => from,
        _ => text[from..].iter().position(|byte| *byte == b'{').map_or(from, |at| from + at),
    };
    bytes.extend_from_slice(&text[start..(start + length).min(text.len())]);
    for _ in 0..below(draws, 12) {
        if bytes.is_empty() {
            break;
        }
        let at = below(draws, bytes.len());
        match below(draws, 4) {
            0 => bytes[at] = draws.u8(..),
            1 => drop(bytes.splice(at..at, PIECES[below(draws, PIECES.len())].bytes())),
            2 => drop(bytes.drain(at..(at + below(draws, 400)).min(bytes.len()))),
            _ => {
                // Digits become other digits: times run backwards, ids collide, lengths overflow.
                let end = (at + 2_000).min(bytes.len());
                for byte in bytes[at..end].iter_mut().filter(|byte| byte.is_ascii_digit()) {
                    *byte = b'0' + below(draws, 10) as u8;
                }
            }
        }
    }
    if below(draws, 2) == 0 {
        bytes.extend_from_slice(b"]}");
    }
    bytes
}

#[test]
fn mutated_traces_are_read_analyzed_and_shown_without_a_panic() {
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data");
    let mut corpus: Vec<std::path::PathBuf> =
        std::fs::read_dir(data).expect("the data is there").map(|entry| entry.expect("an entry").path()).collect();
    corpus.retain(|path| path.to_string_lossy().ends_with(".json.gz"));
    corpus.sort();
    let unpacked = |path: &std::path::PathBuf| {
        let mut text = Vec::new();
        let file = std::fs::File::open(path).expect("a file");
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut text).expect("unpacks");
        text
    };
    let corpus: Vec<Vec<u8>> = corpus.iter().map(unpacked).collect();
    assert!(!corpus.is_empty());
    let mut draws = draws(11);
    let (begin, mut runs, mut analyzed) = (Instant::now(), 0u64, 0u64);
    while begin.elapsed() < time() {
        let bytes = mutate_trace(&corpus[below(&mut draws, corpus.len())], &mut draws);
        let started = Instant::now();
        analyzed += u64::from(read_and_show(&bytes));
        assert!(started.elapsed() < PATIENCE, "{:?} for {} bytes", started.elapsed(), bytes.len());
        runs += 1;
    }
    println!("executions: {runs}, {analyzed} of them analyzed");
    assert!(analyzed > 10, "only {analyzed} of {runs}");
}

/// Returns whether it was a trace.
fn read_and_show(bytes: &[u8]) -> bool {
    let Ok(trace) = headroom_trace::read_bytes(bytes) else { return false };
    let analysis = analyze(&[trace], &Options::default()).expect("there is a trace");
    let busy = analysis.measures.breakdown.busy_share;
    assert!((0.0..=1.0).contains(&busy), "busy for {busy}");
    let shown = [
        report::analyze::answer(&analysis),
        report::analyze::everything(&analysis),
        report::analyze::markdown(&analysis),
        report::analyze::html(&analysis),
    ];
    // A name may contain anything; a figure must be a number.
    let said = bytes.windows(3).any(|three| three == b"NaN");
    for text in &shown[..2] {
        assert!(said || !text.contains("NaN"), "a figure that is not a number\n{text}");
    }
    serde_json::from_str::<serde_json::Value>(&report::analyze::json(&analysis)).expect("JSON");
    report::compare::text(&compare::compare(&analysis, &analysis));
    true
}
