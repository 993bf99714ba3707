//! The requested device, and how it is opened.

use crate::cpu::isa::Isa;
use crate::cpu::{Cpu, Reductions};
use crate::cuda::{self, Cuda, RangesChoice, SumOrder};
use crate::device::{Device, EngineError, Program, Target};
use crate::null::Null;
use crate::peaks::{ASSUMED_LINK, ASSUMED_RATES};
use crate::ranks::Ranks;
use headroom_graph::Precision;
use headroom_graph::cost::{Link, Rates};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use thiserror::Error;

/// A device as `--device` names it: `cpu`, `cuda`, `cuda:N` or `null`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceSpec {
    #[default]
    Cpu,
    Null,
    /// The GPU with this index.
    Cuda(usize),
}

/// Settings for opening a device; each kind uses those that apply to it.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Number of CPU threads.
    pub threads: usize,
    pub order: SumOrder,
    /// GPU settings: ranges for the vendors' profilers, and the folder for compiled kernels and measured choices.
    pub ranges: RangesChoice,
    pub cache: Option<PathBuf>,
    /// The null device predicts call times with these.
    pub rates: Rates,
    /// The null device predicts messages between ranks with this.
    pub link: Link,
    /// The other processes that train the same model, if any.
    pub ranks: Option<Arc<Ranks>>,
}

impl Opening {
    pub const fn threads(threads: usize) -> Opening {
        let (order, ranges) = (SumOrder::Fixed, RangesChoice::Unmarked);
        Opening { threads, order, ranges, cache: None, rates: ASSUMED_RATES, link: ASSUMED_LINK, ranks: None }
    }
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DeviceRefusal {
    #[error("there is no device `{0}`\n  help: choose cpu, cuda, cuda:N or null")]
    Unknown(String),
    #[error(
        "Headroom cannot compute on `{0}`: it has kernels for CPUs and NVIDIA GPUs, and none for AMD's\n  help: train there \
         with PyTorch for ROCm, and use `headroom record`, `headroom optimize` and `headroom analyze` on your script; \
         `headroom device --device rocm` checks the machine; --device cpu works everywhere"
    )]
    Amd(String),
}

impl FromStr for DeviceSpec {
    type Err = DeviceRefusal;

    fn from_str(name: &str) -> Result<DeviceSpec, DeviceRefusal> {
        match name {
            "cpu" => Ok(DeviceSpec::Cpu),
            "null" => Ok(DeviceSpec::Null),
            "cuda" => Ok(DeviceSpec::Cuda(0)),
            other => match other.strip_prefix("cuda:").and_then(|number| number.parse().ok()) {
                Some(ordinal) => Ok(DeviceSpec::Cuda(ordinal)),
                None if matches!(other.split(':').next(), Some("rocm" | "hip" | "amd")) => {
                    Err(DeviceRefusal::Amd(other.into()))
                }
                None => Err(DeviceRefusal::Unknown(other.into())),
            },
        }
    }
}

impl DeviceSpec {
    /// The name used in files, without a GPU's index.
    pub fn name(self) -> &'static str {
        match self {
            DeviceSpec::Cpu => "cpu",
            DeviceSpec::Null => "null",
            DeviceSpec::Cuda(_) => "cuda",
        }
    }

    /// The target that its programs are built for; the null device stands in for the CPU.
    pub fn target(self) -> Target {
        match self {
            DeviceSpec::Cpu | DeviceSpec::Null => Target::Cpu,
            DeviceSpec::Cuda(_) => Target::Cuda,
        }
    }

    /// Precisions that it has kernels for.
    pub fn precisions(self) -> &'static [Precision] {
        match self {
            DeviceSpec::Cpu => Cpu::PRECISIONS,
            DeviceSpec::Null => Null::PRECISIONS,
            DeviceSpec::Cuda(_) => Cuda::PRECISIONS,
        }
    }

    pub fn open(self, opening: &Opening, programs: &[Program]) -> Result<Box<dyn Device>, EngineError> {
        Ok(match self {
            DeviceSpec::Cpu => {
                let reductions = match opening.order {
                    SumOrder::Fixed => Reductions::Fixed,
                    SumOrder::Any => Reductions::OneAThread,
                };
                let cpu = Cpu::new(opening.threads, Isa::detect(), reductions, programs)?;
                Box::new(cpu.among(opening.ranks.clone())?)
            }
            DeviceSpec::Null => Box::new(Null::among(opening.rates, opening.link, programs)),
            DeviceSpec::Cuda(ordinal) => {
                let Opening { order, ranges, cache, ranks, .. } = opening.clone();
                Box::new(Cuda::new(&cuda::Options { ordinal, cache, ranges, order, ranks }, programs)?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_known_by_their_names() {
        for (name, device) in [
            ("cpu", DeviceSpec::Cpu),
            ("null", DeviceSpec::Null),
            ("cuda", DeviceSpec::Cuda(0)),
            ("cuda:3", DeviceSpec::Cuda(3)),
        ] {
            assert_eq!(name.parse(), Ok(device));
            assert!(name.starts_with(device.name()));
        }
        for name in ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "CPU"] {
            assert_eq!(name.parse::<DeviceSpec>(), Err(DeviceRefusal::Unknown(name.into())));
        }
        for name in ["rocm", "rocm:1", "hip", "amd:0"] {
            assert_eq!(name.parse::<DeviceSpec>(), Err(DeviceRefusal::Amd(name.into())));
        }
    }

    #[test]
    fn a_device_opens_as_what_it_is_called() {
        for device in [DeviceSpec::Cpu, DeviceSpec::Null] {
            let opened = device.open(&Opening::threads(1), &[]).unwrap();
            assert_eq!((opened.kind(), opened.computes()), (device.name(), device == DeviceSpec::Cpu));
        }
    }
}
