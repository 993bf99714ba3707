//! One bar for a step: what it was made of, left to right in the order of the legend.

use super::Profile;
use crate::numbers::seconds;
use crate::svg::escape;
use std::fmt::Write;

pub fn breakdown_bar(profile: &Profile) -> String {
    let breakdown = &profile.operators.step_breakdown;
    let mut out = String::from(r#"<svg viewBox="0 0 760 44" role="img" aria-label="Parts of a step">"#);
    let mut legend = String::from(r#"<p class="legend">"#);
    let mut at = 0.0;
    for (index, (name, time)) in breakdown.parts().iter().enumerate() {
        let share = (time / breakdown.wall).max(0.0);
        let width = 760.0 * share;
        let tip = format!("{name}\n{}\n{:.2}% of the step", seconds(*time), 100.0 * share);
        let _ = write!(
            out,
            r#"<rect class="part{index}" x="{at:.2}" y="4" width="{:.2}" height="36" data-tip="{}"/>"#,
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
            r#"<span><i class="part{index}"></i>{} {} ({:.2}%)</span> "#,
            escape(name),
            seconds(*time),
            100.0 * share
        );
        at += width;
    }
    out + "</svg>" + &legend + "</p>"
}
