//! `foreach-optimizer`: optimizers update lists of parameters at once.

use super::edit::{At, Edit, Value};
use super::{Class, Remedy, remedy};

pub const REMEDY: Remedy = remedy!(
    "foreach_optimizer",
    "foreach-optimizer",
    Class::Same,
    "optimizers update lists of parameters at once",
    answers ["optimizer-per-parameter"],
    by_hand "give the optimizer `foreach=True`",
    edits [
        Edit::Argument { at: At::Optimizer, name: "foreach", value: Value::Foreach, position: None },
    ]
);
