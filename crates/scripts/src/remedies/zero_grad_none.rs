//! `zero-grad-none`: gradients are dropped rather than filled with zeros.

use super::edit::{At, Edit};
use super::{Class, Remedy, remedy};

pub const REMEDY: Remedy = remedy!(
    "zero_grad_none",
    "zero-grad-none",
    Class::Same,
    "gradients are dropped rather than filled with zeros",
    answers [],
    by_hand "call `zero_grad()` without `set_to_none=False`",
    edits [
        Edit::NoArgument { at: At::ZeroGrad, name: "set_to_none", position: Some(0) },
    ]
);
