//! `compile`: trained modules are compiled.

use super::edit::{At, Edit, Value};
use super::{Class, Remedy, remedy};

/// Same behaviour as the remedy from outside: a part that cannot be compiled runs uncompiled.
pub const FORGIVING: Edit =
    Edit::WhereCompilingFailed { text: "torch._dynamo.config.suppress_errors = True", imports: &["torch._dynamo"] };

pub const REMEDY: Remedy = remedy!(
    "compile",
    "compile",
    Class::Rounding,
    "trained modules are compiled",
    answers ["launch-bound", "small-kernels-fusable"],
    by_hand "call `.compile()` on the model before its first step",
    edits [
        FORGIVING,
        Edit::BeforeOptimizer { statement: "{module}.compile()" },
        Edit::TrainerArgument { instead_of: At::Module, name: "torch_compile", value: Value::Is("True") },
    ]
);
