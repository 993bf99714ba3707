//! One event of `traceEvents`: the fields that the measures need, as raw text.

use std::ops::Range;

use super::json::{Cursor, RawString, Step, integer, thousandths};

/// An event's fields. A missing field is empty or `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawEvent<'a> {
    pub phase: u8,
    pub category: &'a [u8],
    pub name: RawString<'a>,
    pub process: &'a [u8],
    pub thread: &'a [u8],
    /// Nanoseconds.
    pub start: Option<i64>,
    pub duration: Duration,
    pub arguments: RawArguments<'a>,
    /// Raw text of all arguments, for events whose argument names are their own.
    pub all_arguments: &'a [u8],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duration {
    #[default]
    Missing,
    /// Not a number that a clock could have measured.
    Impossible,
    Nanos(i64),
}

#[derive(Clone, Copy, Debug, Default)]
pub struct RawArguments<'a> {
    pub external: Option<i64>,
    pub correlation: Option<i64>,
    pub sequence: Option<i64>,
    pub dims: &'a [u8],
    pub types: &'a [u8],
    pub concrete: &'a [u8],
    pub bytes: Option<i64>,
    pub grid: &'a [u8],
    pub block: &'a [u8],
    pub occupancy: Option<i64>,
    pub address: Option<i64>,
    pub total_allocated: Option<i64>,
    pub total_reserved: Option<i64>,
    pub device_type: Option<i64>,
    pub device_id: Option<i64>,
    pub message_elements: Option<i64>,
    pub message_elements_out: Option<i64>,
    pub message_type: &'a [u8],
    pub collective: &'a [u8],
    pub group: &'a [u8],
    pub group_ranks: &'a [u8],
    pub group_size: Option<i64>,
    pub module: &'a [u8],
    pub shares: &'a [u8],
    pub phase: &'a [u8],
    pub flops: Option<i64>,
    pub product: bool,
    pub live: &'a [u8],
    /// Name that an event of phase `M` gives to a process or a thread.
    pub name: &'a [u8],
    pub step: Option<i64>,
    pub is_operation: bool,
    pub kernel_details: &'a [u8],
    pub copy_details: &'a [u8],
}

/// Times that a clock may show. The difference of any two, and the sum of one and a duration, fit into an `i64`.
const CLOCK: Range<i64> = -10_000_000_000_000_000..9_200_000_000_000_000_000;

/// Longer than any profile; longer durations come from an unsigned clock difference that wrapped.
const FORTNIGHT_NANOS: i64 = 14 * 24 * 3600 * 1_000_000_000;

/// Reads the object at the cursor, which must be on its `{`.
pub fn event<'a>(cursor: &mut Cursor<'a>) -> Step<RawEvent<'a>> {
    let mut event = RawEvent::default();
    members(cursor, |key, cursor| {
        match key {
            b"ph" => event.phase = cursor.string()?.bytes.first().copied().unwrap_or(0),
            b"cat" => event.category = string_or_other(cursor)?.bytes,
            b"name" => event.name = string_or_other(cursor)?,
            b"pid" => event.process = cursor.raw_value()?,
            b"tid" => event.thread = cursor.raw_value()?,
            b"ts" => event.start = thousandths(unquoted(cursor.raw_value()?)).filter(|start| CLOCK.contains(start)),
            b"dur" => {
                event.duration = match thousandths(unquoted(cursor.raw_value()?)) {
                    Some(nanos) if (0..FORTNIGHT_NANOS).contains(&nanos) => Duration::Nanos(nanos),
                    _ => Duration::Impossible,
                }
            }
            b"args" if cursor.peek()? == b'{' => {
                let from = cursor.at;
                event.arguments = arguments(cursor)?;
                event.all_arguments = &cursor.text[from..cursor.at];
            }
            _ => {
                cursor.raw_value()?;
            }
        }
        Ok(())
    })?;
    Ok(event)
}

fn arguments<'a>(cursor: &mut Cursor<'a>) -> Step<RawArguments<'a>> {
    let mut found = RawArguments::default();
    members(cursor, |key, cursor| {
        let value = cursor.raw_value()?;
        match key {
            b"External id" | b"external id" => found.external = integer(value),
            b"correlation" | b"Correlation" | b"correlation_id" => found.correlation = integer(value),
            b"Sequence number" => found.sequence = integer(value),
            b"Input Dims" | b"Input dims" => found.dims = value,
            b"Input type" => found.types = value,
            b"Concrete Inputs" => found.concrete = value,
            b"bytes" | b"Bytes" => found.bytes = integer(value),
            b"grid" => found.grid = value,
            b"block" => found.block = value,
            b"est. achieved occupancy %" => found.occupancy = integer(value),
            b"Addr" => found.address = integer(value),
            b"Total Allocated" => found.total_allocated = integer(value),
            b"Total Reserved" => found.total_reserved = integer(value),
            b"Device Type" => found.device_type = integer(value),
            b"Device Id" => found.device_id = integer(value),
            b"In msg nelems" => found.message_elements = integer(value),
            b"Out msg nelems" => found.message_elements_out = integer(value),
            b"Collective name" => found.collective = unquoted(value),
            b"Process Group Name" => found.group = unquoted(value),
            b"Process Group Ranks" => found.group_ranks = unquoted(value),
            b"Group size" => found.group_size = integer(value),
            b"module" => found.module = value,
            b"flops" => found.flops = integer(value),
            b"shares" => found.shares = value,
            b"phase" => found.phase = unquoted(value),
            b"product" => found.product = value == b"true",
            b"live" => found.live = value,
            b"dtype" => found.message_type = value,
            b"name" => found.name = value,
            b"step_num" => found.step = integer(value),
            b"hlo_op" => found.is_operation = true,
            b"kernel_details" => found.kernel_details = value,
            b"memcpy_details" | b"memset_details" => found.copy_details = value,
            _ => {}
        }
        Ok(())
    })?;
    Ok(found)
}

