//! Tells from a file's first bytes whether it is a trace: for lists of files, where reading each in full would take too
//! long.

use std::io::{self, Read};
use std::path::Path;

use headroom_record::reading;

use super::header::{Found, Members, up_to_events};

/// Profilers write a few kilobytes about devices before the events.
const LOOKED_AT_BYTES: u64 = 256 << 10;

/// Whether `path` begins like a trace: with a list of events, the first of which has a phase (`"ph"`). Plain or
/// gzipped.
pub fn begins_as_trace(path: &Path) -> bool {
    let Ok(text) = first_bytes(path) else { return false };
    match up_to_events(&text, &mut Members::default()) {
        Found::Events(at) => text[at..].windows(4).any(|bytes| bytes == b"\"ph\""),
        Found::NeedsMore | Found::NoEvents(_) => false,
    }
}

/// The beginning of the text; for a broken stream, as much of it as can be unpacked.
fn first_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut packed = Vec::new();
    reading::open(path)?.take(LOOKED_AT_BYTES).read_to_end(&mut packed)?;
    if !packed.starts_with(&[0x1f, 0x8b]) {
        return Ok(packed);
    }
    let mut text = Vec::new();
    // The gzip data is cut off, so decoding ends in an error; the text decoded before it is enough.
    let _ = flate2::read::MultiGzDecoder::new(packed.as_slice()).take(LOOKED_AT_BYTES).read_to_end(&mut text);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn check(bytes: &[u8], is_trace: bool) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("some.json");
        std::fs::write(&path, bytes).expect("is written");
        assert_eq!(begins_as_trace(&path), is_trace, "{}", String::from_utf8_lossy(bytes));
    }

    #[test]
    fn traces_are_told_from_other_json_by_their_beginning() {
        check(br#"{"schemaVersion":1,"traceEvents":[{"ph":"X","name":"a","ts":1,"dur":2}]}"#, true);
        check(br#"[{"name":"a","ph":"X","ts":1,"dur":2}"#, true);
        check(br#"[{"id":1,"text":"a list of samples"}]"#, false);
        check(br#"{"model":{"vocab":{"a":1}}}"#, false);
        check(b"", false);
        assert!(!begins_as_trace(Path::new("there/is/no/such/file")));
    }

    #[test]
    fn a_packed_trace_is_known_though_only_its_beginning_is_unpacked() {
        let mut text = br#"{"traceEvents":["#.to_vec();
        for at in 0..200_000u64 {
            // Numbers that compress badly.
            let noise = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            text.extend(format!(r#"{{"ph":"X","name":"{noise:x}","ts":{at},"dur":1}},"#).bytes());
        }
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&text).expect("packs");
        let packed = packed.finish().expect("packs");
        assert!(packed.len() as u64 > LOOKED_AT_BYTES);
        check(&packed, true);
        check(&packed[..20_000], true);
    }
}
