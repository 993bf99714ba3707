//! A plot of the work queue over time.

use std::fmt::Write as _;

use headroom_diagnosis::Analysis;

use super::milliseconds;
use crate::page::note;
use crate::svg::escape;

/// A plot of how much work waited for the device over the steps; empty if the trace does not link work to its launch.
pub fn html(analysis: &Analysis) -> String {
    let queue = &analysis.measures.queue;
    let Some(last) = queue.curve.last().filter(|_| queue.most > 0) else { return String::new() };
    const LEFT: f64 = 60.0;
    const WIDTH: f64 = 690.0;
    const HEIGHT: f64 = 110.0;
    let x = |seconds: f64| LEFT + WIDTH * seconds / last.seconds.max(f64::MIN_POSITIVE);
    let y = |depth: f64| 8.0 + HEIGHT * (1.0 - depth / f64::from(queue.most));
    let line = |of: &dyn Fn(usize) -> f64| -> String {
        let points =
            queue.curve.iter().enumerate().map(|(at, point)| format!("{:.1},{:.1}", x(point.seconds), y(of(at))));
        points.collect::<Vec<_>>().join(" ")
    };
    let mut out = String::from(
        "<figure><svg viewBox=\"0 0 760 140\" role=\"img\" aria-label=\"Work in the queue over the steps\">",
    );
    let _ = write!(
        out,
        "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{0}\" y1=\"{1}\" y2=\"{1}\"/><text class=\"tick\" x=\"{2}\" y=\"14\" \
         text-anchor=\"end\">{3}</text><text class=\"tick\" x=\"{2}\" y=\"{4}\" text-anchor=\"end\">0</text>",
        LEFT + WIDTH,
        y(0.0),
        LEFT - 6.0,
        queue.most,
        y(0.0)
    );
    let most = line(&|at| f64::from(queue.curve[at].most));
    let mean = line(&|at| queue.curve[at].mean);
    let base = y(0.0);
    let _ = write!(
        out,
        "<polygon class=\"part0\" opacity=\".25\" points=\"{LEFT},{base} {most} {},{base}\"/>\
         <polygon class=\"part0\" points=\"{LEFT},{base} {mean} {},{base}\"/>",
        LEFT + WIDTH,
        LEFT + WIDTH
    );
    for quarter in 0..=4 {
        let seconds = last.seconds * f64::from(quarter) / 4.0;
        let anchor = if quarter == 4 { "end" } else { "middle" };
        let _ = write!(
            out,
            "<text class=\"tick\" x=\"{:.1}\" y=\"134\" text-anchor=\"{anchor}\">{}</text>",
            x(seconds),
            escape(&milliseconds(seconds))
        );
    }
    out += "</svg></figure>\n";
    let blocked = match queue.blocked_calls {
        0 => String::new(),
        calls => format!(
            " The host waited on a full queue for {} per step ({calls} launches): the device sets the pace there.",
            milliseconds(queue.blocked_seconds_per_step)
        ),
    };
    out + &note(&format!(
        "Operations queued and not finished, from the start of the first step: the mean of each interval, with its \
         maximum behind it.{blocked}"
    ))
}
