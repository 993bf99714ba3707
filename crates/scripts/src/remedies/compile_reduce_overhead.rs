//! `compile-reduce-overhead`: trained modules are compiled and replayed from CUDA graphs.

use super::compile::FORGIVING;
use super::edit::{At, Edit, Value};
use super::{Class, Remedy, remedy};

pub const REMEDY: Remedy = remedy!(
    "compile_reduce_overhead",
    "compile-reduce-overhead",
    Class::Rounding,
    "trained modules are compiled and replayed from CUDA graphs",
    answers ["launch-bound", "small-kernels-fusable"],
    by_hand "call `.compile(mode=\"reduce-overhead\")` on the model before its first step, and `zero_grad()` without \
             `set_to_none=False`",
    edits [
        FORGIVING,
        Edit::BeforeOptimizer { statement: "{module}.compile(mode=\"reduce-overhead\")" },
        Edit::NoArgument { at: At::ZeroGrad, name: "set_to_none", position: Some(0) },
        Edit::TrainerArgument { instead_of: At::Module, name: "torch_compile_mode", value: Value::Is("\"reduce-overhead\"") },
    ]
);
