//! `bf16-autocast`: trained modules run under autocast to bf16.

use super::edit::{At, Edit, Value};
use super::{Class, Remedy, remedy};

pub const REMEDY: Remedy = remedy!(
    "bf16_autocast",
    "bf16-autocast",
    Class::Precision,
    "trained modules run under autocast to bf16",
    answers ["no-tensor-cores", "small-kernels-fusable"],
    by_hand "run the model under `torch.autocast(..., dtype=torch.bfloat16)`, and compute its loss outside, in fp32",
    edits [
        Edit::CallBeforeOptimizer {
            function: "run_in_bf16",
            text: include_str!("patches/bf16_autocast.py"),
            imports: &["functools", "torch"],
        },
        Edit::TrainerArgument { instead_of: At::Module, name: "bf16", value: Value::Is("True") },
    ]
);
