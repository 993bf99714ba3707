//! The precision of matrix products. Values, master weights and reductions stay in single precision, except
//! under `Bf16Pure` and `Fp8Pure`.

use crate::passes::fp8;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Precision {
    #[default]
    Fp32,
    /// Product operands are rounded to 11 bits of mantissa.
    Tf32,
    /// Product operands are rounded to bfloat16; sums stay in single precision.
    Bf16,
    /// Weights and activations are stored in bfloat16 as well.
    Bf16Pure,
    /// Linear layers multiply eight-bit values, each tensor with its scale; everything else is as in `Bf16`.
    Fp8,
    /// As `Fp8`, with weights and activations stored as in `Bf16Pure`.
    Fp8Pure,
}

/// See [`Precision::tolerance`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    pub loss: f64,
    pub gradients: f64,
}

#[derive(Clone, Debug, Error, PartialEq)]
#[error("there is no precision `{name}`: choose fp32, tf32, bf16, bf16-pure, fp8 or fp8-pure")]
pub struct UnknownPrecision {
    pub name: String,
}

impl Precision {
    pub const ALL: [Precision; 6] =
        [Precision::Fp32, Precision::Tf32, Precision::Bf16, Precision::Bf16Pure, Precision::Fp8, Precision::Fp8Pure];

    pub fn name(self) -> &'static str {
        match self {
            Precision::Fp32 => "fp32",
            Precision::Tf32 => "tf32",
            Precision::Bf16 => "bf16",
            Precision::Bf16Pure => "bf16-pure",
            Precision::Fp8 => "fp8",
            Precision::Fp8Pure => "fp8-pure",
        }
    }

    /// The largest relative differences from single precision that are allowed on the same weights: of the loss, and of
    /// any gradient in norm.
    pub fn tolerance(self) -> Tolerance {
        match self {
            Precision::Fp32 => Tolerance { loss: 1e-6, gradients: 1e-5 },
            Precision::Tf32 => Tolerance { loss: 2e-3, gradients: 1e-2 },
            Precision::Bf16 | Precision::Bf16Pure => Tolerance { loss: 1e-2, gradients: 5e-2 },
            Precision::Fp8 | Precision::Fp8Pure => {
                Tolerance { loss: fp8::LOSS_TOLERANCE, gradients: fp8::GRADIENT_TOLERANCE }
            }
        }
    }

    /// Whether linear layers multiply in eight bits.
    pub fn is_fp8(self) -> bool {
        matches!(self, Precision::Fp8 | Precision::Fp8Pure)
    }
}

impl FromStr for Precision {
    type Err = UnknownPrecision;

    fn from_str(name: &str) -> Result<Precision, UnknownPrecision> {
        let found = Precision::ALL.into_iter().find(|precision| precision.name() == name);
        found.ok_or_else(|| UnknownPrecision { name: name.into() })
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_precision_reads_as_it_is_written() {
        for precision in Precision::ALL {
            assert_eq!(precision.to_string().parse(), Ok(precision));
        }
        let error = "fp4".parse::<Precision>().expect_err("there is none");
        assert_eq!(
            error.to_string(),
            "there is no precision `fp4`: choose fp32, tf32, bf16, bf16-pure, fp8 or fp8-pure"
        );
    }
}
