//! Whether a maintainer would change a read, judged by its place and by why the value is read.

use ruff_python_ast::Stmt;
use ruff_text_size::{Ranged, TextRange};

use super::api;
use super::context::ContextId;
use super::evidence::Place;
use super::program::{Call, FunctionKind, Program};
use super::readback_use::{ReadbackUse, readback_use};
use super::rule::Notice;
use super::symbols::FunctionId;
use super::truth::asks_device;
use super::vocabulary::Role;

/// A read that could be deferred, or that selects between two values, is worth changing anywhere. A read whose number
/// the host needs is worth changing only where a loop inside the step repeats it, in the loop of steps or a trainer's
/// hook: deeper down, its author usually needs the number there.
pub fn of_read(program: &Program, context: ContextId, statement: &Stmt, range: TextRange) -> Notice {
    let function = program.function_at(context);
    let wanted = readback_use(program, function, statement, range);
    let is_step = || matches!(program.place(context), Place::Loop | Place::Hook);
    let is_worth = match wanted {
        ReadbackUse::Finite | ReadbackUse::Key => false,
        ReadbackUse::Log => !waits_anyway(program, context),
        ReadbackUse::Skip => true,
        ReadbackUse::Other | ReadbackUse::Guard | ReadbackUse::Needed => {
            is_step() && program.is_repeated_within_step(context)
        }
    };
    Notice::when(is_worth && !is_never_called(program, context))
}

/// A test of a device value is worth changing where a loop inside the step repeats it: it selects between two values,
/// or skips a write that a mask could do (`if mask.any(): x[mask] = 0`). Once per step, or where it controls a
/// statement, the host usually needs the answer.
pub fn of_test(program: &Program, context: ContextId, statement: &Stmt, test: impl Ranged) -> Notice {
    let function = program.function_at(context);
    let wanted = readback_use(program, function, statement, test.range());
    let is_choice = !matches!(statement, Stmt::If(_) | Stmt::While(_) | Stmt::Assert(_));
    let is_worth = match wanted {
        ReadbackUse::Finite | ReadbackUse::Key => false,
        ReadbackUse::Skip => true,
        _ => is_choice,
    };
    let is_known = program.place(context) != Place::Elsewhere && !is_never_called(program, context);
    Notice::when(is_worth && is_known && program.is_repeated_within_step(context))
}

/// A value that is logged at every step, unless the host waits there anyway.
pub fn of_logged_value(program: &Program, context: ContextId) -> Notice {
    Notice::when(!waits_anyway(program, context))
}

/// Whether the host waits in the same function regardless of this read: it checks that the loss is finite, or
/// synchronizes with the device.
fn waits_anyway(program: &Program, context: ContextId) -> bool {
    let function = program.function_at(context);
    let step = program.step_loop(context);
    program.asked.waits.of((function, step), || waits_in(program, function, step))
}

fn waits_in(program: &Program, function: FunctionId, step: Option<ContextId>) -> bool {
    let is_beside =
        |other: ContextId| program.is_hot(other) && program.step_loop(other) == step && !program.is_under_branch(other);
    let asks = program.tests_of(function).any(|test| {
        is_beside(test.context)
            && !program.is_repeated_within_step(test.context)
            && asks_device(program, test)
            && readback_use(program, function, test.statement, test.expression.range()) == ReadbackUse::Finite
    });
    let is_wait = |call: &Call| Role::Synchronizes.fits(call.name) && call.external().is_some_and(api::is_of_torch);
    let synchronizes = || program.calls_of(function).any(|call| is_wait(call) && is_beside(call.context));
    asks || synchronizes()
}

/// A whole tensor copied back: default where it is stored for later and a step is known to reach it.
pub fn of_copy(program: &Program, context: ContextId, statement: &Stmt, range: TextRange) -> Notice {
    let function = program.function_at(context);
    let is_kept = readback_use(program, function, statement, range) == ReadbackUse::Log;
    let is_reached = matches!(program.place(context), Place::Loop | Place::Hook | Place::Reached);
    Notice::when(is_kept && is_reached)
}

/// Default in the loop itself or in a trainer's hook.
pub fn in_step(program: &Program, context: ContextId) -> Notice {
    Notice::when(program.is_hot(context) && matches!(program.place(context), Place::Loop | Place::Hook))
}

/// Whether this is a plain function that nothing in the files calls or passes on: hot by its name alone.
fn is_never_called(program: &Program, context: ContextId) -> bool {
    let function = program.function_at(context);
    let facts = &program.functions[function];
    let is_plain = program.symbol(function).class.is_none();
    is_plain && facts.kind == FunctionKind::Loss && !facts.is_called && !facts.is_handed_over
}
