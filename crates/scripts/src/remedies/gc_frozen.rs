//! `gc-frozen`: objects that live for the whole training are left out of garbage collection.

use super::edit::Edit;
use super::{Class, Remedy, remedy};

pub const REMEDY: Remedy = remedy!(
    "gc_frozen",
    "gc-frozen",
    Class::Same,
    "objects that live for the whole training are left out of garbage collection",
    answers ["uneven-steps"],
    by_hand "call `gc.collect()` and `gc.freeze()` after the first step, and `gc.set_threshold(10_000)`",
    edits [
        Edit::AfterImports {
            text: include_str!("patches/gc_frozen.py"),
            imports: &["functools", "gc", "from torch.optim.optimizer import register_optimizer_step_post_hook"],
        },
    ]
);
