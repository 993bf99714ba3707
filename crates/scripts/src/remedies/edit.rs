//! How a remedy is written into the source of a script: plain data, carried out where the patch is created.

/// One change to the source. Remedies that need several list them in order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Edit {
    /// Adds an argument to calls: by name, or at its position (from 0) if it is already given there.
    Argument { at: At, name: &'static str, value: Value, position: Option<usize> },
    /// Changes the value of an argument in calls that have it.
    GivenArgument { at: At, name: &'static str, value: Value },
    /// Removes an argument from calls.
    NoArgument { at: At, name: &'static str, position: Option<usize> },
    /// Inserts a statement before the one that creates the first optimizer of a trained module; `{module}` is the
    /// module's expression.
    BeforeOptimizer { statement: &'static str },
    /// Adds a function of ours to the same file and calls it with the module before that statement; `{device}` is the
    /// module's device. Imports are modules, or whole statements that begin with `from`.
    CallBeforeOptimizer { function: &'static str, text: &'static str, imports: &'static [&'static str] },
    /// The same for each list of repeated blocks.
    PerBlock { statement: &'static str },
    /// The same for each transformers model inside that uses eager attention.
    PerEagerModel { statement: &'static str },
    /// Changes a setting of the process: conflicting lines in the source are changed, and the line is added after the
    /// main script's imports.
    Setting {
        /// Each of these says all that the line says: if the main script always reaches one of them, the line is not
        /// added.
        given: &'static [Given],
        also: &'static [Given],
        /// `{value}` is replaced by the value.
        line: &'static str,
        value: Value,
        /// An attribute that shows that the source uses PyTorch's newer names, which do not mix with the older ones,
        /// and the line to use then.
        newer: Option<(&'static str, &'static str)>,
    },
    /// Adds lines after the main script's imports.
    AfterImports { text: &'static str, imports: &'static [&'static str] },
    /// The same, if the run found something that could not be compiled and continued without.
    WhereCompilingFailed { text: &'static str, imports: &'static [&'static str] },
    /// Leaves the change to a person, if the remedy reported this.
    ByHandWhere { did: &'static str, words: &'static str },
    /// Adds a line before the main script imports anything that may load torch.
    BeforeImports { line: &'static str },
    /// Sets an argument of transformers' TrainingArguments that does the same, if its Trainer creates the object.
    TrainerArgument { instead_of: At, name: &'static str, value: Value },
}

/// Calls that a run of the script reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Loader,
    Optimizer,
    Distributed,
    ZeroGrad,
    Copy,
    Attention,
    /// Not a call: the module itself, if the script's own files do not create it.
    Module,
}

/// A value as it is written into the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    Is(&'static str),
    /// As the loader had it in the run with the remedy; nothing is written for a loader that the remedy did not change.
    Workers,
    Persistent,
    Prefetch,
    Pinned,
    /// True for an optimizer that the remedy changed.
    Fused,
    Foreach,
    /// Transformers' name for the fused variant of the optimizer that ran.
    FusedName,
    /// Number of threads in the run with the remedy.
    Threads,
}

/// A way in which a script may set it differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// An assignment to this attribute, and the value to assign instead.
    Assigned(&'static str, &'static str),
    /// A call of this with one argument, which becomes the setting's value.
    Called(&'static str),
}