/// Calls `member` for each key, with the cursor before its value.
#[inline]
fn members<'a>(cursor: &mut Cursor<'a>, mut member: impl FnMut(&'a [u8], &mut Cursor<'a>) -> Step<()>) -> Step<()> {
    cursor.expect(b'{')?;
    if cursor.peek()? == b'}' {
        cursor.at += 1;
        return Ok(());
    }
    loop {
        let key = cursor.key()?;
        member(key, cursor)?;
        if !cursor.comma_or(b'}')? {
            return Ok(());
        }
    }
}

/// Reads a string; any other value counts as missing.
fn string_or_other<'a>(cursor: &mut Cursor<'a>) -> Step<RawString<'a>> {
    match cursor.peek()? {
        b'"' => cursor.string(),
        _ => cursor.raw_value().map(|_| RawString::default()),
    }
}

pub fn unquoted(text: &[u8]) -> &[u8] {
    match text {
        [b'"', inner @ .., b'"'] => inner,
        _ => text,
    }
}

/// The first numbers of a list such as `[16, 1, 1]`; 0 for missing ones and those that do not fit.
pub fn numbers<T: Copy + Default + TryFrom<i64>, const COUNT: usize>(text: &[u8]) -> [T; COUNT] {
    let inner = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]")).unwrap_or_default();
    let mut numbers = [T::default(); COUNT];
    for (number, part) in numbers.iter_mut().zip(inner.split(|&byte| byte == b',')) {
        *number = integer(part.trim_ascii()).and_then(|value| T::try_from(value).ok()).unwrap_or_default();
    }
    numbers
}

/// The first place from `from` on where an event may begin: a `{` after a `},`, with optional white space between them.
pub fn next_candidate(text: &[u8], from: usize) -> Option<usize> {
    memchr::memchr_iter(b'{', text.get(from..)?).map(|found| from + found).find(|&at| is_candidate(text, at))
}

/// The last place where an event may begin.
pub fn last_candidate(text: &[u8]) -> Option<usize> {
    memchr::memrchr_iter(b'{', text).find(|&at| is_candidate(text, at))
}

fn is_candidate(text: &[u8], at: usize) -> bool {
    let mut before = text[..at].iter().rev().filter(|byte| !byte.is_ascii_whitespace());
    before.next() == Some(&b',') && before.next() == Some(&b'}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_any_order() {
        let text = br#"{"args": {"External id": 7, "Input Dims": [[2, 3]]}, "dur": 1.5, "ts": 2, "tid": "t", "pid": 4,
            "name": "aten::mm", "cat": "cpu_op", "ph": "X"}"#;
        let event = event(&mut Cursor::new(text)).expect("is an event");
        assert_eq!((event.phase, event.category, event.name.bytes), (b'X', &b"cpu_op"[..], &b"aten::mm"[..]));
        assert_eq!((event.start, event.duration), (Some(2_000), Duration::Nanos(1_500)));
        assert_eq!((event.process, event.thread), (&b"4"[..], &b"\"t\""[..]));
        assert_eq!((event.arguments.external, event.arguments.dims), (Some(7), &b"[[2, 3]]"[..]));
    }

    #[test]
    fn a_wrapped_or_negative_duration_is_impossible() {
        for duration in ["18446744073709551.615", "-1", "1e300", "\"x\""] {
            let text = format!(r#"{{"ph": "X", "dur": {duration}}}"#);
            let event = event(&mut Cursor::new(text.as_bytes())).expect("is an event");
            assert_eq!(event.duration, Duration::Impossible, "{duration}");
        }
    }

    #[test]
    fn less_than_a_fortnight_is_a_duration_and_clocks_are_held_to_their_range() {
        let read = |text: &'static str| event(&mut Cursor::new(text.as_bytes())).expect("is an event");
        // 13 days of 86,400 seconds, then almost and exactly 14.
        assert_eq!(read(r#"{"dur": 1123200000000}"#).duration, Duration::Nanos(1_123_200_000_000_000));
        assert_eq!(read(r#"{"dur": 1209599999999.999}"#).duration, Duration::Nanos(1_209_599_999_999_999));
        assert_eq!(read(r#"{"dur": 1209600000000}"#).duration, Duration::Impossible);
        assert_eq!(read(r#"{"ts": 9199999999999999}"#).start, Some(9_199_999_999_999_999_000));
        assert_eq!(read(r#"{"ts": 9200000000000000}"#).start, None);
        assert_eq!(read(r#"{"ts": -10000000000000}"#).start, Some(-10_000_000_000_000_000));
        assert_eq!(read(r#"{"ts": -10000000000000.001}"#).start, None);
    }

    #[test]
    fn an_event_may_begin_after_a_closing_brace_and_a_comma() {
        let text = br#"{"a": {"b": 1}}, {"c": 2},{"#;
        assert_eq!((next_candidate(text, 0), last_candidate(text)), (Some(17), Some(26)));
        assert_eq!(next_candidate(text, 27), None);
    }
}
