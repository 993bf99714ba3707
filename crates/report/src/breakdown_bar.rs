//! One bar for a step: its parts from left to right, in the order of the legend.

use crate::numbers::seconds;
use crate::svg::escape;
use std::fmt::Write;

/// `parts` are seconds per step, and `wall` is their sum.
pub fn breakdown_bar(parts: &[(&str, f64)], wall: f64) -> String {
    let mut out = String::from(r#"<svg viewBox="0 0 760 44" role="img" aria-label="Parts of a step">"#);
    let mut legend = String::from(r#"<p class="legend">"#);
    let mut at = 0.0;
    for (index, (name, time)) in parts.iter().enumerate() {
        let class = index % 7;
        let share = (time / wall.max(f64::MIN_POSITIVE)).max(0.0);
        let width = 760.0 * share;
        let tip = format!("{name}\n{}\n{:.2}% of the step", seconds(*time), 100.0 * share);
        let _ = write!(
            out,
            r#"<rect class="part{class}" x="{at:.2}" y="4" width="{:.2}" height="36" data-tip="{}"/>"#,
            (width - 1.0).max(0.4),
            escape(&tip)
        );
        if width > 90.0 {
            let _ = write!(
                out,
                r#"<text class="inside" x="{:.1}" y="27" text-anchor="middle">{} {:.0}%</text>"#,
                at + width / 2.0,
                escape(name.trim_end_matches(" operators")),
                100.0 * share
            );
        }
        let _ = write!(
            legend,
            r#"<span><i class="part{class}"></i>{} {} ({:.2}%)</span> "#,
            escape(name),
            seconds(*time),
            100.0 * share
        );
        at += width;
    }
    out + "</svg>" + &legend + "</p>"
}
