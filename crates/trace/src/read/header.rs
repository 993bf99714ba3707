//! Metadata at the top level of a trace file, beside the events.

use serde_json::Value;

use super::json::{Cursor, Stop};
use crate::trace::{DeviceProperties, Header};

/// The members of the top-level object other than the events, as raw text.
#[derive(Debug, Default)]
pub struct Members(Vec<(Vec<u8>, Vec<u8>)>);

/// Where the events are.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Their list begins here, after its `[`.
    Events(usize),
    /// The text ended first.
    NeedsMore,
    /// The top-level object ended, or the text is something that no trace has.
    NoEvents(&'static str),
}

/// Reads from the start of the file up to the list of events.
pub fn up_to_events(text: &[u8], members: &mut Members) -> Found {
    members.0.clear();
    let text_start = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let skipped = text.len() - text_start.len();
    let mut cursor = Cursor::new(text_start);
    match cursor.peek() {
        Err(_) => return Found::NeedsMore,
        Ok(b'[') => {
            cursor.at += 1;
            let events = Found::Events(skipped + cursor.at);
            // A list of something else (a TOML section, a list of numbers) is not a list of events.
            return match cursor.peek() {
                Ok(b'{' | b']') => events,
                Ok(_) => Found::NoEvents("its list holds something other than events"),
                Err(_) => Found::NeedsMore,
            };
        }
        Ok(b'{') => cursor.at += 1,
        Ok(_) => return Found::NoEvents("it is not JSON"),
    }
    match read_members(&mut cursor, members) {
        Ok(true) => Found::Events(skipped + cursor.at),
        Ok(false) => Found::NoEvents("it has no \"traceEvents\""),
        Err(Stop::EndOfText) => Found::NeedsMore,
        Err(Stop::Unexpected) => Found::NoEvents("its JSON is broken before \"traceEvents\""),
    }
}

/// Reads the members after the list of events, as far as they go.
pub fn after_events(text: &[u8], members: &mut Members) {
    let mut cursor = Cursor::new(text);
    if cursor.expect(b',').is_ok() {
        let _ = read_members(&mut cursor, members);
    }
}

/// Returns `true` with the cursor behind the `[` of the events, `false` at the end of the object.
fn read_members(cursor: &mut Cursor, members: &mut Members) -> Result<bool, Stop> {
    if cursor.peek()? == b'}' {
        return Ok(false);
    }
    loop {
        let key = cursor.key()?;
        if key == b"traceEvents" && cursor.peek()? == b'[' {
            cursor.at += 1;
            return Ok(true);
        }
        let value = cursor.raw_value()?;
        members.0.push((key.to_vec(), value.to_vec()));
        if !cursor.comma_or(b'}')? {
            return Ok(false);
        }
    }
}

/// Reads field by field: a number that one profiler writes as 85e9 must not cost the device its name.
fn device(value: &Value) -> DeviceProperties {
    let number = |key: &str| value[key].as_f64().unwrap_or(0.0);
    DeviceProperties {
        id: number("id") as u32,
        name: value["name"].as_str().unwrap_or_default().to_string(),
        memory_bytes: number("totalGlobalMem") as u64,
        compute_major: number("computeMajor") as u32,
        compute_minor: number("computeMinor") as u32,
        multiprocessors: number("numSms") as u32,
    }
}

impl Members {
    pub fn into_header(self) -> Header {
        let mut header = Header::default();
        for (key, value) in self.0 {
            let Ok(value) = serde_json::from_slice::<Value>(&value) else {
                continue;
            };
            let is_on = value.as_bool().unwrap_or_else(|| value.as_i64().is_some_and(|number| number != 0));
            match key.as_slice() {
                b"deviceProperties" => {
                    let devices = value.as_array().cloned().unwrap_or_default();
                    header.devices = devices.iter().map(device).collect();
                }
                b"distributedInfo" => header.distributed = serde_json::from_value(value).ok(),
                b"record_shapes" => header.records_shapes = is_on,
                b"with_stack" => header.records_stacks = is_on,
                b"profile_memory" => header.records_memory = is_on,
                b"with_flops" => header.records_flops = is_on,
                b"baseTimeNanoseconds" => header.base_nanos = value.as_i64(),
                b"headroom_recording" => header.recording = serde_json::from_value(value).ok(),
                b"headroom" => header.headroom = serde_json::from_value(value).ok(),
                _ => {}
            }
        }
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_read_before_and_after_the_events() {
        let mut members = Members::default();
        let text = br#"{"with_stack": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 15e10, "numSms": 132}],
            "traceEvents": [{}], "distributedInfo": {"rank": 3, "world_size": 8}, "profile_memory": true}"#;
        let Found::Events(at) = up_to_events(text, &mut members) else { panic!("the events are there") };
        assert_eq!(&text[at..at + 3], b"{}]");
        after_events(&text[at + 3..], &mut members);
        let header = members.into_header();
        assert_eq!((header.devices[0].name.as_str(), header.devices[0].multiprocessors), ("NVIDIA H200", 132));
        assert_eq!(header.devices[0].memory_bytes, 150_000_000_000);
        assert_eq!(header.distributed.map(|distributed| (distributed.rank, distributed.world_size)), Some((3, 8)));
        assert!(header.records_stacks && header.records_memory && !header.records_shapes);
    }

    #[test]
    fn what_is_no_trace_is_told_apart_from_one_that_is_cut() {
        let find = |text: &[u8]| up_to_events(text, &mut Members::default());
        assert_eq!(find(b"import torch"), Found::NoEvents("it is not JSON"));
        assert_eq!(find(b"{\"a\": 1}"), Found::NoEvents("it has no \"traceEvents\""));
        assert_eq!(find(b"{\"a\" 1}"), Found::NoEvents("its JSON is broken before \"traceEvents\""));
        assert_eq!(find(b"{\"a\": [1, "), Found::NeedsMore);
        assert_eq!(find(b" [{}"), Found::Events(2));
    }
}
