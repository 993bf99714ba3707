//! How one figure grows with another: a power law fitted to points, and its name.

use headroom_record::statistics::{Interval, MISSED, student_quantile};

/// The exponent `p` of `y = a · x^p`, by least squares in log-log space; `None` with fewer than two distinct points.
/// Points that are not positive are skipped.
pub fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    let logs: Vec<(f64, f64)> =
        points.iter().filter(|(x, y)| *x > 0.0 && *y > 0.0).map(|(x, y)| (x.ln(), y.ln())).collect();
    let weights = weights(&logs.iter().map(|log| log.0).collect::<Vec<_>>())?;
    // Without the mean, values that are all alike would have a slope of some rounding error.
    let mean = logs.iter().map(|log| log.1).sum::<f64>() / logs.len() as f64;
    Some(logs.iter().zip(weights).map(|(log, weight)| weight * (log.1 - mean)).sum())
}

/// The exponent of measured values, with the 95% interval that follows from theirs. Every value moves the slope by its
/// weight; the distances to either end are the roots of the sums of squares.
pub fn exponent_of_measured(points: &[(f64, Interval)]) -> Option<Interval> {
    let is_usable = |of: &Interval| of.low > 0.0 && of.high < f64::MAX;
    if !points.iter().all(|(x, y)| *x > 0.0 && is_usable(y)) {
        return None;
    }
    let weights = weights(&points.iter().map(|(x, _)| x.ln()).collect::<Vec<_>>())?;
    let (mut value, mut below, mut above) = (0.0, 0.0f64, 0.0f64);
    for ((_, y), weight) in points.iter().zip(weights) {
        let y = y.map(f64::ln);
        let ends = [weight * y.low, weight * y.high];
        let middle = weight * y.value;
        value += middle;
        below = below.hypot(middle - ends[0].min(ends[1]));
        above = above.hypot(ends[0].max(ends[1]) - middle);
    }
    Some(Interval { value, low: value - below, high: value + above })
}

/// The exponent of values without noise, with the 95% interval of the fit: how well one power describes them all. `None`
/// with fewer than three points.
pub fn exponent_of_fit(points: &[(f64, f64)]) -> Option<Interval> {
    let logs: Vec<(f64, f64)> =
        points.iter().filter(|(x, y)| *x > 0.0 && *y > 0.0).map(|(x, y)| (x.ln(), y.ln())).collect();
    let freedom = logs.len().checked_sub(2).filter(|freedom| *freedom > 0)? as f64;
    let weights = weights(&logs.iter().map(|log| log.0).collect::<Vec<_>>())?;
    let value: f64 = logs.iter().zip(&weights).map(|(log, weight)| weight * log.1).sum();
    let count = logs.len() as f64;
    let mean = |part: fn(&(f64, f64)) -> f64| logs.iter().map(part).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|log| log.0), mean(|log| log.1));
    let misses: f64 = logs.iter().map(|log| (log.1 - mean_y - value * (log.0 - mean_x)).powi(2)).sum();
    let squares: f64 = weights.iter().map(|weight| weight * weight).sum();
    let half = student_quantile(1.0 - MISSED / 2.0, freedom) * (misses / freedom * squares).sqrt();
    Some(Interval { value, low: value - half, high: value + half })
}

/// How much each value moves the slope of a line through them; `None` with fewer than two distinct places.
fn weights(places: &[f64]) -> Option<Vec<f64>> {
    let mean = places.iter().sum::<f64>() / places.len() as f64;
    let spread: f64 = places.iter().map(|place| (place - mean).powi(2)).sum();
    if places.len() < 2 || spread < 1e-12 {
        return None;
    }
    Some(places.iter().map(|place| (place - mean) / spread).collect())
}

