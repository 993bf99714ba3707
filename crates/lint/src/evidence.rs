//! How sure it is that a line runs at every step: where the step is, and which branches lie between.

use super::context::{ContextId, Frame, Guard, LoopKind};
use super::program::{FunctionKind, Program};

/// From where a line is known to be part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the loop of steps itself.
    Loop,
    /// In a trainer's hook, or in a function that is one whole step.
    Hook,
    /// In what one of those reaches through calls.
    Reached,
    /// In a module's `forward` or a loss: whoever trains it is not among the files.
    Module,
    Elsewhere,
}

impl Program<'_> {
    pub fn place(&self, context: ContextId) -> Place {
        let function = self.notes.contexts.get(context).function;
        match self.functions[function].kind {
            _ if self.step_loop(context).is_some() => Place::Loop,
            _ if self.heat.steps.contains(&function) => Place::Hook,
            _ if self.heat.driven.get(function) == Some(&true) => Place::Reached,
            FunctionKind::Step | FunctionKind::Loss => Place::Module,
            _ => Place::Elsewhere,
        }
    }

    /// Under a branch of unknown outcome, between the step and the line. A branch that holds the training call is the step.
    pub fn is_under_branch(&self, context: ContextId) -> bool {
        self.notes
            .contexts
            .outwards(context)
            .take_while(|(_, around)| !(around.frame == Frame::Loop(LoopKind::Plain) && around.trains))
            .any(|(_, around)| around.frame == Frame::Guard(Guard::Open) && !around.trains)
    }
}
