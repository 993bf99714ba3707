//! Classifies tensor operations by name: those that only tensors have, and those that make masks.

use crate::api;

/// Methods that are nearly unique to tensors: a value that has one is a tensor.
pub fn is_tensor_method(name: &str) -> bool {
    matches!(
        name,
        "detach"
            | "requires_grad_"
            | "masked_fill"
            | "masked_fill_"
            | "unsqueeze"
            | "squeeze"
            | "view"
            | "permute"
            | "softmax"
            | "log_softmax"
            | "sigmoid"
            | "relu"
            | "matmul"
            | "bmm"
            | "norm"
            | "argmax"
            | "argmin"
            | "topk"
            | "gather"
            | "scatter"
            | "scatter_"
            | "index_select"
            | "cumsum"
            | "float"
            | "half"
            | "bfloat16"
            | "long"
            | "amax"
            | "amin"
            | "isnan"
            | "isinf"
            | "isfinite"
            | "exp"
            | "log"
            | "sqrt"
            | "abs"
            | "square"
            | "clamp"
            | "clamp_"
            | "ne"
            | "eq"
            | "gt"
            | "lt"
            | "ge"
            | "le"
            | "mean"
            | "sum"
            | "max"
            | "min"
            | "any"
            | "all"
            | "std"
            | "var"
            | "prod"
            | "expand_as"
            | "view_as"
            | "contiguous"
            | "narrow"
            | "masked_select"
            | "nonzero"
            | "flatten"
            | "pow"
    )
}

/// Whether the name may be a tensor method's: `get_length()`, `is_valid()`, `compute_x()` of a tensor-like object may
/// return anything.
pub fn may_be_tensor_method(name: &str) -> bool {
    is_tensor_method(name) || name.ends_with('_') || !name.contains('_') && !matches!(name, "get" | "pop" | "count")
}

/// Operations that turn a mask into a mask: they move and repeat its elements.
pub fn keeps_masks(name: &str) -> bool {
    matches!(
        name,
        "expand_as"
            | "view_as"
            | "reshape_as"
            | "index_select"
            | "gather"
            | "flip"
            | "roll"
            | "tile"
            | "repeat_interleave"
            | "unsqueeze_"
            | "squeeze_"
            | "movedim"
            | "data"
    )
}

/// Operations whose result is a mask, as functions or methods.
pub fn is_boolean_operation(name: &str) -> bool {
    let row = api::tensor_method(name).or_else(|| api::torch_function(name));
    row.is_some_and(api::Row::makes_mask)
}
