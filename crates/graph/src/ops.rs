//! The operators, one file each: what it means, what it costs and its gradient.

pub mod accumulate;
pub mod adamw;
pub mod adamw_all;
pub mod adamw_chosen;
pub mod add;
pub mod add_rms_norm;
pub mod attention;
pub mod causal_softmax;
pub mod choose;
pub mod clip;
pub mod cross_entropy;
pub mod embedding;
pub mod flash_attention;
pub mod fp8_product;
pub mod linear_cross_entropy;
pub mod linears;
pub mod matmul;
pub mod mul;
pub mod quantize;
pub mod rms_norm;
pub mod rms_scales;
pub mod rope;
pub mod silu;
pub mod swiglu;
