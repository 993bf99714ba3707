//! Student's t distribution: intervals for a mean of few values, and p-values.

use headroom_record::k1::Estimate;
use headroom_record::statistics::{student_beyond, student_quantile};

/// The mean with its 95% confidence interval.
pub fn estimate(values: &[f64]) -> Estimate {
    let mean = mean(values);
    let Some(error) = standard_error(values) else { return Estimate { mean, ci95_low: None, ci95_high: None } };
    let half = student_quantile(0.975, values.len() as f64 - 1.0) * error;
    Estimate { mean, ci95_low: Some(mean - half), ci95_high: Some(mean + half) }
}

/// Probability of a mean at least this far from zero if the true mean is zero; `None` with fewer than two values.
pub fn p_value(differences: &[f64]) -> Option<f64> {
    let (mean, error) = (mean(differences), standard_error(differences)?);
    if error == 0.0 {
        return Some(if mean == 0.0 { 1.0 } else { 0.0 });
    }
    Some(student_beyond(mean / error, differences.len() as f64 - 1.0))
}

/// Holm's method: adjusts each p-value for the number of comparisons, so that all together have the error rate of one
/// alone.
pub fn adjusted(p_values: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut order: Vec<usize> = (0..p_values.len()).filter(|&at| p_values[at].is_some()).collect();
    order.sort_by(|&a, &b| p_values[a].unwrap_or(1.0).total_cmp(&p_values[b].unwrap_or(1.0)));
    let mut out = vec![None; p_values.len()];
    let mut least = 0.0f64;
    for (rank, &at) in order.iter().enumerate() {
        let own = p_values[at].unwrap_or(1.0) * (order.len() - rank) as f64;
        least = least.max(own.min(1.0));
        out[at] = Some(least);
    }
    out
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn standard_error(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    if values.len() < 2 {
        return None;
    }
    let mean = mean(values);
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    Some((variance / count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_and_its_surprise_agree() {
        // Mean 3, deviation √2.5, error √0.5: an interval of 3 ± 2.776 · 0.7071.
        let values = [1.0, 2.0, 3.0, 4.0, 5.0];
        let found = estimate(&values);
        assert_eq!(found.mean, 3.0);
        assert!((found.ci95_high.unwrap() - 4.9632).abs() < 1e-3 && (found.ci95_low.unwrap() - 1.0368).abs() < 1e-3);
        // A mean whose interval just touches zero has a p-value of one in twenty.
        let moved: Vec<f64> = values.iter().map(|value| value - found.ci95_low.unwrap()).collect();
        assert!((p_value(&moved).unwrap() - 0.05).abs() < 1e-6);
        assert_eq!((p_value(&[2.0]), estimate(&[2.0]).ci95_low), (None, None));
    }

    #[test]
    fn values_without_scatter_are_certain() {
        assert_eq!(p_value(&[0.0, 0.0]), Some(1.0));
        assert_eq!(p_value(&[2.0, 2.0]), Some(0.0));
        assert_eq!(p_value(&[]), None);
        assert_eq!(estimate(&[2.0, 2.0]), Estimate { mean: 2.0, ci95_low: Some(2.0), ci95_high: Some(2.0) });
        assert_eq!(estimate(&[]), Estimate { mean: 0.0, ci95_low: None, ci95_high: None });
        // Two values, t 12.706 with one degree: 1 ± 12.706 · 1.
        let two = estimate(&[0.0, 2.0]);
        assert!((two.ci95_high.unwrap() - 13.706).abs() < 1e-3 && (two.ci95_low.unwrap() + 11.706).abs() < 1e-3);
    }

    #[test]
    fn no_chance_is_more_than_one_and_none_falls_below_that_of_a_smaller_value() {
        let found = adjusted(&[Some(0.9), Some(0.01), Some(0.8)]);
        assert_eq!(found, [Some(1.0), Some(0.03), Some(1.0)]);
        assert_eq!(adjusted(&[None]), [None]);
        assert_eq!(adjusted(&[Some(0.02), Some(0.015)]), [Some(0.03), Some(0.03)]);
    }

    #[test]
    fn values_are_held_against_how_many_were_tried() {
        let found = adjusted(&[Some(0.04), None, Some(0.01), Some(0.03)]);
        assert_eq!(found, [Some(0.06), None, Some(0.03), Some(0.06)]);
    }
}
