//! The roofline: FLOP/s against FLOPs per byte, with the device's two roofs and one point per operator.

use crate::numbers::{metric, mfu, seconds};
use crate::svg::{Axis, Frame, Scale, escape};
use headroom_record::intensity::Bound;

/// An operator, or an operator at one place in the model.
pub struct RooflinePoint {
    pub label: String,
    /// Short enough for a label in the plot.
    pub short: String,
    /// FLOPs per byte.
    pub intensity: f64,
    pub flops_per_second: f64,
    /// Seconds per step, and their percentage of the step.
    pub seconds: f64,
    pub percent_of_step: f64,
    pub calls: f64,
    pub percent_of_roof: f64,
    pub bound: Option<Bound>,
}

/// The device's roofs and the whole step.
pub struct Roofs {
    pub flops: f64,
    pub bandwidth: f64,
    /// FLOPs per byte, FLOP/s and MFU of the whole step, if known.
    pub step: Option<(f64, f64, f64)>,
}

const FRAME: Frame = Frame { left: 78.0, top: 14.0, width: 650.0, height: 380.0 };

/// Number of points labelled in the plot itself; the others have tooltips.
const NAMED: usize = 6;

/// Draws the plot; `points` must be sorted by cost, the costliest first.
pub fn roofline_plot(points: &[RooflinePoint], roofs: &Roofs) -> String {
    let (peak, bandwidth) = (roofs.flops, roofs.bandwidth);
    let ridge = peak / bandwidth;
    let shown = |point: &&RooflinePoint| point.flops_per_second > 0.0 && point.flops_per_second.is_finite();
    let points: Vec<&RooflinePoint> = points.iter().filter(shown).collect();
    let step = roofs.step;
    let intensities = points.iter().map(|point| point.intensity).chain(step.map(|step| step.0)).chain([ridge]);
    let rates = points.iter().map(|point| point.flops_per_second).chain(step.map(|step| step.1)).chain([peak]);
    let x = around(intensities, 1.6);
    let y = around(rates, 1.8);

    let mut out =
        String::from(r#"<svg viewBox="0 0 760 444" role="img" aria-label="Roofline of the step's operators">"#);
    out += &FRAME.grid((&x, "FLOPs per byte"), (&y, "FLOPs per second"), |tick| {
        if tick >= 1e3 { metric(tick, "").replace(".0 ", " ").trim().to_string() } else { format!("{tick}") }
    });
    // The memory roof enters at the left or the bottom edge, whichever comes first.
    let enters = x.from.max(y.from / bandwidth);
    let at = |intensity: f64, rate: f64| format!("{:.1},{:.1}", FRAME.x(&x, intensity), FRAME.y(&y, rate));
    out += &format!(
        r#"<polyline class="roof" points="{} {} {}"/>"#,
        at(enters, enters * bandwidth),
        at(ridge, peak),
        at(x.to, peak)
    );
    let ridge_x = FRAME.x(&x, ridge);
    out += &format!(
        r#"<line class="ridge" x1="{ridge_x:.1}" x2="{ridge_x:.1}" y1="{:.1}" y2="{:.1}"/>"#,
        FRAME.y(&y, peak),
        FRAME.top + FRAME.height
    );
    out += &format!(
        r#"<text class="note" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
        FRAME.left + FRAME.width - 4.0,
        FRAME.y(&y, peak) - 6.0,
        escape(&format!("compute roof {}, ridge at {ridge:.1}", metric(peak, "FLOP/s")))
    );
    let slope = (FRAME.y(&y, peak) - FRAME.y(&y, enters * bandwidth)).atan2(ridge_x - FRAME.x(&x, enters)).to_degrees();
    let middle = (enters * ridge).sqrt();
    out += &format!(
        r#"<text class="note" transform="translate({:.1} {:.1}) rotate({slope:.1})" text-anchor="middle">{}</text>"#,
        FRAME.x(&x, middle) - 6.0,
        FRAME.y(&y, middle * bandwidth) - 14.0,
        escape(&format!("memory roof {}", metric(bandwidth, "B/s")))
    );
    let place = |point: &RooflinePoint| (FRAME.x(&x, point.intensity), FRAME.y(&y, point.flops_per_second));
    for one in points.iter().rev() {
        out += &drawn(one, place(one));
    }
    out += &names(&points, place);
    if let Some((intensity, rate, used)) = step {
        let (wx, wy) = (FRAME.x(&x, intensity), FRAME.y(&y, rate));
        out += &format!(
            r#"<path class="whole" d="M{wx:.1} {:.1} l7 7 l-7 7 l-7 -7z" data-tip="{}"/>"#,
            wy - 7.0,
            escape(&format!(
                "the whole step\n{intensity:.1} FLOPs per byte\n{}\nMFU {}",
                metric(rate, "FLOP/s"),
                mfu(used, 1)
            ))
        );
    }
    out + "</svg>"
}

/// Numbers the costliest points, with the labels in the lower right corner, where points are rare: many FLOPs per byte,
/// yet slow.
fn names(points: &[&RooflinePoint], at: impl Fn(&RooflinePoint) -> (f64, f64)) -> String {
    let mut out = String::new();
    let (right, bottom) = (FRAME.left + FRAME.width - 6.0, FRAME.top + FRAME.height - 10.0);
    let named = points.len().min(NAMED);
    for (index, point) in points.iter().take(NAMED).enumerate() {
        let (px, py) = at(point);
        let text = format!("{} {} {:.1}%", index + 1, point.short, point.percent_of_step);
        out += &format!(
            r#"<text class="number-on-point" x="{px:.1}" y="{:.1}">{}</text><text class="label" x="{right:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            py + 4.0,
            index + 1,
            bottom - 17.0 * (named - 1 - index) as f64,
            escape(&text)
        );
    }
    out
}

fn drawn(point: &RooflinePoint, (x, y): (f64, f64)) -> String {
    // A point's area shows its time.
    let radius = (2.5 + 3.0 * point.percent_of_step.max(0.0).sqrt()).min(16.0);
    let class = point.bound.map_or("compute_bound", Bound::name);
    let tip = format!(
        "{}\n{} per step, {:.1}% of it, {:.0} calls\n{} at {:.1} FLOPs per byte\n{:.0}% of its roof ({})",
        point.label,
        seconds(point.seconds),
        point.percent_of_step,
        point.calls,
        metric(point.flops_per_second, "FLOP/s"),
        point.intensity,
        point.percent_of_roof,
        class.replace('_', " ")
    );
    format!(
        r#"<circle class="point {class}" cx="{x:.1}" cy="{y:.1}" r="{radius:.1}" tabindex="0" data-tip="{}"/>"#,
        escape(&tip)
    )
}

/// An axis that covers all values, with some room on both sides.
fn around(values: impl Iterator<Item = f64>, room: f64) -> Axis {
    let (mut from, mut to) = (f64::INFINITY, 0.0f64);
    for value in values.filter(|value| value.is_finite() && *value > 0.0) {
        (from, to) = (from.min(value), to.max(value));
    }
    if to <= 0.0 {
        (from, to) = (1.0, 10.0);
    }
    Axis { from: from / room, to: to * room, scale: Scale::Log }
}
