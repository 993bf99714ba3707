//! Loops small enough to be replayed by hand.

use super::*;

#[test]
fn the_median_lies_between_two_values_that_rarely_both_miss_it() {
    let values = [5.0, 1.0, 2.0, 8.0, 3.0, 7.0, 4.0, 6.0];
    assert_eq!(median(&values), Some(4.5));
    assert_eq!(median_interval(&values), (1.0, 8.0), "of eight the outermost: one in 128");
    let many: Vec<f64> = (0..20).map(f64::from).collect();
    assert_eq!(median_interval(&many), (5.0, 14.0), "of twenty the sixth from either end: 0.041");
    assert_eq!(median_interval(&[3.0]), (3.0, 3.0));
    assert_eq!(median(&[]), None);
}
