//! Eight-bit floats: rounding to them, and the per-tensor scale that brings values into their range.
//!
//! A tensor's scale is a value of its own, a slot of [`SLOT`] floats beside it: the unit, the largest value seen since
//! the last update, error counts, and the largest values of earlier steps.

use crate::tensor::DType;
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// Four bits of exponent, three of mantissa, no infinity: weights and activations.
    E4m3,
    /// Five bits of exponent, two of mantissa: gradients, whose values spread further.
    E5m2,
}

/// Number of floats in a slot.
pub const SLOT: usize = 24;
/// Index of the unit: values are divided by it before they are rounded. A power of two; zero before the first use.
pub const UNIT: usize = 0;
/// The largest absolute value since the last update.
pub const LARGEST: usize = 1;
/// Count of values that were clamped to the largest representable number.
pub const SATURATED: usize = 2;
/// Count of updates at which the largest value was not finite, or its unit had to be clamped.
pub const OUT_OF_RANGE: usize = 3;
/// Count of updates so far.
pub const UPDATES: usize = 4;
const HISTORY: usize = 8;

/// The unit stays between two to the minus this and two to the plus this.
const MOST_EXPONENT: i32 = 100;

impl Format {
    pub fn largest(self) -> f32 {
        match self {
            Format::E4m3 => 448.0,
            Format::E5m2 => 57344.0,
        }
    }

    pub fn dtype(self) -> DType {
        match self {
            Format::E4m3 => DType::E4m3,
            Format::E5m2 => DType::E5m2,
        }
    }

    pub fn of(dtype: DType) -> Option<Format> {
        match dtype {
            DType::E4m3 => Some(Format::E4m3),
            DType::E5m2 => Some(Format::E5m2),
            _ => None,
        }
    }

    /// Mantissa bits, the smallest normal exponent, and the exponent of the largest number.
    fn bits(self) -> (i32, i32, i32) {
        match self {
            Format::E4m3 => (3, -6, 8),
            Format::E5m2 => (2, -14, 15),
        }
    }

    /// Rounds to nearest, ties to even, and saturates at the largest number. NaN stays NaN.
    pub fn round(self, x: f32) -> f32 {
        if x.is_nan() {
            return x;
        }
        let (mantissa, least, _) = self.bits();
        let quantum = power(exponent(x.abs().min(self.largest())).max(least) - mantissa);
        let rounded = (x.clamp(-self.largest(), self.largest()) / quantum).round_ties_even() * quantum;
        rounded.clamp(-self.largest(), self.largest())
    }

    pub fn encode(self, x: f32) -> u8 {
        if x.is_nan() {
            return 0x7f;
        }
        let (mantissa, least, _) = self.bits();
        let (sign, x) = (if x.is_sign_negative() { 0x80 } else { 0 }, self.round(x).abs());
        if x < power(least) {
            return sign | (x / power(least - mantissa)) as u8;
        }
        let own = exponent(x);
        let fraction = ((x / power(own) - 1.0) * power(mantissa)) as u8;
        sign | ((own - least + 1) << mantissa) as u8 | fraction
    }

    pub fn decode(self, code: u8) -> f32 {
        let (mantissa, least, _) = self.bits();
        let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
        let (own, fraction) = (i32::from(code & 0x7f) >> mantissa, f32::from(code & ((1 << mantissa) - 1)));
        match (self, code & 0x7f) {
            (Format::E4m3, 0x7f) | (Format::E5m2, 0x7d..) => f32::NAN,
            (Format::E5m2, 0x7c) => sign * f32::INFINITY,
            _ if own == 0 => sign * fraction * power(least - mantissa),
            _ => sign * (1.0 + fraction / power(mantissa)) * power(own - 1 + least),
        }
    }

    /// Returns the unit that keeps `largest` in range with `margin` powers of two to spare, and whether it had to be
    /// clamped to the range of units. Returns `None` if `largest` is zero, negative or not finite.
    pub fn unit_for(self, largest: f32, margin: i32) -> Option<(f32, bool)> {
        if !largest.is_finite() || largest <= 0.0 {
            return None;
        }
        let (.., top) = self.bits();
        let own = exponent(largest);
        // Both formats' largest number is 1.75 times a power of two.
        let above = i32::from(largest / power(own.max(-126)) > 1.75);
        let wanted = own - top + above + margin;
        let kept = wanted.clamp(-MOST_EXPONENT, MOST_EXPONENT);
        Some((power(kept), kept != wanted))
    }
}

