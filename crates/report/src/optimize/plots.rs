//! The plots of an optimisation: predicted savings beside measured ones, and the ladder as bars.

use super::tables::{interval, times};
use crate::saving_plot::{Row, savings};
use crate::svg::{Axis, Frame, Scale, escape};
use headroom_record::validation::{ValidationRecord, ValidationRow};
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const ROW: f64 = 30.0;

/// One row per pass.
pub fn saving_plot(record: &ValidationRecord) -> String {
    let row = |row: &ValidationRow| {
        let (saving, low, high) = row.saving_percent();
        Row {
            name: row.name.clone(),
            predicted: row.predicted_saving_percent(),
            saving,
            interval: Some((low, high)),
            tip: format!(
                "{}\npredicted {}\nmeasured {}\n{}",
                row.name,
                row.predicted_speedup.map_or("-".into(), times),
                interval(row),
                row.verdict
            ),
        }
    };
    let rows: Vec<Row> = record.passes.iter().map(row).collect();
    savings("Predicted and measured saving of every pass", 130.0, &rows)
}

/// Version 1, then each list; the length of a bar is its speed.
pub fn ladder_plot(record: &ValidationRecord) -> String {
    let mut bars = vec![("v1".to_string(), 1.0, None, "Version 1, the naive graph".to_string())];
    for row in &record.versions {
        let tip = format!(
            "{}: {}\npredicted {}\n{:.0} → {:.0} MiB, {} → {} kernels\n{}",
            row.name,
            interval(row),
            row.predicted_speedup.map_or("-".into(), times),
            row.memory_before_mb,
            row.memory_after_mb,
            row.kernels_before,
            row.kernels_after,
            row.passes.join(", ")
        );
        bars.push((row.name.clone(), row.measured_speedup, Some(row), tip));
    }
    let most = record.versions.iter().map(|row| row.measured_ci95_high).fold(1.0, f64::max) * 1.12;
    let x = Axis { from: 0.0, to: most, scale: Scale::Linear };
    let frame = Frame { left: 60.0, top: 6.0, width: WIDTH - 80.0, height: ROW * bars.len() as f64 };
    let mut out = format!(
        r#"<svg viewBox="0 0 {WIDTH} {:.0}" role="img" aria-label="Speed-up over Version 1">"#,
        frame.height + 12.0
    );
    for (index, (name, speedup, row, tip)) in bars.iter().enumerate() {
        let y = frame.top + ROW * index as f64;
        let (start, end) = (frame.x(&x, 0.0), frame.x(&x, *speedup));
        let _ = write!(
            out,
            r#"<text class="label" x="{:.1}" y="{:.1}" text-anchor="end">{}</text><rect class="bar" x="{start:.1}" y="{:.1}" width="{:.1}" height="{:.1}"/>"#,
            start - 8.0,
            y + 19.0,
            escape(name),
            y + 4.0,
            end - start,
            ROW - 8.0
        );
        let mut text_at = end;
        if let Some(row) = row {
            let (low, high) = (frame.x(&x, row.measured_ci95_low), frame.x(&x, row.measured_ci95_high));
            text_at = high;
            let middle = y + ROW / 2.0;
            let _ = write!(
                out,
                r#"<line class="interval" x1="{low:.1}" x2="{high:.1}" y1="{middle:.1}" y2="{middle:.1}"/>"#
            );
        }
        let _ = write!(
            out,
            r#"<text class="label" x="{:.1}" y="{:.1}">{}</text><rect class="hover" x="0" y="{y:.1}" width="{WIDTH}" height="{ROW}" data-tip="{}"/>"#,
            text_at + 8.0,
            y + 19.0,
            times(*speedup),
            escape(tip)
        );
    }
    out + "</svg>"
}
