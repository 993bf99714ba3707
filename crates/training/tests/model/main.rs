//! The model against Hugging Face, as the naive graph and under every list of passes.

mod bf16;
mod case;
mod fp8;
mod gradient_norm;
mod greedy;
mod optimizers;
mod passes;
mod reference;