/// Sets the unit of a slot from the largest values of the last steps and resets the running maximum. `margin` is as in
/// [`Format::unit_for`].
pub fn update(slot: &mut [f32], format: Format, margin: i32) {
    let largest = slot[LARGEST];
    slot[LARGEST] = 0.0;
    if slot[UNIT].is_nan() || largest == 0.0 {
        return;
    }
    if !largest.is_finite() {
        slot[OUT_OF_RANGE] += 1.0;
        return;
    }
    let steps = slot.len() - HISTORY;
    let place = HISTORY + slot[UPDATES] as usize % steps;
    slot[place] = largest;
    slot[UPDATES] += 1.0;
    let of_all = slot[HISTORY..].iter().fold(0.0, |most: f32, &one| most.max(one));
    if let Some((unit, left)) = format.unit_for(of_all, margin) {
        slot[UNIT] = unit;
        slot[OUT_OF_RANGE] += f32::from(u8::from(left));
    }
}

/// Exponent of a non-negative number; zero gives the same exponent as a subnormal.
fn exponent(x: f32) -> i32 {
    (x.to_bits() >> 23) as i32 - 127
}

/// Two to the power `exponent`, which is between -126 and 127.
fn power(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// Implements `Display` and `FromStr` of an enum by its variants' names.
macro_rules! named {
    ($type:ident: $($variant:ident $name:literal),*) => {
        impl fmt::Display for $type {
            fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
                out.write_str(match self { $($type::$variant => $name),* })
            }
        }

        impl FromStr for $type {
            type Err = ();

            fn from_str(text: &str) -> Result<$type, ()> {
                match text { $($name => Ok($type::$variant),)* _ => Err(()) }
            }
        }
    };
}
pub(crate) use named;

named!(Format: E4m3 "e4m3", E5m2 "e5m2");

#[cfg(test)]
mod tests {
    use super::*;

    const FORMATS: [Format; 2] = [Format::E4m3, Format::E5m2];

    fn finite(format: Format) -> Vec<f32> {
        let mut all: Vec<f32> = (0..=255).map(|code| format.decode(code)).filter(|x| x.is_finite()).collect();
        all.sort_by(f32::total_cmp);
        all
    }

    #[test]
    fn every_code_is_what_it_is_rounded_to_and_back() {
        for format in FORMATS {
            for code in 0..=255u8 {
                let x = format.decode(code);
                if x.is_finite() {
                    assert_eq!((format.encode(x), format.round(x)), (code, x), "{format} {code:#x}");
                }
            }
            assert_eq!(finite(format).last(), Some(&format.largest()));
            assert!(format.decode(format.encode(f32::NAN)).is_nan());
        }
        assert_eq!((Format::E4m3.decode(1), Format::E5m2.decode(1)), (2f32.powi(-9), 2f32.powi(-16)));
    }

    #[test]
    fn numbers_go_to_the_nearest_and_halfway_to_the_even_code() {
        for format in FORMATS {
            for pair in finite(format).windows(2).filter(|pair| pair[0] != pair[1]) {
                let (low, high, middle) = (pair[0], pair[1], (pair[0] + pair[1]) / 2.0);
                let even = if format.encode(low) & 1 == 0 { low } else { high };
                assert_eq!(format.round(middle), even, "{format} between {low} and {high}");
                assert_eq!(format.round(low * 0.5001 + high * 0.4999), low);
                assert_eq!(format.round(low * 0.4999 + high * 0.5001), high);
            }
            assert_eq!(format.round(f32::INFINITY), format.largest());
            assert_eq!(format.round(-1e30), -format.largest());
        }
    }

    #[test]
    fn a_unit_leaves_the_largest_value_in_range_and_wastes_less_than_a_power_of_two() {
        for format in FORMATS {
            for largest in [1e-20f32, 3.1e-5, 0.875, 1.0, 1.75, 1.7500001, 448.0, 449.0, 6e4, 1e20] {
                let (unit, left) = format.unit_for(largest, 0).unwrap();
                let scaled = largest / unit;
                assert!(scaled <= format.largest() && scaled > format.largest() / 2.0, "{format} {largest}: {scaled}");
                assert!(!left);
                assert_eq!(format.unit_for(largest, 3), Some((8.0 * unit, false)));
            }
            assert_eq!((format.unit_for(0.0, 0), format.unit_for(f32::NAN, 0)), (None, None));
            assert!(format.unit_for(1e-38, 0).is_some_and(|(_, left)| left));
        }
    }

    #[test]
    fn a_scale_follows_the_largest_value_of_the_last_steps() {
        let mut slot = [0.0; SLOT];
        let mut step = |largest: f32| {
            slot[LARGEST] = largest;
            update(&mut slot, Format::E4m3, 0);
            (slot[UNIT], slot[OUT_OF_RANGE])
        };
        assert_eq!(step(448.0), (1.0, 0.0));
        // A smaller value changes nothing until the larger one leaves the history; a non-finite one is counted and
        // ignored.
        for _ in 0..15 {
            assert_eq!(step(448.0 / 8.0), (1.0, 0.0));
        }
        assert_eq!(step(f32::INFINITY), (1.0, 1.0));
        assert_eq!(step(0.0), (1.0, 1.0));
        assert_eq!(step(448.0 / 8.0), (0.125, 1.0));
        assert_eq!(step(896.0), (2.0, 1.0));
    }
}
