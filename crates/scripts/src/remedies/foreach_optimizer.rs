//! `foreach-optimizer`: optimizers update whole lists of parameters per call.

use super::edit::{At, Edit, Value};
use super::{Class, Remedy, remedy};

pub const REMEDY: Remedy = remedy!(
    "foreach_optimizer",
    "foreach-optimizer",
    Class::Same,
    "optimizers update whole lists of parameters per call",
    answers ["optimizer-per-parameter"],
    by_hand "give the optimizer `foreach=True`",
    edits [
        Edit::Argument { at: At::Optimizer, name: "foreach", value: Value::Foreach, position: None },
    ]
);
