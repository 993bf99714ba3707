//! Scalar building blocks that the compiler vectorises inside `by_isa!` bodies.
//!
//! Loops run over chunks and zipped slices, not closures over indices or `for_each`: those leave bounds checks or calls
//! behind that prevent vectorisation.

/// Partial sums kept side by side: a fixed number, so that a sum has the same bytes at every instruction-set level.
pub const LANES: usize = 16;

/// `e^x` to within two units in the last place; NaN stays NaN, large arguments give infinity, very negative ones zero.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    const HIGHEST: f32 = 88.722_83;
    const LOWEST: f32 = -87.336_54;
    // Adding and subtracting 1.5 · 2^23 rounds to the nearest integer, which also ends up in the low bits.
    const ROUND: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // Comparisons instead of `min` and `max`, which would swallow NaN.
    let clamped = if x > HIGHEST { HIGHEST } else { x };
    let clamped = if clamped < LOWEST { LOWEST } else { clamped };
    let rounded = clamped * std::f32::consts::LOG2_E + ROUND;
    let power = rounded - ROUND;
    let r = clamped - power * LN2_HIGH - power * LN2_LOW;
    let mut poly = 1.987_569_2e-4;
    for coefficient in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5e-1] {
        poly = poly * r + coefficient;
    }
    let mantissa = poly * (r * r) + r + 1.0;
    // In two halves: 2^128 has no exponent of its own, and arguments near the top need it.
    let half = (rounded.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32) >> 1;
    let rest = (rounded.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32).wrapping_sub(half);
    let result = mantissa * power_of_two(half) * power_of_two(rest);
    let result = if x < LOWEST { 0.0 } else { result };
    if x > HIGHEST { f32::INFINITY } else { result }
}

#[inline(always)]
fn power_of_two(power: i32) -> f32 {
    f32::from_bits((power.wrapping_add(127) as u32) << 23)
}

#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Sum of `f(x)` over a slice, in [`LANES`] interleaved partial sums.
#[inline(always)]
pub fn sum_of(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (whole, tail) = x.as_chunks::<LANES>();
    for chunk in whole {
        for lane in 0..LANES {
            lanes[lane] += f(chunk[lane]);
        }
    }
    total(lanes, tail.iter().map(|x| f(*x)))
}

/// Sum of `a · b` over two slices of equal length.
#[inline(always)]
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let ((a, a_tail), (b, b_tail)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    total(lanes, a_tail.iter().zip(b_tail).map(|(a, b)| a * b))
}

/// Sum of `a · b · c` over three slices of equal length.
#[inline(always)]
pub fn dot3(a: &[f32], b: &[f32], c: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let ((a, a_tail), (b, b_tail), (c, c_tail)) =
        (a.as_chunks::<LANES>(), b.as_chunks::<LANES>(), c.as_chunks::<LANES>());
    for ((a, b), c) in a.iter().zip(b).zip(c) {
        for lane in 0..LANES {
            lanes[lane] += a[lane] * b[lane] * c[lane];
        }
    }
    total(lanes, a_tail.iter().zip(b_tail).zip(c_tail).map(|((a, b), c)| a * b * c))
}

/// Adds up the lanes by halving, then the tail in order.
#[inline(always)]
fn total(mut lanes: [f32; LANES], tail: impl Iterator<Item = f32>) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
        half /= 2;
    }
    let mut sum = lanes[0];
    for rest in tail {
        sum += rest;
    }
    sum
}

/// The largest element of a slice, ignoring NaN; minus infinity if it is empty.
#[inline(always)]
pub fn largest(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (whole, tail) = x.as_chunks::<LANES>();
    for chunk in whole {
        for lane in 0..LANES {
            lanes[lane] = if chunk[lane] > lanes[lane] { chunk[lane] } else { lanes[lane] };
        }
    }
    lanes.iter().chain(tail).copied().fold(f32::NEG_INFINITY, |a, b| if b > a { b } else { a })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_units_of_the_exact_value() {
        for step in -87_000..=88_700 {
            let x = step as f32 / 1000.0;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) - exact).abs() / exact;
            assert!(error < 2.5e-7, "exp({x}) = {}, wants {exact}, error {error:e}", exp(x));
        }
    }

    #[test]
    fn exp_keeps_the_special_values() {
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(100.0), f32::INFINITY);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-200.0), 0.0);
        assert_eq!(exp(0.0), 1.0);
    }
}
