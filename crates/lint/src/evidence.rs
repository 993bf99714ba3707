//! Estimates how certainly a line runs at every step: where the step is, and which branches lie between.

use std::rc::Rc;

use ruff_python_ast::{Expr, Stmt};
use ruff_text_size::{Ranged, TextRange};

use super::api;
use super::context::{Context, ContextId, Frame, Guard};
use super::effects::{Effect, Owner};
use super::program::{Call, FunctionKind, Program};
use super::vocabulary::Role;

/// A script whose loops run at most this many iterations is a trial run.
const MOST_TRIAL_STEPS: i64 = 100;

/// How a line is known to be part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the loop of steps itself.
    Loop,
    /// In a trainer's hook, or in a function that is one whole step.
    Hook,
    /// In code that one of those reaches through calls.
    Reached,
    /// In a module's `forward` or a loss whose training code is not in the given files.
    Module,
    Elsewhere,
}

impl Program<'_> {
    pub fn place(&self, context: ContextId) -> Place {
        let function = self.function_at(context);
        match self.functions[function].kind {
            _ if self.step_loop(context).is_some() => Place::Loop,
            _ if self.frequency.steps.contains(&function) => Place::Hook,
            _ if self.frequency.driven.get(function) == Some(&true) => Place::Reached,
            FunctionKind::Step | FunctionKind::Loss => Place::Module,
            _ => Place::Elsewhere,
        }
    }

    /// The loops, guards and blocks around the context, up to the loop whose iterations are steps.
    pub fn within_step(&self, context: ContextId) -> impl Iterator<Item = &Context> {
        self.outwards(context).map(|(_, around)| around).take_while(|around| !around.is_step_loop())
    }

    /// Whether the context is in a loop inside the step: over samples, layers, losses.
    pub fn is_repeated_within_step(&self, context: ContextId) -> bool {
        self.within_step(context).any(|around| matches!(around.frame, Frame::Loop(_)))
    }

    /// Whether a branch of unknown outcome lies between the step and the line. A branch that holds the training call is
    /// the step.
    pub fn is_under_branch(&self, context: ContextId) -> bool {
        self.within_step(context).any(|around| around.frame == Frame::Guard(Guard::Open) && !around.trains)
    }

    /// Whether the line is in a script's own loop of a few steps: `for step in range(10)` below a module, to see
    /// whether it runs.
    pub fn is_trial(&self, context: ContextId) -> bool {
        if self.function_of(context).definition.is_some() || self.step_loop(context).is_none() {
            return false;
        }
        let loops = self.outwards(context).filter_map(|(id, _)| self.loop_at(id));
        let mut turns = loops.map(|around| self.turns_of(context, around.iterated?));
        let all = turns.try_fold(1_i64, |all, turns| all.checked_mul(turns?));
        all.is_some_and(|all| all <= MOST_TRIAL_STEPS)
    }

    /// The number of iterations of a loop over `range(…)`, where it is known.
    fn turns_of(&self, context: ContextId, iterated: &Expr) -> Option<i64> {
        let Expr::Call(call) = iterated else { return None };
        let noted = self.call_at(self.file_of(context), call.range())?;
        match noted.external() {
            Some(_) if Owner::Builtin.effect(noted.name) == Effect::Numbers => match noted.arguments.as_slice() {
                [end] => end.known_integer(),
                [start, end] => end.known_integer()?.checked_sub(start.known_integer()?),
                _ => None,
            },
            _ => self.turns_of(context, call.arguments.args.first()?),
        }
    }

    /// Whether the range is inside `with torch.cuda.stream(…)`: a read there waits for that stream alone.
    pub fn is_on_side_stream(&self, context: ContextId, range: TextRange) -> bool {
        let function = self.function_at(context);
        let opens = |call: &Call| match call.statement {
            Stmt::With(with) if Role::Stream.fits(call.name) => {
                call.external().is_some_and(api::is_of_torch).then(|| with.range())
            }
            _ => None,
        };
        let streams = self.asked.streams.of(function, || Rc::new(self.calls_of(function).filter_map(opens).collect()));
        streams.iter().any(|stream| stream.contains_range(range))
    }
}
