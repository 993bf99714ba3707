//! Capabilities of a GPU's generation: the tensor-core kernels that it runs, and the precisions that it supports.

use super::error::CudaError;
use headroom_graph::Precision;
use std::fmt;

/// Environment variable that selects a lower level than the device's own, to test its kernels on a newer device.
pub const FORCED: &str = "HEADROOM_CUDA_LEVEL";

/// Tensor-core instructions that the attention kernels use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// No tensor-core instructions.
    Plain,
    /// `mma.sync`, `ldmatrix` and `cp.async`, on every device from Ampere on.
    Ampere,
    /// `wgmma`, on Hopper only.
    Hopper,
}

impl Level {
    const ALL: [Level; 3] = [Level::Plain, Level::Ampere, Level::Hopper];

    fn name(self) -> &'static str {
        match self {
            Level::Plain => "plain",
            Level::Ampere => "ampere",
            Level::Hopper => "hopper",
        }
    }

    pub fn of(capability: (u32, u32)) -> Level {
        match capability {
            (9, 0) => Level::Hopper,
            (major, _) if major >= 8 => Level::Ampere,
            _ => Level::Plain,
        }
    }

    /// The device's own level, or a lower one if it was requested.
    pub fn chosen(capability: (u32, u32), named: Option<&str>) -> Result<Level, CudaError> {
        let own = Level::of(capability);
        let Some(named) = named.filter(|named| !named.is_empty()) else { return Ok(own) };
        let has: Vec<Level> = Level::ALL.into_iter().filter(|level| *level <= own).collect();
        has.iter().copied().find(|level| level.name() == named).ok_or_else(|| CudaError::Level {
            variable: FORCED,
            named: named.into(),
            capability,
            has: has.iter().map(|level| level.name()).collect::<Vec<_>>().join(", "),
        })
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Tensor cores support bf16 and TF32 from Ampere on, 8-bit floats from Ada on.
fn needs(precision: Precision) -> (u32, u32) {
    match precision {
        Precision::Fp32 => (0, 0),
        Precision::Tf32 | Precision::Bf16 | Precision::Bf16Pure => (8, 0),
        Precision::Fp8 | Precision::Fp8Pure => (8, 9),
    }
}

/// Whether there are kernels for a precision on a device of this capability.
pub fn has(capability: (u32, u32), precision: Precision) -> bool {
    capability >= needs(precision)
}

/// Rejects a precision that the device lacks.
pub fn check(name: &str, capability: (u32, u32), precision: Precision) -> Result<(), CudaError> {
    if has(capability, precision) {
        return Ok(());
    }
    let others = Precision::ALL.into_iter().filter(|other| has(capability, *other));
    Err(CudaError::Precision {
        precision: precision.name(),
        device: name.into(),
        capability,
        has: others.map(|other| other.name()).collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_get_the_kernels_that_they_run() {
        for (capability, level) in [
            ((7, 5), Level::Plain),
            ((8, 0), Level::Ampere),
            ((8, 6), Level::Ampere),
            ((8, 9), Level::Ampere),
            ((9, 0), Level::Hopper),
            ((10, 0), Level::Ampere),
            ((12, 0), Level::Ampere),
        ] {
            assert_eq!(Level::of(capability), level, "{capability:?}");
        }
    }

    #[test]
    fn a_lower_level_may_be_named_and_a_higher_one_or_nonsense_is_refused_with_what_there_is() {
        assert_eq!(Level::chosen((9, 0), Some("ampere")).unwrap(), Level::Ampere);
        assert_eq!(Level::chosen((9, 0), Some("")).unwrap(), Level::Hopper);
        assert_eq!(Level::chosen((9, 0), None).unwrap(), Level::Hopper);
        for named in ["hopper", "volta"] {
            let error = Level::chosen((8, 6), Some(named)).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("plain, ampere") && error.contains(FORCED), "{error}");
        }
    }

    #[test]
    fn a_precision_that_a_device_lacks_is_refused_with_what_it_has() {
        assert!(check("Tesla T4", (7, 5), Precision::Fp32).is_ok());
        assert!(check("NVIDIA A100", (8, 0), Precision::Bf16).is_ok());
        let error = check("Tesla T4", (7, 5), Precision::Bf16).unwrap_err().to_string();
        assert!(error.contains("bf16") && error.contains("Tesla T4") && error.contains("7.5"), "{error}");
        assert!(error.contains("has fp32\n"), "{error}");
    }
}
