//! Whether a read is one that a maintainer would change: by where it stands, and by what the value is read for.

use ruff_python_ast::Stmt;
use ruff_text_size::TextRange;

use super::context::{ContextId, Frame, LoopKind};
use super::program::{FunctionKind, Program};
use super::purpose::{Purpose, purpose};
use super::rule::Notice;

/// A read that could be put off, or that a loop inside the step repeats, is worth a change wherever it stands. One that the
/// host goes on with is, where the loop of steps is in sight: its reader can see where else the number could come from.
pub fn of_read(program: &Program, context: ContextId, statement: &Stmt, range: TextRange) -> Notice {
    let function = program.notes.contexts.get(context).function;
    let purpose = purpose(program, function, statement, range);
    let is_worth = match purpose {
        Purpose::Finite => false,
        Purpose::Record | Purpose::Skip => true,
        Purpose::Guard | Purpose::Other | Purpose::Needed => {
            is_repeated_within_step(program, context) || program.is_in_sight(context)
        }
    };
    if is_worth && !is_never_called(program, context) { Notice::Default } else { Notice::Pedantic }
}

/// By default where the training loop is in sight, else where it is asked for.
pub fn in_sight(program: &Program, context: ContextId) -> Notice {
    if program.is_in_sight(context) { Notice::Default } else { Notice::Pedantic }
}

/// In a loop inside the step: over samples, layers, losses.
fn is_repeated_within_step(program: &Program, context: ContextId) -> bool {
    let is_step = |frame, trains| frame == Frame::Loop(LoopKind::Plain) && trains;
    let outwards = program.notes.contexts.outwards(context);
    outwards
        .take_while(|(_, around)| !is_step(around.frame, around.trains))
        .any(|(_, around)| matches!(around.frame, Frame::Loop(_)))
}

/// A plain function that nobody among the files calls or hands on: hot by its name alone.
fn is_never_called(program: &Program, context: ContextId) -> bool {
    let function = program.notes.contexts.get(context).function;
    let facts = &program.functions[function];
    let is_plain = program.sources.symbols.functions[function].class.is_none();
    is_plain && facts.kind == FunctionKind::Loss && !facts.is_called && !facts.is_handed_over
}
