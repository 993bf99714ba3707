//! The CPU backend: instruction sets, threads and kernels.

pub mod gemm;
pub mod isa;
pub mod pool;
