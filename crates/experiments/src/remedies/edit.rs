//! How a remedy is written into the source of a script: plain data, carried out where the patch is made.

/// One change of the source. Remedies that need several state them in order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Edit {
    /// Calls get an argument: by name, or at its position (from 0) where it is given there.
    Argument { at: At, name: &'static str, value: Value, position: Option<usize> },
    /// Calls that have the argument get another value for it.
    GivenArgument { at: At, name: &'static str, value: Value },
    /// Calls lose an argument.
    NoArgument { at: At, name: &'static str, position: Option<usize> },
    /// A statement before the one that makes the first optimizer of a trained module; `{module}` is the module's expression.
    BeforeOptimizer { statement: &'static str },
    /// A function of ours in the same file, called with the module before that statement; `{device}` is the module's. Imports are
    /// modules, or whole statements that begin with `from`.
    CallBeforeOptimizer { function: &'static str, text: &'static str, imports: &'static [&'static str] },
    /// The same for each list of repeated blocks.
    PerBlock { statement: &'static str },
    /// The same for each model of transformers inside that computes attention step by step.
    PerEagerModel { statement: &'static str },
    /// A setting of the process: what says otherwise in the source is changed, and the line is added behind the main script's
    /// imports.
    Setting {
        /// Each says all that the line says: where the main script always comes by one of them, the line is left out.
        given: &'static [Given],
        also: &'static [Given],
        /// `{value}` stands for the value.
        line: &'static str,
        value: Value,
        /// An attribute by which a source speaks in PyTorch's newer names, which do not mix with the older, and the line then.
        newer: Option<(&'static str, &'static str)>,
    },
    /// Lines behind the main script's imports.
    AfterImports { text: &'static str, imports: &'static [&'static str] },
    /// The same where the run met something that could not be compiled, and went on without.
    WhereCompilingFailed { text: &'static str, imports: &'static [&'static str] },
    /// Nothing can be written, and a person has to do it, where the remedy told of this.
    ByHandWhere { did: &'static str, words: &'static str },
    /// A line before the main script imports anything that may load torch.
    BeforeImports { line: &'static str },
    /// An argument of transformers' TrainingArguments that does the same, where its Trainer makes the thing.
    TrainerArgument { instead_of: At, name: &'static str, value: Value },
}

/// Calls that a run of the script told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Loader,
    Optimizer,
    Distributed,
    ZeroGrad,
    Copy,
    Attention,
    /// No call: the module itself, where the script's own files do not know it.
    Module,
}

/// A value as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    Is(&'static str),
    /// As the loader had it in the run with the remedy; nothing is written for a loader that the remedy left alone.
    Workers,
    Persistent,
    Prefetch,
    Pinned,
    /// True for an optimizer that the remedy changed.
    Fused,
    Foreach,
    /// The name of transformers for the fused kernel of the optimizer that ran.
    FusedName,
    /// Threads that the run with the remedy had.
    Threads,
}

/// A way in which a script may have said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// An assignment to this, and the value it gets.
    Assigned(&'static str, &'static str),
    /// A call of this with one argument, which becomes the setting's value.
    Called(&'static str),
}
