//! How one figure grows with another: a power law fitted to points, and its name.

/// The exponent `p` of `y = a · x^p`, by least squares in log-log space; `None` with fewer than two distinct points.
/// Points that are not positive are skipped.
pub fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    let logs: Vec<(f64, f64)> =
        points.iter().filter(|(x, y)| *x > 0.0 && *y > 0.0).map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = logs.len() as f64;
    let mean = |part: fn(&(f64, f64)) -> f64| logs.iter().map(part).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|log| log.0), mean(|log| log.1));
    let spread: f64 = logs.iter().map(|log| (log.0 - mean_x).powi(2)).sum();
    if logs.len() < 2 || spread < 1e-12 {
        return None;
    }
    Some(logs.iter().map(|log| (log.0 - mean_x) * (log.1 - mean_y)).sum::<f64>() / spread)
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
    fn too_little_to_fit_has_no_exponent() {
        assert_eq!(exponent(&[(1.0, 2.0)]), None);
        assert_eq!(exponent(&[(4.0, 2.0), (4.0, 3.0)]), None);
        assert_eq!(exponent(&[(1.0, 0.0), (2.0, 0.0), (4.0, 1.0)]), None);
        assert_eq!(class(None), "unknown");
    }
}
