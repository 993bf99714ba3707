//! A GPU as its driver describes it.

use super::driver::{self, Context};
use super::error::CudaError;
use super::level::Level;
use super::{health, library};

/// Properties of a device, known before anything runs on it.
#[derive(Clone, Debug)]
pub struct Facts {
    pub name: String,
    pub capability: (u32, u32),
    /// Level of the tensor-core kernels that attention uses.
    pub level: Level,
    /// Limit of shared memory per block, in bytes.
    pub shared_memory: usize,
    pub multiprocessors: u32,
    pub free_bytes: usize,
    pub total_bytes: usize,
    pub driver_version: String,
    /// PCI bus address, by which NVML identifies it.
    pub bus: String,
}

/// Names of the GPUs, in the driver's order. Opens only the driver and creates nothing on a device.
pub fn listed() -> Result<Vec<String>, CudaError> {
    library::driver()?;
    driver::names()
}

/// Opens the driver and queries the device; if there is none, the error says what was looked for.
pub fn facts(ordinal: usize) -> Result<Facts, CudaError> {
    library::open()?;
    let context = Context::new(ordinal)?;
    let (free_bytes, total_bytes) = context.memory()?;
    let version = context.driver_version;
    Ok(Facts {
        name: context.name.clone(),
        capability: context.capability,
        level: context.level,
        shared_memory: context.shared_memory,
        multiprocessors: context.multiprocessors,
        free_bytes,
        total_bytes,
        driver_version: match health::driver_version() {
            Some(driver) => format!("{driver} (CUDA {}.{})", version / 1000, version % 1000 / 10),
            None => format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
        },
        bus: context.bus.clone(),
    })
}
