//! `gc-frozen`: what lives for the whole training is left out of garbage collections.

use super::edit::Edit;
use super::{Class, Remedy, remedy};

pub const REMEDY: Remedy = remedy!(
    "gc_frozen",
    "gc-frozen",
    Class::Same,
    "what lives for the whole training is left out of garbage collections",
    answers ["uneven-steps"],
    by_hand "call `gc.collect()` and `gc.freeze()` after the first step, and `gc.set_threshold(10_000)`",
    edits [
        Edit::AfterImports {
            text: include_str!("patches/gc_frozen.py"),
            imports: &["functools", "gc", "from torch.optim.optimizer import register_optimizer_step_post_hook"],
        },
    ]
);
