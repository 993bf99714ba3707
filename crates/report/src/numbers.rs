//! Numbers as people read them.

use headroom_record::flops::is_possible_mfu;
pub use headroom_record::numbers::bytes;

/// `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A rate or count with its metric prefix: `2.9e11` and `FLOP/s` as `290 GFLOP/s`.
pub fn metric(number: f64, unit: &str) -> String {
    let prefixes = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (scale, prefix) = prefixes.into_iter().find(|(scale, _)| number.abs() >= *scale).unwrap_or((1.0, ""));
    let scaled = number / scale;
    let decimals = if scaled.abs() >= 100.0 { 0 } else { 1 };
    format!("{scaled:.decimals$} {prefix}{unit}")
}

/// A rate with one decimal, or with three significant digits if it is small.
pub fn rate(number: f64) -> String {
    if number >= 10.0 || number <= 0.0 {
        return format!("{number:.1}");
    }
    let zeros = (-number.log10().floor()).max(0.0) as usize;
    format!("{number:.*}", zeros + 2)
}

/// MFU with this many decimals. If it exceeds what any device can do, says so and why.
pub fn mfu(percent: f64, decimals: usize) -> String {
    match is_possible_mfu(percent) {
        true => format!("{percent:.decimals$}%"),
        false => format!(
            "impossible ({percent:.1e}%: more than the peak, so the FLOPs, the times or the peak must be wrong)"
        ),
    }
}

/// MFU for a table cell, which has no room for the reason.
pub fn mfu_cell(percent: f64) -> String {
    if is_possible_mfu(percent) { format!("{percent:.1}%") } else { "impossible".into() }
}

/// Seconds in a fitting unit.
pub fn seconds(time: f64) -> String {
    match time {
        time if time >= 100.0 => format!("{time:.0} s"),
        time if time >= 1.0 => format!("{time:.2} s"),
        time if time >= 1e-3 => format!("{:.2} ms", time * 1e3),
        time => format!("{:.1} µs", time * 1e6),
    }
}

/// `0.54×`, also below 1.
pub fn times(speedup: f64) -> String {
    format!("{speedup:.2}×")
}

/// `1 trace`, `2 traces`.
pub fn counted(count: usize, thing: &str) -> String {
    match (count, thing.strip_suffix('y')) {
        (1, _) => format!("1 {thing}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        (_, None) => format!("{count} {thing}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_people_read_them() {
        assert_eq!([0, 999, 1000, 1_300_203_520].map(grouped), ["0", "999", "1,000", "1,300,203,520"]);
        assert_eq!([512, 2048, 5 << 20].map(bytes), ["512 B", "2.0 KiB", "5.0 MiB"]);
        assert_eq!(metric(2.9e11, "FLOP/s"), "290 GFLOP/s");
        assert_eq!([256.54, 3.24159, 0.00144321, 0.0].map(rate), ["256.5", "3.24", "0.00144", "0.0"]);
        assert_eq!(metric(12.34, "samples/s"), "12.3 samples/s");
        assert_eq!([mfu(12.346, 2), mfu(100.0, 1)], ["12.35%", "100.0%"]);
        for percent in [1.9e11, 100.2, f64::NAN, f64::INFINITY, -1.0] {
            assert!(mfu(percent, 1).starts_with("impossible ("), "{percent}");
            assert_eq!(mfu_cell(percent), "impossible");
        }
        assert_eq!([250.0, 2.5, 0.0123, 4.56e-5].map(seconds), ["250 s", "2.50 s", "12.30 ms", "45.6 µs"]);
    }
}
