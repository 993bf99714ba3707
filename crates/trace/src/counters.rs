//! Counters: values that a profiler sampled over time, such as memory, utilisation or traffic.

use serde_json::Value;

use crate::names::NameId;

/// One sample of one series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub series: NameId,
    pub time: i64,
    pub value: f64,
}

/// The series of a counter event and their values: each number among its arguments. A series is named after the
/// counter, and after the argument where that adds information.
pub fn series(counter: &str, arguments: &[u8]) -> Vec<(String, f64)> {
    let Ok(Value::Object(members)) = serde_json::from_slice(arguments) else { return Vec::new() };
    let named = |key: &str| match key {
        "value" | "Value" | "" => counter.to_string(),
        key if key == counter => counter.to_string(),
        key => format!("{counter}: {key}"),
    };
    let number = |value: &Value| value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
    let numbers = members.iter().filter_map(|(key, value)| Some((named(key), number(value)?)));
    numbers.filter(|(_, value)| value.is_finite()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_a_series() {
        let of = |text: &str| series("GPU 0", text.as_bytes());
        assert_eq!(of(r#"{"value": 3}"#), [("GPU 0".to_string(), 3.0)]);
        let two = [("GPU 0: busy %".to_string(), 41.5), ("GPU 0: watts".to_string(), 300.0)];
        assert_eq!(of(r#"{"busy %": 41.5, "note": "x", "watts": "300"}"#), two);
        assert_eq!(of(r#"{"value": "nan"}"#), []);
        assert_eq!(of("{broken"), []);
    }
}
