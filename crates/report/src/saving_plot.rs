//! Predicted savings beside measured ones, one row each.

use crate::svg::{Axis, Frame, Scale, escape};
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 30.0;

/// A row of the plot; savings are percent of a step.
pub struct Row {
    pub name: String,
    pub predicted: Option<f64>,
    pub saving: f64,
    pub interval: Option<(f64, f64)>,
    pub tip: String,
}

/// Draws a ring at the prediction, and a point with its interval at the measurement. `left` is the width for names.
pub fn savings(label: &str, left: f64, rows: &[Row]) -> String {
    let height = HEIGHT * rows.len() as f64;
    let frame = Frame { left, top: 10.0, width: WIDTH - left - 30.0, height };
    let ends = rows.iter().flat_map(|row| {
        let (low, high) = row.interval.unwrap_or((row.saving, row.saving));
        [Some(row.saving), Some(low), Some(high), row.predicted]
    });
    let (from, to) = ends.flatten().fold((0.0f64, 0.0f64), |(from, to), end| (from.min(end), to.max(end)));
    let room = (0.06 * (to - from)).max(1.0);
    let x = Axis { from: from - room, to: to + room, scale: Scale::Linear };
    let mut out =
        format!(r#"<svg viewBox="0 0 {WIDTH} {:.0}" role="img" aria-label="{}">"#, height + 56.0, escape(label));
    for tick in x.ticks() {
        let at = frame.x(&x, tick);
        let class = if tick == 0.0 { "zero" } else { "grid" };
        let _ = write!(
            out,
            r#"<line class="{class}" x1="{at:.1}" x2="{at:.1}" y1="{:.1}" y2="{:.1}"/><text class="tick" x="{at:.1}" y="{:.1}" text-anchor="middle">{tick:.0}%</text>"#,
            frame.top,
            frame.top + height,
            frame.top + height + 16.0
        );
    }
    let _ = write!(
        out,
        r#"<text class="axis" x="{:.1}" y="{:.1}" text-anchor="middle">percent of the step saved</text>"#,
        frame.left + frame.width / 2.0,
        frame.top + height + 36.0
    );
    for (index, row) in rows.iter().enumerate() {
        let y = frame.top + HEIGHT * (index as f64 + 0.5);
        let _ = write!(
            out,
            r#"<text class="label" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            frame.left - 10.0,
            y + 4.0,
            escape(&row.name),
        );
        if let Some((low, high)) = row.interval {
            let _ = write!(
                out,
                r#"<line class="interval" x1="{:.1}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}"/>"#,
                frame.x(&x, low),
                frame.x(&x, high)
            );
        }
        let _ = write!(out, r#"<circle class="measured" cx="{:.1}" cy="{y:.1}" r="5"/>"#, frame.x(&x, row.saving));
        if let Some(predicted) = row.predicted {
            let _ = write!(out, r#"<circle class="predicted" cx="{:.1}" cy="{y:.1}" r="7"/>"#, frame.x(&x, predicted));
        }
        let _ = write!(
            out,
            r#"<rect class="hover" x="0" y="{:.1}" width="{WIDTH}" height="{HEIGHT}" data-tip="{}"/>"#,
            y - HEIGHT / 2.0,
            escape(&row.tip)
        );
    }
    out + "</svg>"
}
