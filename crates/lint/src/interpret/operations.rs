//! Classifies tensor operations by name: those that only tensors have, and those that make masks.

use crate::api;
use crate::vocabulary::{self, Role};

/// Methods that are nearly unique to tensors: a value that has one is a tensor.
pub fn is_tensor_method(name: &str) -> bool {
    vocabulary::is(Role::TensorMethod, name)
}

/// Whether the name may be a tensor method's: `get_length()`, `is_valid()`, `compute_x()` of a tensor-like object may
/// return anything.
pub fn may_be_tensor_method(name: &str) -> bool {
    is_tensor_method(name) || name.ends_with('_') || !name.contains('_') && !vocabulary::is(Role::ContainerMethod, name)
}

/// Operations that turn a mask into a mask: they move and repeat its elements.
pub fn keeps_masks(name: &str) -> bool {
    vocabulary::is(Role::MaskToMask, name)
}

/// Operations whose result is a mask, as functions or methods.
pub fn is_boolean_operation(name: &str) -> bool {
    let row = api::tensor_method(name).or_else(|| api::torch_function(name));
    row.is_some_and(api::Row::makes_mask)
}
