//! `compile-blocks`: repeated blocks of trained modules are compiled.

use super::compile::FORGIVING;
use super::edit::Edit;
use super::{Class, Remedy, remedy};

pub const REMEDY: Remedy = remedy!(
    "compile_blocks",
    "compile-blocks",
    Class::Rounding,
    "repeated blocks of trained modules are compiled",
    answers ["small-kernels-fusable"],
    by_hand "call `.compile()` on each repeated block of the model before its first step",
    edits [
        FORGIVING,
        Edit::PerBlock { statement: "block.compile()" },
    ]
);
