//! Plots of several runs: lines over a logarithmic axis, and stacked bars.

use crate::svg::{Axis, Frame, Scale, escape};
use std::fmt::Write;

const FRAME: Frame = Frame { left: 78.0, top: 16.0, width: 650.0, height: 270.0 };

pub struct Series {
    pub name: String,
    /// (x, y, tooltip)
    pub points: Vec<(f64, f64, String)>,
}

/// Lines through points, both axes logarithmic. Empty if there is nothing to draw.
pub fn lines(label: &str, x: &str, y: &str, series: &[Series]) -> String {
    let points = || series.iter().flat_map(|series| &series.points);
    if points().next().is_none() {
        return String::new();
    }
    let axis = |value: fn(&(f64, f64, String)) -> f64| {
        let (from, to) =
            points().map(value).fold((f64::INFINITY, 0.0f64), |(low, high), at| (low.min(at), high.max(at)));
        Axis { from: from / 1.6, to: to * 1.6, scale: Scale::Log }
    };
    let (x_axis, y_axis) = (axis(|point| point.0), axis(|point| point.1));
    let mut out = format!(r#"<figure><svg viewBox="0 0 760 336" role="img" aria-label="{}">"#, escape(label));
    out += &grid((&x_axis, x), (&y_axis, y), points().map(|point| point.0).collect());
    for (index, series) in series.iter().enumerate() {
        let place = |point: &(f64, f64, String)| (FRAME.x(&x_axis, point.0), FRAME.y(&y_axis, point.1));
        let path: Vec<String> = series.points.iter().map(place).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let colour = index % 7;
        let _ = write!(
            out,
            r#"<polyline points="{}" fill="none" style="stroke:var(--c{})" stroke-width="2"/>"#,
            path.join(" "),
            colour + 1
        );
        for point in &series.points {
            let (px, py) = place(point);
            let _ = write!(
                out,
                r#"<circle class="point" style="fill:var(--c{})" cx="{px:.1}" cy="{py:.1}" r="6" tabindex="0" data-tip="{}"/>"#,
                colour + 1,
                escape(&point.2)
            );
        }
    }
    out += "</svg>";
    let names = series.iter().enumerate().map(|(index, series)| {
        format!("<span><i style=\"background:var(--c{})\"></i>{}</span> ", index % 7 + 1, escape(&series.name))
    });
    out + "<figcaption class=\"legend\">" + &names.collect::<String>() + "</figcaption></figure>\n"
}

pub struct Bar {
    pub name: String,
    /// One size per part, in the order of the parts' names.
    pub sizes: Vec<f64>,
    /// Shown at the bar's end.
    pub label: String,
}

/// The value of a bar with full width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Full {
    Longest,
    Value(f64),
}