/// Common name of an exponent.
pub fn class(exponent: Option<f64>) -> &'static str {
    match exponent {
        None => "unknown",
        Some(exponent) if exponent < 0.15 => "constant",
        Some(exponent) if exponent < 0.8 => "less than linear",
        Some(exponent) if exponent < 1.15 => "linear",
        Some(exponent) if exponent < 1.85 => "between",
        Some(exponent) if exponent < 2.15 => "quadratic",
        Some(_) => "more than quadratic",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_powers_are_found_and_named() {
        let power = |p: f64| exponent(&[64.0, 128.0, 256.0, 512.0].map(|x: f64| (x, 3.0 * x.powf(p))));
        for (p, name) in
            [(0.0, "constant"), (0.5, "less than linear"), (1.0, "linear"), (1.5, "between"), (2.0, "quadratic")]
        {
            assert!((power(p).unwrap() - p).abs() < 1e-12);
            assert_eq!(class(power(p)), name);
        }
    }

    #[test]
    fn names_begin_where_they_say() {
        let names = [0.14, 0.15, 0.79, 0.8, 1.14, 1.15, 1.84, 1.85, 2.14, 2.15, 3.0].map(|p| class(Some(p)));
        let wanted = [
            "constant",
            "less than linear",
            "less than linear",
            "linear",
            "linear",
            "between",
            "between",
            "quadratic",
            "quadratic",
            "more than quadratic",
            "more than quadratic",
        ];
        assert_eq!(names, wanted);
    }

    #[test]
    fn two_points_are_enough_and_those_that_have_no_logarithm_are_left_out() {
        let near = |points: &[(f64, f64)], wanted: f64| {
            let found = exponent(points).unwrap();
            assert!((found - wanted).abs() < 1e-12, "{found}");
        };
        near(&[(2.0, 3.0), (4.0, 6.0)], 1.0);
        near(&[(0.0, 5.0), (2.0, 3.0), (4.0, 12.0), (8.0, 0.0), (-1.0, 2.0), (3.0, -2.0)], 2.0);
        // Not on a line: least squares through (0, 0), (1, 2), (2, 1) in powers of two.
        near(&[(1.0, 1.0), (2.0, 4.0), (4.0, 2.0)], 0.5);
        assert_eq!(exponent(&[]), None);
    }

    #[test]
    fn the_interval_of_a_slope_follows_from_those_of_its_points() {
        let point = |x: f64, value: f64, off: f64| (x, Interval { value, low: value / off, high: value * off });
        // Two points: slope and error are differences of logarithms over the distance of the points.
        let found = exponent_of_measured(&[point(1.0, 8.0, 1.1), point(2.0, 4.0, 1.2)]).unwrap();
        let half = 1.1f64.ln().hypot(1.2f64.ln()) / 2.0f64.ln();
        assert!((found.value + 1.0).abs() < 1e-12, "{found:?}");
        assert!((found.high - found.value - half).abs() < 1e-12 && (found.value - found.low - half).abs() < 1e-12);
        // The end of a falling point that matters for the low end of the slope is its low one.
        let lopsided = (2.0, Interval { value: 4.0, low: 2.0, high: 4.0 });
        let found = exponent_of_measured(&[point(1.0, 8.0, 1.0), lopsided]).unwrap();
        assert!((found.low + 2.0).abs() < 1e-12 && (found.high + 1.0).abs() < 1e-12, "{found:?}");
        let unknown = (2.0, Interval { value: 4.0, low: 0.0, high: f64::MAX });
        assert_eq!(exponent_of_measured(&[point(1.0, 8.0, 1.1), unknown]), None);
        assert_eq!(exponent_of_measured(&[point(1.0, 8.0, 1.1)]), None);
    }

    #[test]
    fn a_fit_of_exact_values_is_as_sure_as_they_lie_on_a_line() {
        let on_line = exponent_of_fit(&[1.0, 2.0, 4.0, 8.0].map(|x: f64| (x, x * x))).unwrap();
        assert!((on_line.value - 2.0).abs() < 1e-9 && on_line.high - on_line.low < 1e-6, "{on_line:?}");
        // By hand, in powers of two: (0, 0), (1, 2), (2, 1) lie 0.5, 1 and 0.5 from the line with slope 0.5. The error of
        // the slope is the root of 1.5 / 2, and t with one degree of freedom is 12.706.
        let off = exponent_of_fit(&[(1.0, 1.0), (2.0, 4.0), (4.0, 2.0)]).unwrap();
        assert!((off.value - 0.5).abs() < 1e-12 && (off.high - 0.5 - 12.706 * 0.75f64.sqrt()).abs() < 1e-2, "{off:?}");
        assert_eq!(exponent_of_fit(&[(1.0, 1.0), (2.0, 4.0)]), None);
    }

    #[test]
    fn too_little_to_fit_has_no_exponent() {
        assert_eq!(exponent(&[(1.0, 2.0)]), None);
        assert_eq!(exponent(&[(4.0, 2.0), (4.0, 3.0)]), None);
        assert_eq!(exponent(&[(1.0, 0.0), (2.0, 0.0), (4.0, 1.0)]), None);
        assert_eq!(class(None), "unknown");
    }
}
