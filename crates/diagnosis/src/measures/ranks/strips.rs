//! One step of every rank on one clock: when it computed, transferred data and waited.

use crate::measures::collectives::collectives;
use crate::measures::communication::compute;
use crate::measures::intervals::{Span, clipped, merged, without};
use crate::measures::view::View;

/// Spans in seconds from the plot's left edge.
#[derive(Clone, Debug, Default)]
pub struct Strips {
    pub seconds: f64,
    pub step: String,
    pub ranks: Vec<Strip>,
}

#[derive(Clone, Debug, Default)]
pub struct Strip {
    pub compute: Vec<[f64; 2]>,
    pub transfer: Vec<[f64; 2]>,
    pub wait: Vec<[f64; 2]>,
}

/// Finer than a screen can show.
const PIECES: i64 = 1500;

/// `waits` are sets of time on each rank's own clock. Without a common clock, each rank starts at its own step.
pub fn strips(views: &[&View], waits: &[Vec<Span>], offsets: &[i64], one_clock: bool, analyzed: usize) -> Strips {
    let middle = views[analyzed].steps.list.len() / 2;
    let Some(chosen) = views[analyzed].steps.list.get(middle) else { return Strips::default() };
    // The step of that name, otherwise of that index.
    let windows: Vec<Option<Span>> = views
        .iter()
        .map(|view| {
            let list = &view.steps.list;
            list.iter().find(|step| step.name == chosen.name).or(list.get(middle)).map(|step| step.span)
        })
        .collect();
    let on_one_clock = |(window, offset): (&Option<Span>, &i64)| {
        window.map(|span| Span { start: span.start - offset, end: span.end - offset })
    };
    let shifted: Vec<Span> = windows.iter().zip(offsets).filter_map(on_one_clock).collect();
    let first = shifted.iter().map(|span| span.start).min().unwrap_or(0);
    let length = match one_clock {
        true => shifted.iter().map(|span| span.end).max().unwrap_or(0) - first,
        false => shifted.iter().map(|span| span.nanos()).max().unwrap_or(0),
    };
    let strip = |at: usize| {
        let Some(own) = windows[at] else { return Strip::default() };
        let start = if one_clock { first + offsets[at] } else { own.start };
        let window = Span { start, end: start + length };
        let view = views[at];
        let moving = merged(collectives(view).into_iter().map(|collective| collective.span).collect());
        let waiting = &waits[at];
        Strip {
            compute: drawn(&compute(view), window),
            transfer: drawn(&without(&moving, waiting), window),
            wait: drawn(waiting, window),
        }
    };
    Strips { seconds: length as f64 / 1e9, step: chosen.name.clone(), ranks: (0..views.len()).map(strip).collect() }
}

/// Parts of `set` within `window`, joined where the plot would show no gap.
fn drawn(set: &[Span], window: Span) -> Vec<[f64; 2]> {
    let gap = window.nanos() / PIECES;
    let mut joined: Vec<Span> = Vec::new();
    for span in clipped(set, window) {
        match joined.last_mut() {
            Some(last) if span.start - last.end <= gap => last.end = span.end,
            _ => joined.push(span),
        }
    }
    let place = |nanos: i64| (nanos - window.start) as f64 / 1e9;
    joined.iter().map(|span| [place(span.start), place(span.end)]).collect()
}
