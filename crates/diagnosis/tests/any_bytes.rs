//! Whatever the bytes of a trace, reading and analyzing them ends without a panic.

/// Seconds to go on for; a run in development sets more.
fn seconds() -> u64 {
    std::env::var("HEADROOM_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(3)
}

/// Steele and Vigna's splitmix64: enough to mutate, and the same everywhere.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}
/// Parts of a real trace, cut, repeated, and with bytes and numbers changed.
fn mutate_trace(text: &[u8], draws: &mut Draws) -> Vec<u8> {
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
    let length = 1 + draws.below(60_000);
    let from = draws.below(text.len().saturating_sub(length));
    let mut bytes = b"{\"traceEvents\": [".to_vec();
    // A part begins where an event does, most of the time.
    let start = match draws.below(4) {
        0 => from,
        _ => text[from..].iter().position(|byte| *byte == b'{').map_or(from, |at| from + at),
    };
    bytes.extend_from_slice(&text[start..(start + length).min(text.len())]);
    for _ in 0..draws.below(12) {
        if bytes.is_empty() {
            break;
        }
        let at = draws.below(bytes.len());
        match draws.below(4) {
            0 => bytes[at] = draws.next() as u8,
            1 => drop(bytes.splice(at..at, PIECES[draws.below(PIECES.len())].bytes())),
            2 => drop(bytes.drain(at..(at + draws.below(400)).min(bytes.len()))),
            _ => {
                // Digits become other digits: times run backwards, ids meet, lengths overflow.
                let end = (at + 2_000).min(bytes.len());
                for byte in bytes[at..end].iter_mut().filter(|byte| byte.is_ascii_digit()) {
                    *byte = b'0' + draws.below(10) as u8;
                }
            }
        }
    }
    if draws.below(2) == 0 {
        bytes.extend_from_slice(b"]}");
    }
    bytes
}

#[test]
fn mutated_traces_are_read_and_analyzed_without_a_panic() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data/slow.pt.trace.json.gz");
    let file = std::fs::File::open(file).expect("the data is there");
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut text).expect("unpacks");
    let mut draws = Draws(11);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(seconds());
    let (mut runs, mut analyzed) = (0u32, 0u32);
    while std::time::Instant::now() < until {
        let bytes = mutate_trace(&text, &mut draws);
        runs += 1;
        if let Ok(trace) = headroom_trace::read_bytes(&bytes) {
            let analysis = headroom_diagnosis::analyze(&[trace], &headroom_diagnosis::Options::default());
            let analysis = analysis.expect("there is a trace");
            let busy = analysis.measures.breakdown.busy_share;
            assert!((0.0..=1.0).contains(&busy), "busy for {busy}");
            analyzed += 1;
        }
    }
    println!("{runs} traces, {analyzed} of them analyzed");
    assert!(analyzed > 10, "only {analyzed} of {runs}");
}
