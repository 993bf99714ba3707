//! Perfetto's rules for a JSON trace, as far as they are known without its loader. A trace that breaks one may fail to
//! open.

use std::collections::BTreeMap;

use serde_json::Value;

/// Lists the problems of `text`, one sentence each; empty if it obeys the rules. Reads the whole text: for tests.
pub fn perfetto_problems(text: &str) -> Vec<String> {
    if !text.starts_with("{\"") {
        return vec![r#"the file does not start with {""#.into()];
    }
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => return vec![format!("it is not JSON: {error}")],
    };
    let Some(events) = value["traceEvents"].as_array() else {
        return vec!["it has no list \"traceEvents\"".into()];
    };
    let mut problems = Vec::new();
    let mut tracks: BTreeMap<(i64, i64), Vec<Span>> = BTreeMap::new();
    for (index, event) in events.iter().enumerate() {
        if let Some(text) = control_character(event) {
            problems.push(format!("event {index} has a control character in {text:?}"));
        }
        let identity = |key: &str| match event[key].as_i64() {
            Some(number) if i32::try_from(number).is_ok() => Some(number),
            _ => None,
        };
        let (Some(process), Some(thread)) = (identity("pid"), identity("tid")) else {
            problems.push(format!("event {index} has no pid and tid within 32 bits"));
            continue;
        };
        if event["ph"] != "X" {
            continue;
        }
        if !["name", "cat"].iter().all(|key| event[key].is_string()) {
            problems.push(format!("span {index} lacks a name or a category"));
        }
        match (nanos(&event["ts"]), nanos(&event["dur"])) {
            (Some(start), Some(duration)) if duration >= 0 => {
                tracks.entry((process, thread)).or_default().push(Span { start, end: start + duration, index });
            }
            _ => problems.push(format!("span {index} lacks a time or a duration")),
        }
    }
    for ((process, thread), spans) in tracks {
        problems.extend(
            crossing(spans).into_iter().map(|text| format!("on pid {process}, tid {thread} {text}, and must nest")),
        );
    }
    problems
}

struct Span {
    start: i64,
    end: i64,
    index: usize,
}

/// Spans that begin within another and end after it.
fn crossing(mut spans: Vec<Span>) -> Vec<String> {
    spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
    let mut open: Vec<Span> = Vec::new();
    let mut problems = Vec::new();
    for span in spans {
        while open.last().is_some_and(|outer| outer.end <= span.start) {
            open.pop();
        }
        if let Some(outer) = open.last()
            && span.end > outer.end
        {
            problems.push(format!("spans {} and {} cross", outer.index, span.index));
        }
        open.push(span);
    }
    problems
}

fn nanos(value: &Value) -> Option<i64> {
    value.as_f64().map(|micros| (micros * 1000.0).round() as i64)
}

fn control_character(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => text.chars().any(char::is_control).then_some(text),
        Value::Array(list) => list.iter().find_map(control_character),
        Value::Object(members) => members.values().find_map(control_character),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(events: &str, want: &[&str]) {
        assert_eq!(perfetto_problems(&format!("{{\"traceEvents\": [{events}]}}")), want);
    }

    #[test]
    fn spans_that_nest_are_sound() {
        check(
            r#"{"ph":"X","cat":"c","name":"a","pid":1,"tid":1,"ts":0,"dur":10},
               {"ph":"X","cat":"c","name":"b","pid":1,"tid":1,"ts":0,"dur":5},
               {"ph":"X","cat":"c","name":"c","pid":1,"tid":1,"ts":5,"dur":5},
               {"ph":"X","cat":"c","name":"d","pid":1,"tid":2,"ts":9,"dur":5}"#,
            &[],
        );
    }

    #[test]
    fn every_broken_rule_is_named() {
        check(
            r#"{"ph":"X","cat":"c","name":"a","pid":1,"tid":1,"ts":0,"dur":10},
               {"ph":"X","cat":"c","name":"b","pid":1,"tid":1,"ts":5,"dur":10}"#,
            &["on pid 1, tid 1 spans 0 and 1 cross, and must nest"],
        );
        check(
            r#"{"ph":"X","cat":"c","name":"a","pid":1,"tid":9999999999,"ts":0,"dur":1}"#,
            &["event 0 has no pid and tid within 32 bits"],
        );
        check(r#"{"ph":"X","cat":"c","name":"a","pid":1,"tid":1,"ts":0}"#, &["span 0 lacks a time or a duration"]);
        check(r#"{"ph":"X","name":"a","pid":1,"tid":1,"ts":0,"dur":1}"#, &["span 0 lacks a name or a category"]);
        check(r#"{"ph":"i","name":"a\u0007","pid":1,"tid":1}"#, &["event 0 has a control character in \"a\\u{7}\""]);
        assert_eq!(perfetto_problems("[]"), [r#"the file does not start with {""#]);
        assert_eq!(perfetto_problems("{\"a\": 1}"), ["it has no list \"traceEvents\""]);
    }
}
