//! The roofline: FLOPs a second against FLOPs a byte, with the machine's two roofs and a point an operator.

use super::Profile;
use crate::numbers::{metric, seconds};
use crate::svg::{Axis, Frame, Scale, escape};
use headroom_record::operators::PlaceStats;

const FRAME: Frame = Frame { left: 78.0, top: 14.0, width: 650.0, height: 380.0 };

/// Points named in the plot itself; the others answer the pointer.
const NAMED: usize = 6;

pub fn roofline_plot(profile: &Profile) -> String {
    let device = &profile.roofline.device_info;
    let (peak, bandwidth) = (device.peak_flops, device.peak_memory_bandwidth);
    let ridge = peak / bandwidth;
    let places: Vec<&PlaceStats> =
        profile.operators.by_place.iter().filter(|place| place.flops > 0 && place.time > 0.0).collect();
    let performance = |place: &PlaceStats| place.flops as f64 / place.time;
    let whole = &profile.roofline.performance_point;
    let intensities = places.iter().map(|place| place.intensity).chain([whole.arithmetic_intensity, ridge]);
    let rates = places.iter().map(|place| performance(place)).chain([whole.achieved_performance, peak]);
    let x = around(intensities, 1.6);
    let y = around(rates, 1.8);

    let mut out =
        String::from(r#"<svg viewBox="0 0 760 444" role="img" aria-label="Roofline of the step's operators">"#);
    out += &FRAME.grid((&x, "FLOPs a byte"), (&y, "FLOPs a second"), |tick| {
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
    for place in places.iter().rev() {
        out += &point(place, FRAME.x(&x, place.intensity), FRAME.y(&y, performance(place)), performance(place));
    }
    out += &names(&places, |place| (FRAME.x(&x, place.intensity), FRAME.y(&y, performance(place))));
    let (wx, wy) = (FRAME.x(&x, whole.arithmetic_intensity), FRAME.y(&y, whole.achieved_performance));
    out += &format!(
        r#"<path class="whole" d="M{wx:.1} {:.1} l7 7 l-7 7 l-7 -7z" data-tip="{}"/>"#,
        wy - 7.0,
        escape(&format!(
            "the whole step\n{:.1} FLOPs a byte\n{}\nMFU {:.1}%",
            whole.arithmetic_intensity,
            metric(whole.achieved_performance, "FLOP/s"),
            whole.mfu_percent
        ))
    );
    out + "</svg>"
}

/// Numbers on the costliest points, and what they stand for where points are rare: fast per byte, yet slow.
fn names(places: &[&PlaceStats], at: impl Fn(&PlaceStats) -> (f64, f64)) -> String {
    let mut out = String::new();
    let (right, bottom) = (FRAME.left + FRAME.width - 6.0, FRAME.top + FRAME.height - 10.0);
    let named = places.len().min(NAMED);
    for (index, place) in places.iter().take(NAMED).enumerate() {
        let (px, py) = at(place);
        let leaf = place.module.rsplit('.').next().unwrap_or_default();
        let text = format!("{} {} {leaf}, {} {:.1}%", index + 1, place.name, place.phase, place.percent_of_step);
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

fn point(place: &PlaceStats, x: f64, y: f64, rate: f64) -> String {
    // The area stands for time.
    let radius = (2.5 + 3.0 * place.percent_of_step.max(0.0).sqrt()).min(16.0);
    let tip = format!(
        "{}\n{} a step, {:.1}% of it, {} calls\n{} at {:.1} FLOPs a byte\n{:.0}% of its roof ({})",
        place.label(),
        seconds(place.time),
        place.percent_of_step,
        place.count,
        metric(rate, "FLOP/s"),
        place.intensity,
        place.percent_of_roof,
        place.bound.name().replace('_', " ")
    );
    let class = place.bound.name();
    format!(
        r#"<circle class="point {class}" cx="{x:.1}" cy="{y:.1}" r="{radius:.1}" tabindex="0" data-tip="{}"/>"#,
        escape(&tip)
    )
}

/// An axis that holds all values with some room on both sides.
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
