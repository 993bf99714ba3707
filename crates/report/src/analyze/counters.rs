//! Plots of counters over time.

use std::fmt::Write as _;

use headroom_diagnosis::Analysis;
use headroom_diagnosis::measures::counters::CounterRow;

use super::milliseconds;
use crate::page::note;
use crate::svg::escape;

/// More counters would make the page too long to read.
const SHOWN: usize = 8;

/// One curve for each counter sampled within the steps; empty if there are none.
pub fn html(analysis: &Analysis) -> String {
    let rows = &analysis.measures.counters;
    let end = analysis.steps.range().nanos() as f64 / 1e9;
    if rows.is_empty() || end <= 0.0 {
        return String::new();
    }
    let mut out: String = rows.iter().take(SHOWN).map(|row| picture(row, end)).collect();
    if rows.len() > SHOWN {
        out += &note(&format!("{} more counters are in the JSON report.", rows.len() - SHOWN));
    }
    out + &note("Profiler samples from the start of the first step to the end of the last: the mean of each interval.")
}

fn picture(row: &CounterRow, end: f64) -> String {
    const LEFT: f64 = 60.0;
    const WIDTH: f64 = 690.0;
    const HEIGHT: f64 = 60.0;
    let (least, most) = (row.least.min(0.0), row.most.max(0.0));
    let x = |seconds: f64| LEFT + WIDTH * (seconds / end).clamp(0.0, 1.0);
    let y = |value: f64| 8.0 + HEIGHT * (1.0 - (value - least) / (most - least).max(f64::MIN_POSITIVE));
    // A value holds until the next sample.
    let mut points = Vec::new();
    for (at, &[seconds, value]) in row.curve.iter().enumerate() {
        let next = row.curve.get(at + 1).map_or(end, |next| next[0]);
        points.push(format!("{:.1},{:.1} {:.1},{:.1}", x(seconds), y(value), x(next), y(value)));
    }
    let first = row.curve.first().map_or(0.0, |point| point[0]);
    let base = y(0.0);
    let mut out = format!(
        "<figure><figcaption>{}: {:.4} on average, {:.4} to {:.4}, {} samples</figcaption>\
         <svg viewBox=\"0 0 760 92\" role=\"img\" aria-label=\"{} over the steps\">",
        escape(&row.name),
        row.mean,
        row.least,
        row.most,
        row.samples,
        escape(&row.name)
    );
    let _ = writeln!(
        out,
        "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{0}\" y1=\"{base:.1}\" y2=\"{base:.1}\"/>\
         <text class=\"tick\" x=\"{1}\" y=\"14\" text-anchor=\"end\">{most:.4}</text>\
         <polygon class=\"part0\" points=\"{2:.1},{base:.1} {3} {0},{base:.1}\"/>\
         <text class=\"tick\" x=\"{LEFT}\" y=\"88\">0</text>\
         <text class=\"tick\" x=\"{0}\" y=\"88\" text-anchor=\"end\">{4}</text></svg></figure>",
        LEFT + WIDTH,
        LEFT - 6.0,
        x(first),
        points.join(" "),
        escape(&milliseconds(end))
    );
    out
}
