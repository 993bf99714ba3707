//! Sets of time as sorted lists of disjoint spans.

/// A half-open interval from `start` to `end`, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    pub start: i64,
    pub end: i64,
}

impl Span {
    pub fn nanos(self) -> i64 {
        (self.end - self.start).max(0)
    }

    pub fn overlap(self, other: Span) -> i64 {
        (self.end.min(other.end) - self.start.max(other.start)).max(0)
    }
}

/// Converts spans in any order to a set: sorted, and merged where they overlap or touch.
pub fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    // Most come as a few sorted runs, which a stable sort merges quickly.
    spans.sort();
    let mut set: Vec<Span> = Vec::new();
    for span in spans.into_iter().filter(|span| span.end > span.start) {
        match set.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => set.push(span),
        }
    }
    set
}

pub fn total(set: &[Span]) -> i64 {
    set.iter().map(|span| span.nanos()).sum()
}

/// Whether `time` lies inside one of these spans, which are sorted and disjoint.
pub fn holds(spans: &[Span], time: i64) -> bool {
    let next = spans.partition_point(|span| span.end <= time);
    spans.get(next).is_some_and(|span| span.start <= time)
}

/// How much of `window` the set covers.
pub fn covered(set: &[Span], window: Span) -> i64 {
    let first = set.partition_point(|span| span.end <= window.start);
    set[first..].iter().take_while(|span| span.start < window.end).map(|span| span.overlap(window)).sum()
}

/// The part of `set` inside `window`.
pub fn clipped(set: &[Span], window: Span) -> Vec<Span> {
    let first = set.partition_point(|span| span.end <= window.start);
    set[first..]
        .iter()
        .take_while(|span| span.start < window.end)
        .map(|span| Span { start: span.start.max(window.start), end: span.end.min(window.end) })
        .collect()
}

/// The parts of `window` that the set does not cover.
pub fn gaps(set: &[Span], window: Span) -> Vec<Span> {
    let mut free = Vec::new();
    let mut from = window.start;
    for span in clipped(set, window) {
        if span.start > from {
            free.push(Span { start: from, end: span.start });
        }
        from = from.max(span.end);
    }
    if window.end > from {
        free.push(Span { start: from, end: window.end });
    }
    free
}

/// The time that lies in `first` but not in `second`.
pub fn without(first: &[Span], second: &[Span]) -> Vec<Span> {
    first.iter().flat_map(|span| gaps(second, *span)).collect()
}

pub fn seconds(nanos: i64) -> f64 {
    nanos as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(pairs: &[(i64, i64)]) -> Vec<Span> {
        pairs.iter().map(|&(start, end)| Span { start, end }).collect()
    }

    #[test]
    fn overlapping_spans_count_once() {
        let set = merged(spans(&[(5, 9), (0, 3), (2, 4), (9, 10), (7, 7)]));
        assert_eq!(set, spans(&[(0, 4), (5, 10)]));
        assert_eq!(total(&set), 9);
        assert_eq!(covered(&set, Span { start: 3, end: 6 }), 2);
    }

    #[test]
    fn gaps_and_cover_fill_the_window() {
        let set = spans(&[(0, 4), (5, 10)]);
        let window = Span { start: 2, end: 12 };
        assert_eq!(gaps(&set, window), spans(&[(4, 5), (10, 12)]));
        assert_eq!(total(&gaps(&set, window)) + covered(&set, window), window.nanos());
        assert_eq!(without(&set, &spans(&[(1, 6)])), spans(&[(0, 1), (6, 10)]));
    }
}
