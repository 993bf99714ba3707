//! Live memory over the first recorded step, by category, with the peak named.

use super::Profile;
use crate::svg::{Axis, Frame, Scale, escape};
use headroom_record::timeline::TimelinePoint;
use std::fmt::Write;

const FRAME: Frame = Frame { left: 78.0, top: 26.0, width: 650.0, height: 300.0 };

pub fn memory_plot(profile: &Profile) -> String {
    let points: Vec<&TimelinePoint> =
        profile.timeline.points.iter().filter(|point| point.step == profile.steps.0).collect();
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return "<p>Nothing was recorded.</p>".into();
    };
    let zero = first.time_us;
    let millis = |point: &TimelinePoint| (point.time_us - zero) / 1e3;
    // The last call's own length is not in the timeline; a mean one closes the curve.
    let end = millis(last) * (1.0 + 1.0 / points.len() as f64);
    let peak = points.iter().rev().max_by(|left, right| left.live_mb.total().total_cmp(&right.live_mb.total()));
    let most = peak.map_or(1.0, |point| point.live_mb.total());
    let x = Axis { from: 0.0, to: end.max(1e-6), scale: Scale::Linear };
    let y = Axis { from: 0.0, to: most * 1.12, scale: Scale::Linear };

    let mut out =
        String::from(r#"<svg viewBox="0 0 760 376" role="img" aria-label="Live memory over one step by category">"#);
    out += &phases(&points, &x, &millis, end);
    out += &FRAME.grid((&x, "milliseconds of the step"), (&y, "MiB live"), |tick| format!("{tick}"));
    let mut below = vec![0.0; points.len()];
    for (category, _) in first.live_mb.entries() {
        let sizes = points.iter().map(|point| {
            let entries = point.live_mb.entries();
            entries.iter().find(|(name, _)| *name == category).map_or(0.0, |(_, size)| *size)
        });
        let above: Vec<f64> = sizes.zip(&below).map(|(size, base)| base + size).collect();
        let path = band(&points, &below, &above, &x, &y, &millis, end);
        let _ = write!(out, r#"<path class="band {category}" d="{path}"/>"#);
        below = above;
    }
    for (index, point) in points.iter().enumerate() {
        let (from, to) = (millis(point), points.get(index + 1).map_or(end, |next| millis(next)));
        let mut tip =
            format!("{}\n{:.2} ms · {}\n{:.1} MiB live", point.operator, from, point.phase, point.live_mb.total());
        for (name, size) in point.live_mb.entries() {
            let _ = write!(tip, "\n  {} {size:.1}", name.replace('_', " "));
        }
        let left = FRAME.x(&x, from);
        let _ = write!(
            out,
            r#"<rect class="hover" x="{left:.2}" y="{:.1}" width="{:.2}" height="{:.1}" data-tip="{}"/>"#,
            FRAME.top,
            (FRAME.x(&x, to) - left).max(0.2),
            FRAME.height,
            escape(&tip)
        );
    }
    if let Some(point) = peak {
        let (px, py) = (FRAME.x(&x, millis(point)), FRAME.y(&y, most));
        let anchor = if px > FRAME.left + FRAME.width / 2.0 { "end" } else { "start" };
        let _ = write!(
            out,
            r#"<circle class="peak" cx="{px:.1}" cy="{py:.1}" r="4"/><text class="label" x="{:.1}" y="{:.1}" text-anchor="{anchor}">{}</text>"#,
            if anchor == "end" { px - 8.0 } else { px + 8.0 },
            py - 6.0,
            escape(&format!("peak {most:.1} MiB: {}", point.operator))
        );
    }
    out + "</svg>"
}

/// Where each phase begins, as a line and a name above the plot.
fn phases(points: &[&TimelinePoint], x: &Axis, millis: &impl Fn(&TimelinePoint) -> f64, end: f64) -> String {
    let mut starts: Vec<(&str, f64)> = vec![];
    for point in points {
        if starts.last().is_none_or(|(name, _)| *name != point.phase) {
            starts.push((&point.phase, millis(point)));
        }
    }
    let mut out = String::new();
    for (index, (name, from)) in starts.iter().enumerate() {
        let to = starts.get(index + 1).map_or(end, |(_, next)| *next);
        let (left, right) = (FRAME.x(x, *from), FRAME.x(x, to));
        if index > 0 {
            let _ = write!(
                out,
                r#"<line class="ridge" x1="{left:.1}" x2="{left:.1}" y1="{:.1}" y2="{:.1}"/>"#,
                FRAME.top - 8.0,
                FRAME.top + FRAME.height
            );
        }
        if right - left > 40.0 {
            let _ = write!(
                out,
                r#"<text class="note" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                (left + right) / 2.0,
                FRAME.top - 10.0,
                escape(name)
            );
        }
    }
    out
}

/// Steps, not slopes: what is live changes when a call starts.
fn band(
    points: &[&TimelinePoint],
    below: &[f64],
    above: &[f64],
    x: &Axis,
    y: &Axis,
    millis: &impl Fn(&TimelinePoint) -> f64,
    end: f64,
) -> String {
    let edge = |values: &[f64]| -> Vec<(f64, f64)> {
        let mut corners = vec![];
        for (index, point) in points.iter().enumerate() {
            let until = points.get(index + 1).map_or(end, |next| millis(next));
            let height = FRAME.y(y, values[index]);
            corners.extend([(FRAME.x(x, millis(point)), height), (FRAME.x(x, until), height)]);
        }
        corners
    };
    let mut corners = edge(above);
    corners.extend(edge(below).into_iter().rev());
    let mut path = String::new();
    for (index, (px, py)) in corners.iter().enumerate() {
        let _ = write!(path, "{}{px:.1} {py:.1}", if index == 0 { "M" } else { "L" });
    }
    path + "Z"
}
