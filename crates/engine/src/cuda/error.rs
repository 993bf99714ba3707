//! Failures of a GPU; each says what was tried and what to do.

use super::nccl_error::NcclError;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum CudaError {
    #[error("no {what} was found\n  looked for {}\n  help: {help}", tried.join(", "))]
    NoLibrary { what: &'static str, tried: Vec<String>, help: &'static str },
    #[error(
        "there is no CUDA device {ordinal}: the driver shows {found}\n  help: `nvidia-smi -L` lists them; is CUDA_VISIBLE_DEVICES set?"
    )]
    NoDevice { ordinal: usize, found: usize },
    #[error("{call} failed: {name} ({text}){}", hint(name))]
    Driver { call: &'static str, name: String, text: String },
    #[error("the kernels of {file} do not compile for {architecture}:\n{log}")]
    Compile { file: &'static str, architecture: String, log: String },
    #[error("cuBLASLt's {call} failed with {status}{}", shape.as_ref().map_or(String::new(), |shape| format!(" for {shape}")))]
    Product { call: &'static str, status: String, shape: Option<String> },
    #[error("{bytes} bytes are needed on {device}, where {free} of {total} are free")]
    Memory { bytes: usize, device: String, free: usize, total: usize },
    #[error(
        "{precision} needs tensor cores that {device} (compute capability {}.{}) lacks: it has {has}\n  help: --precision fp32",
        capability.0,
        capability.1
    )]
    Precision { precision: &'static str, device: String, capability: (u32, u32), has: String },
    #[error(
        "{variable}={named} is not a kernel level for a device of compute capability {}.{}\n  help: {has}",
        capability.0,
        capability.1
    )]
    Level { variable: &'static str, named: String, capability: (u32, u32), has: String },
    #[error("cuDNN's {call} failed with status {status}: {text}")]
    Cudnn { call: &'static str, status: i32, text: String },
    #[error(transparent)]
    Nccl(Box<NcclError>),
    #[error("{op} in {module}: {what}")]
    Unsupported { op: &'static str, module: String, what: String },
}

impl From<NcclError> for CudaError {
    fn from(error: NcclError) -> CudaError {
        CudaError::Nccl(Box::new(error))
    }
}

fn hint(name: &str) -> &'static str {
    match name {
        "CUDA_ERROR_OUT_OF_MEMORY" => {
            "\n  help: another process may hold the device's memory: `nvidia-smi` shows which"
        }
        "CUDA_ERROR_DEVICE_UNAVAILABLE" | "CUDA_ERROR_DEVICE_ALREADY_IN_USE" => {
            "\n  help: another process holds the device; wait for it or choose another with --device cuda:N"
        }
        "CUDA_ERROR_LAUNCH_FAILED" | "CUDA_ERROR_ILLEGAL_ADDRESS" | "CUDA_ERROR_ECC_UNCORRECTABLE" => {
            "\n  help: the device's state is lost; earlier checkpoints are intact. `dmesg` and `nvidia-smi` may say why"
        }
        _ => "",
    }
}
