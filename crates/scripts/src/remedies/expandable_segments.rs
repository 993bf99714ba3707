//! `expandable-segments`: the allocator grows its segments rather than making new ones.

use super::edit::Edit;
use super::{Class, Remedy, remedy};

pub const REMEDY: Remedy = remedy!(
    "expandable_segments",
    "expandable-segments",
    Class::Same,
    "the allocator grows its segments rather than making new ones",
    answers ["allocator-churn", "memory-near-limit"],
    by_hand "start the script with `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` in its environment",
    edits [
        Edit::BeforeImports { line: "os.environ.setdefault(\"PYTORCH_CUDA_ALLOC_CONF\", \"expandable_segments:True\")" },
    ]
);
