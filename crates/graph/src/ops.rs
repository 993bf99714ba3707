//! The operators, one file each: what it means, what it costs and its gradient.

pub mod accumulate;
pub mod adamw;
pub mod add;
pub mod attention;
pub mod causal_softmax;
pub mod clip;
pub mod cross_entropy;
pub mod embedding;
pub mod matmul;
pub mod mul;
pub mod rms_norm;
pub mod rope;
pub mod silu;
