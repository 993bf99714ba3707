//! Divides time among calls that run concurrently on several streams, in proportion to what each needs.
//!
//! A short kernel beside a long GEMM waits for units that the GEMM occupies, and its span grows by that wait. The time
//! it needs alone, by the nearer roof, tells how much of the span is its own.

use super::intervals::Span;

/// Seconds of each span; their sum is the time in which at least one ran. `needs` is the time in seconds that a span's
/// call would take at its roof.
pub fn shares(spans: &[Span], needs: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by_key(|&index| spans[index].start);
    let seconds = |nanos: i64| nanos as f64 / 1e9;
    let pace = |index: usize| {
        let length = seconds(spans[index].nanos());
        if length > 0.0 { needs[index] / length } else { 0.0 }
    };
    let mut shares = vec![0.0; spans.len()];
    let mut running: Vec<(usize, f64)> = Vec::new();
    let mut next = 0;
    let mut now = order.first().map_or(0, |&first| spans[first].start);
    loop {
        let begins = order.get(next).map(|&index| spans[index].start);
        let ends = running.iter().map(|&(index, _)| spans[index].end).min();
        let Some(then) = begins.into_iter().chain(ends).min() else { break };
        let passed = seconds((then - now).max(0));
        let all: f64 = running.iter().map(|(_, pace)| pace).sum();
        for &(index, pace) in &running {
            shares[index] += passed * if all > 0.0 { pace / all } else { 1.0 / running.len() as f64 };
        }
        now = now.max(then);
        running.retain(|&(index, _)| spans[index].end > now);
        while let Some(&index) = order.get(next).filter(|&&index| spans[index].start <= now) {
            next += 1;
            if spans[index].end > now {
                running.push((index, pace(index)));
            }
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(times: &[(i64, i64)], needs: &[f64]) -> Vec<f64> {
        let spans: Vec<Span> =
            times.iter().map(|&(start, end)| Span { start: 1000 * start, end: 1000 * end }).collect();
        let needs: Vec<f64> = needs.iter().map(|micros| micros * 1e-6).collect();
        shares(&spans, &needs).into_iter().map(|seconds| (seconds * 1e9).round() / 1e3).collect()
    }

    #[test]
    fn calls_one_after_the_other_have_their_whole_time() {
        assert_eq!(micros(&[(0, 10), (10, 40), (50, 51)], &[1.0, 0.0, 9.0]), [10.0, 30.0, 1.0]);
    }

    #[test]
    fn a_short_call_beside_a_long_one_has_what_it_needs_of_their_common_time() {
        // A GEMM that needs 90 of its 100, and a norm that needs 10 and waited for it: the 100 are divided 9 to 1.
        assert_eq!(micros(&[(0, 100), (0, 100)], &[90.0, 10.0]), [90.0, 10.0]);
        // 50 alone; then at paces 0.9 and 0.1 for 100 more; then 50 alone.
        assert_eq!(micros(&[(0, 150), (50, 200)], &[135.0, 15.0]), [140.0, 60.0]);
    }

    #[test]
    fn calls_that_need_nothing_share_alike_and_the_sum_is_the_time_in_which_any_ran() {
        assert_eq!(
            micros(&[(0, 30), (10, 20), (10, 20)], &[0.0; 3]),
            [20.0 + 10.0 / 3.0, 3.333, 3.333].map(|x: f64| (x * 1e3).round() / 1e3)
        );
        assert_eq!(micros(&[(20, 20), (5, 8)], &[1.0, 1.0]), [0.0, 3.0]);
    }
}
