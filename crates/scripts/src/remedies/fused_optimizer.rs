//! `fused-optimizer`: optimizers update all parameters in one kernel.

use super::edit::{At, Edit, Value};
use super::{Class, Remedy, remedy};

pub const REMEDY: Remedy = remedy!(
    "fused_optimizer",
    "fused-optimizer",
    Class::Rounding,
    "optimizers update all parameters in one kernel",
    answers ["optimizer-per-parameter"],
    by_hand "give the optimizer `fused=True`",
    edits [
        Edit::Argument { at: At::Optimizer, name: "fused", value: Value::Fused, position: None },
        Edit::GivenArgument { at: At::Optimizer, name: "foreach", value: Value::Is("False") },
        Edit::TrainerArgument { instead_of: At::Optimizer, name: "optim", value: Value::FusedName },
    ]
);