/// Horizontal stacked bars with named parts.
pub fn bars(label: &str, unit: &str, parts: &[(&str, &str)], full: Full, bars: &[Bar]) -> String {
    const ROW: f64 = 26.0;
    let longest = bars.iter().map(|bar| bar.sizes.iter().sum::<f64>()).fold(0.0, f64::max);
    let longest = match full {
        Full::Value(value) if longest > 0.0 => longest.max(value),
        _ => longest,
    };
    if longest <= 0.0 {
        return String::new();
    }
    let height = 8.0 + ROW * bars.len() as f64;
    let (left, width) = (130.0, 480.0);
    let mut out = format!(r#"<figure><svg viewBox="0 0 760 {height}" role="img" aria-label="{}">"#, escape(label));
    for (row, bar) in bars.iter().enumerate() {
        let top = 4.0 + ROW * row as f64;
        let _ = write!(
            out,
            r#"<text class="label" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            left - 8.0,
            top + 15.0,
            escape(&bar.name)
        );
        let mut at = left;
        for ((name, colour), size) in parts.iter().zip(&bar.sizes) {
            let long = width * size / longest;
            let _ = write!(
                out,
                r#"<rect class="{colour}" x="{at:.2}" y="{top:.1}" width="{long:.2}" height="20" data-tip="{}"/>"#,
                escape(&format!("{}\n{name} {size:.1} {unit}", bar.name))
            );
            at += long;
        }
        let _ = write!(
            out,
            r#"<text class="tick" x="{:.1}" y="{:.1}">{}</text>"#,
            at + 6.0,
            top + 15.0,
            escape(&bar.label)
        );
    }
    out += "</svg>";
    let legend = parts.iter().filter(|(name, _)| !name.is_empty());
    let names: String =
        legend.map(|(name, colour)| format!("<span><i class=\"{colour}\"></i>{}</span> ", escape(name))).collect();
    out + "<figcaption class=\"legend\">" + &names + "</figcaption></figure>\n"
}

/// Vertical lines at the swept values, and horizontal ones at 1, 2 and 5 times every power of ten.
fn grid(x: (&Axis, &str), y: (&Axis, &str), mut at: Vec<f64>) -> String {
    at.sort_by(f64::total_cmp);
    at.dedup();
    let (right, bottom) = (FRAME.left + FRAME.width, FRAME.top + FRAME.height);
    let mut out = String::new();
    for value in at {
        let place = FRAME.x(x.0, value);
        let _ = write!(
            out,
            r#"<line class="grid" x1="{place:.1}" x2="{place:.1}" y1="{:.1}" y2="{bottom:.1}"/><text class="tick" x="{place:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            FRAME.top,
            bottom + 16.0,
            tick(value)
        );
    }
    for value in round_values(y.0) {
        let place = FRAME.y(y.0, value);
        let _ = write!(
            out,
            r#"<line class="grid" x1="{:.1}" x2="{right:.1}" y1="{place:.1}" y2="{place:.1}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            FRAME.left,
            FRAME.left - 6.0,
            place + 4.0,
            tick(value)
        );
    }
    let _ = write!(
        out,
        r#"<text class="axis" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text><text class="axis" transform="translate({:.1} {:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
        FRAME.left + FRAME.width / 2.0,
        bottom + 36.0,
        escape(x.1),
        FRAME.left - 52.0,
        FRAME.top + FRAME.height / 2.0,
        escape(y.1)
    );
    out
}

/// Round values, few enough to read: only powers of ten if the axis spans many.
fn round_values(axis: &Axis) -> Vec<f64> {
    let (first, last) = (axis.from.log10().floor() as i32, axis.to.log10().ceil() as i32);
    let units: &[f64] = if last - first > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let all = (first..=last).flat_map(|power| units.iter().map(move |unit| unit * 10f64.powi(power)));
    all.filter(|value| (axis.from..=axis.to).contains(value)).collect()
}

/// The parts of `Components`, with their colours on every page.
pub const COMPONENTS: [(&str, &str); 7] = [
    ("parameters", "parameters"),
    ("gradients", "gradients"),
    ("optimizer state", "optimizer_state"),
    ("activations", "activations"),
    ("attention's squares", "part5"),
    ("temporaries", "temporaries"),
    ("gaps and scratch", "part6"),
];

fn tick(value: f64) -> String {
    let digits = |value: f64, unit: &str| {
        let text = format!("{value:.1}");
        format!("{}{unit}", text.strip_suffix(".0").unwrap_or(&text))
    };
    match value {
        value if value >= 1e9 => digits(value / 1e9, "G"),
        value if value >= 1e6 => digits(value / 1e6, "M"),
        value if value >= 1e4 => digits(value / 1e3, "k"),
        value => format!("{}", (value * 1e6).round() / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_on_an_axis_are_round_and_short() {
        assert_eq!([0.2, 64.0, 5000.0, 20_890_112.0, 1.3e9].map(tick), ["0.2", "64", "5000", "20.9M", "1.3G"]);
        let axis = Axis { from: 3.0, to: 60.0, scale: Scale::Log };
        assert_eq!(round_values(&axis), [5.0, 10.0, 20.0, 50.0]);
    }

    #[test]
    fn nothing_to_draw_is_no_picture() {
        assert_eq!(lines("", "x", "y", &[]), "");
        assert_eq!(bars("", "", &[("a", "part0")], Full::Value(100.0), &[]), "");
    }
}
