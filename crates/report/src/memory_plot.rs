//! Live memory over time by category, with the peak labelled.

use crate::svg::{Axis, Frame, Scale, escape};
use std::fmt::Write;

/// Live memory from one moment until the next point.
pub struct MemoryPoint {
    pub millis: f64,
    /// Forward, backward or optimizer; empty if unknown.
    pub phase: String,
    /// The operator that runs there; empty if unknown.
    pub label: String,
    /// (CSS class, name, MiB), from the lowest band up.
    pub bands: Vec<(&'static str, &'static str, f64)>,
}

impl MemoryPoint {
    fn total(&self) -> f64 {
        self.bands.iter().map(|(_, _, size)| size).sum()
    }
}

const FRAME: Frame = Frame { left: 78.0, top: 26.0, width: 650.0, height: 300.0 };

/// `over` names the time axis; the points are in order of time.
pub fn memory_plot(points: &[MemoryPoint], over: &str) -> String {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return String::new() };
    let zero = first.millis;
    let millis = |point: &MemoryPoint| point.millis - zero;
    // The last point's duration is unknown; a mean one closes the curve.
    let end = millis(last) * (1.0 + 1.0 / points.len() as f64);
    let peak = points.iter().rev().max_by(|left, right| left.total().total_cmp(&right.total()));
    let most = peak.map_or(1.0, MemoryPoint::total);
    let x = Axis { from: 0.0, to: end.max(1e-6), scale: Scale::Linear };
    let y = Axis { from: 0.0, to: (most * 1.12).max(1e-9), scale: Scale::Linear };

    let mut out = String::from(r#"<svg viewBox="0 0 760 376" role="img" aria-label="Live memory by purpose">"#);
    out += &phases(points, &x, &millis, end);
    out += &FRAME.grid((&x, over), (&y, "MiB live"), |tick| {
        // Sums of tenths have rounding errors.
        format!("{}", (tick * 1e6).round() / 1e6)
    });
    let mut below = vec![0.0; points.len()];
    for (index, (class, _, _)) in first.bands.iter().enumerate() {
        let above: Vec<f64> = points.iter().zip(&below).map(|(point, base)| base + point.bands[index].2).collect();
        let path = band(points, &below, &above, &x, &y, &millis, end);
        let _ = write!(out, r#"<path class="band {class}" d="{path}"/>"#);
        below = above;
    }
    for (index, point) in points.iter().enumerate() {
        let (from, to) = (millis(point), points.get(index + 1).map_or(end, millis));
        let mut tip = match point.label.as_str() {
            "" => format!("{from:.2} ms"),
            label => format!("{label}\n{from:.2} ms · {}", point.phase),
        };
        let _ = write!(tip, "\n{:.1} MiB live", point.total());
        for (_, name, size) in &point.bands {
            let _ = write!(tip, "\n  {name} {size:.1}");
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
            escape(&match point.label.as_str() {
                "" => format!("peak {most:.1} MiB"),
                label => format!("peak {most:.1} MiB: {label}"),
            })
        );
    }
    out + "</svg>"
}

/// The start of each phase, as a line with a name above the plot.
fn phases(points: &[MemoryPoint], x: &Axis, millis: &impl Fn(&MemoryPoint) -> f64, end: f64) -> String {
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

/// Draws steps, not slopes: live memory changes when a call starts.
fn band(
    points: &[MemoryPoint],
    below: &[f64],
    above: &[f64],
    x: &Axis,
    y: &Axis,
    millis: &impl Fn(&MemoryPoint) -> f64,
    end: f64,
) -> String {
    let edge = |values: &[f64]| -> Vec<(f64, f64)> {
        let mut corners = vec![];
        for (index, point) in points.iter().enumerate() {
            let until = points.get(index + 1).map_or(end, millis);
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

/// The legend of the bands' colours.
pub fn legend(points: &[MemoryPoint]) -> String {
    let bands = points.first().map_or(&[][..], |point| &point.bands);
    bands.iter().map(|(class, name, _)| format!(r#"<span><i class="{class}"></i>{}</span> "#, escape(name))).collect()
}
