//! Explains the longest stalls of the device: the work before and after them, and what the host was doing.

use headroom_trace::Category;

use super::intervals::{Span, covered};
use super::stops::Stop;
use super::view::View;

/// One sentence for each of the longest `count` stalls, by the time that `explained` does not cover.
pub fn longest_stops(view: &View, stops: &[Stop], explained: &[Span], count: usize) -> Vec<String> {
    let rest = |stop: &Stop| stop.span.nanos() - covered(explained, stop.span);
    let mut order: Vec<&Stop> = stops.iter().filter(|stop| rest(stop) > 0).collect();
    order.sort_by_key(|stop| (std::cmp::Reverse(rest(stop)), stop.span.start));
    order.into_iter().take(count).map(|stop| sentence(view, stop)).collect()
}

fn sentence(view: &View, stop: &Stop) -> String {
    let device = &view.trace.device;
    let named = |at: Option<usize>| at.map(|at| format!("`{}`", short(view.name(device.name[at]))));
    let before = named(stop.before(view)).unwrap_or_else(|| "the start".into());
    let after = named(stop.after()).unwrap_or_else(|| "the end".into());
    let milliseconds = stop.span.nanos() as f64 / 1e6;
    let host = match host_in(view, stop.starved().unwrap_or(stop.span)) {
        _ if stop.stalled().nanos() * 2 > stop.span.nanos() => {
            "the work was queued: it waited for another stream, another rank or something outside the trace".to_string()
        }
        Some(at) => format!("the host was in `{}`", short(view.host_name(at))),
        None => "nothing was recorded on the host: its work is outside the trace".to_string(),
    };
    format!("{milliseconds:.2} ms after {before}, before {after}: {host}")
}

/// The innermost host span that covers at least half of a window.
pub fn host_in(view: &View, window: Span) -> Option<usize> {
    let covers = |at: &usize| view.host_span(*at).overlap(window) * 2 > window.nanos();
    activity(view).filter(covers).min_by_key(|&at| (view.trace.host.duration[at], at))
}

/// When the host was doing anything that is recorded.
pub fn recorded(view: &View) -> Vec<Span> {
    super::intervals::merged(activity(view).map(|at| view.host_span(at)).collect())
}

/// Host spans that tell what the host was doing: neither the profiler's own nor its marks of steps.
fn activity<'v>(view: &'v View) -> impl Iterator<Item = usize> + 'v {
    let host = &view.trace.host;
    let is_mark: Vec<bool> = view.trace.names.iter().map(|(_, name)| name.starts_with("ProfilerStep")).collect();
    let counts = move |at: &usize| {
        !matches!(host.category[*at], Category::Other | Category::Overhead) && !is_mark[host.name[*at].index()]
    };
    (0..host.len()).filter(counts)
}

/// The parts of the steps before the first and after the last recorded event: recording began later, or ended earlier.
pub fn outside_of_recording(view: &View) -> Vec<Span> {
    let recorded = super::intervals::merged([recorded(view), view.busy.clone()].concat());
    let range = view.steps.range();
    let (Some(first), Some(last)) = (recorded.first(), recorded.last()) else { return vec![range] };
    let before = Span { start: range.start, end: first.start.min(range.end) };
    let after = Span { start: last.end.max(range.start), end: range.end };
    [before, after].into_iter().filter(|span| span.nanos() > 0).collect()
}

const LONGEST_NAME: usize = 70;

/// A name shortened to fit into a sentence.
pub fn short(name: &str) -> String {
    let plain = name.strip_prefix("void ").unwrap_or(name);
    match plain.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => format!("{}…", &plain[..end]),
        None => plain.to_string(),
    }
}
