//! `channels-last`: convolutions read images channels last.

use super::edit::Edit;
use super::{Class, Remedy, remedy};

pub const REMEDY: Remedy = remedy!(
    "channels_last",
    "channels-last",
    Class::Rounding,
    "convolutions read images channels last",
    answers ["below-roof", "device-copies"],
    by_hand "call `.to(memory_format=torch.channels_last)` on the model before its optimizer is made",
    edits [
        Edit::BeforeOptimizer { statement: "{module}.to(memory_format=torch.channels_last)" },
    ]
);
