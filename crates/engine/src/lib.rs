//! Runs a plan: the backends, their kernels and the memory they work in.

pub mod cpu;
