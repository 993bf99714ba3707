//! All source rules. A new one needs its file, its page, a row of `tables/rules.tsv` and two names here; tests find it on
//! their own.

mod accumulate_without_no_sync;
mod attention_weights_unread;
mod average_speed_only;
mod blocking_copy;
mod collective_for_logging;
mod constant_batch_size;
mod constant_rebuilt;
mod conv_autotune_off;
mod conv_bias_before_norm;
mod cpu_then_move;
mod data_parallel;
mod debug_left_on;
mod device_in_dataset;
mod dynamic_shape;
mod empty_cache_per_step;
mod eval_builds_graph;
mod explicit_sync;
mod find_unused_parameters;
mod full_precision;
mod gradscaler_sync;
mod graph_kept_alive;
mod hand_written_attention;
mod host_data_per_step;
mod io_per_step;
mod item_per_step;
mod loader_in_process;
mod loader_options;
mod loader_read_twice;
mod loader_readers;
mod loader_unpinned;
mod no_gradient_clipping;
mod not_channels_last;
mod not_compiled;
mod parameter_norms;
mod part_norms;
mod python_loop_in_forward;
mod readback_per_step;
mod separate_projections;
mod single_tensor_optimizer;
mod small_eval_batch;
mod sync_per_parameter;
mod tensor_to_logger;
mod tensor_truth;
mod tf32_off;
mod unaligned_dimension;
mod workers_respawned;
mod zero_not_none;

use std::sync::LazyLock;

use headroom_rewrite::Edit;
use headroom_rewrite::edits::{after_imports, guard_statement, set_keyword};
use ruff_python_ast::{Expr, ExprCall, Keyword, Operator, Stmt};
use ruff_text_size::{Ranged, TextRange};

use super::classes::{ClassKind, attribute_of_self, lineage};
use super::context::{ContextId, Frame, Guard, LoopKind};
use super::fix::Fix;
use super::interpret::{is_evaluation_name, is_model_name};
use super::program::{Call, Callee, FunctionKind, Loader, Loop, Noted, Program, Subscript};
use super::reads::{Read, read_in_tool, read_of, shows};
use super::rule::{Check, Notice, SourceRule};
use super::settings::literal;
use super::symbols::{ClassId, FileId, FunctionId};
use super::syntax::{boolean, dotted_name, function_name, keyword_of, name_of, range_of, statements_in};
use super::topics::Topic;
use super::truth::asks_device;
use super::uses::{is_changed_in_place, uses_of};
use super::value::{Origin, Placement, Value};
use super::vocabulary::Role;
use super::{names_in, notice, rows};
use loader_options::{Workers, is_aside, keyword_edit, loader_notice, loaders, workers_of};
use loader_readers::{evaluates, is_over, may_be, only_measures};

/// A rule's check and its page, by the name of its file.
type Parts = (&'static str, fn(&mut Check), &'static str);

/// The parts of these rules.
macro_rules! parts {
    ($($rule:ident,)*) => {
        &[$((stringify!($rule), $rule::check, include_str!(concat!("rules/", stringify!($rule), ".md"))),)*]
    };
}

const PARTS: &[Parts] = parts![
    accumulate_without_no_sync,
    attention_weights_unread,
    average_speed_only,
    blocking_copy,
    collective_for_logging,
    constant_batch_size,
    constant_rebuilt,
    conv_autotune_off,
    conv_bias_before_norm,
    cpu_then_move,
    data_parallel,
    debug_left_on,
    device_in_dataset,
    dynamic_shape,
    empty_cache_per_step,
    eval_builds_graph,
    explicit_sync,
    find_unused_parameters,
    full_precision,
    gradscaler_sync,
    graph_kept_alive,
    hand_written_attention,
    host_data_per_step,
    io_per_step,
    item_per_step,
    loader_in_process,
    loader_read_twice,
    loader_unpinned,
    no_gradient_clipping,
    not_channels_last,
    not_compiled,
    python_loop_in_forward,
    readback_per_step,
    separate_projections,
    single_tensor_optimizer,
    small_eval_batch,
    sync_per_parameter,
    tensor_to_logger,
    tensor_truth,
    tf32_off,
    unaligned_dimension,
    workers_respawned,
    zero_not_none,
];

/// Ordered by code.
pub static RULES: LazyLock<Vec<SourceRule>> = LazyLock::new(|| {
    let parts_of = |name: &str| PARTS.iter().find(|(file, ..)| file.replace('_', "-") == name);
    rows::of(include_str!("tables/rules.tsv"))
        .filter_map(|row| {
            let (_, check, page) = *parts_of(row[1])?;
            SourceRule::read(row, page, check)
        })
        .collect()
});

/// The rule with that code or name.
pub fn find(code_or_name: &str) -> Option<&'static SourceRule> {
    RULES.iter().find(|rule| rule.code.eq_ignore_ascii_case(code_or_name) || rule.name == code_or_name)
}

/// Shortens a piece of source for a message: one line, at most sixty characters.
fn short(text: &str) -> String {
    const MOST: usize = 60;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= MOST {
        return line;
    }
    line.chars().take(MOST - 1).chain(['…']).collect()
}

/// The text of something noted, as a message shows it.
fn quoted(program: &Program, noted: impl Noted) -> String {
    let (context, range) = noted.place();
    short(program.text(context, range))
}

/// `.to(device)`, `.cuda()`, `.type_as(other)` of something that is not a module.
fn moves_to_device(call: &Call) -> bool {
    let is_move = call.callee == Callee::Method && matches!(call.name, "to" | "cuda" | "type" | "type_as");
    let lands = matches!(&call.result, Value::Tensor(tensor) if tensor.placement == Placement::Device);
    let was_there = call.receiver.is_on_device();
    is_move && lands && !was_there
}

/// `def to_var(x): return x.cuda() if cuda else x`: a function that only moves its argument.
fn only_moves(program: &Program, function: FunctionId) -> bool {
    let symbol = program.symbol(function);
    let takes_one = symbol.definition.is_some_and(|definition| definition.parameters.args.len() <= 3);
    let is_short =
        symbol.body.len() <= 6 && !symbol.body.iter().any(|one| matches!(one, Stmt::For(_) | Stmt::While(_)));
    let moves = |call: &Call| matches!(call.name, "cuda" | "to") && call.is_method();
    takes_one
        && is_short
        && program.calls_of(function).any(moves)
        && program.calls_of(function).all(|call| Role::OnTheWay.fits(call.name))
}

/// The host value that a call of such a function moves to the device.
fn handed_over<'c>(program: &Program, call: &'c Call) -> Option<&'c Value> {
    let Callee::Function(function) = call.callee else { return None };
    let given = call.arguments.first()?;
    let is_host = match given {
        Value::Tensor(tensor) => tensor.placement == Placement::Host,
        Value::Numpy => true,
        _ => false,
    };
    (is_host && only_moves(program, function)).then_some(given)
}

/// Where to fix a tensor that is made on the host and moved later: at the call that makes it, if that runs at every
/// step, else at the move.
fn made_at<'p, 'a>(program: &'p Program<'a>, moved: &'p Call<'a>, made: TextRange) -> &'p Call<'a> {
    maker_of(program, moved, made).filter(|maker| program.is_hot(maker.context)).unwrap_or(moved)
}

/// The call that made a tensor, in the file that moves it.
fn maker_of<'p, 'a>(program: &'p Program<'a>, moved: &Call, made: TextRange) -> Option<&'p Call<'a>> {
    let makes = |maker: &&Call| {
        matches!(&maker.result, Value::Tensor(tensor) if matches!(tensor.origin,
            Origin::Constant(range) | Origin::Factory(range) | Origin::HostData(range) if range == made))
    };
    program.call_at(program.file_of(moved.context), made).filter(makes)
}

/// A switch for the whole process, set below the imports of the script that is started. A module that others import
/// leaves it to them: each of several would set it.
fn at_entry(program: &Program, file: FileId, line: &str) -> Vec<Edit> {
    match program.groups.is_imported(file) {
        true => Vec::new(),
        false => after_imports(&program.sources.files[file], line).into_iter().collect(),
    }
}

/// Whether a branch inside the step decides whether the line runs.
fn is_guarded(program: &Program, context: ContextId) -> bool {
    program.within_step(context).any(|around| matches!(around.frame, Frame::Guard(_)))
}

/// Training calls, with opt-in ones last.
fn trained_by_default<'p, 'a>(program: &'p Program<'a>) -> impl Iterator<Item = &'p Call<'a>> {
    let calls = || program.frequency.training_calls.iter().map(|index| &program.notes.calls[*index]);
    let is_asked = |call: &&Call| program.is_within(call.context, |frame| frame == Frame::Guard(Guard::OptIn));
    calls().filter(move |call| !is_asked(call)).chain(calls().filter(is_asked))
}

/// The first backward pass of every file that runs at every step.
fn first_backward<'p, 'a>(program: &'p Program<'a>) -> Vec<&'p Call<'a>> {
    let mut found: Vec<&Call> = Vec::new();
    for call in trained_by_default(program) {
        let is_backward = matches!(call.name, "backward" | "manual_backward");
        let file = program.file_of(call.context);
        if is_backward
            && program.is_hot(call.context)
            && !found.iter().any(|known| program.file_of(known.context) == file)
        {
            found.push(call);
        }
    }
    found
}

/// The call assigned to `self.name` in the class's `__init__`.
fn made_as<'a>(program: &Program<'a>, class: ClassId, name: &str) -> Option<(ContextId, &'a ExprCall)> {
    program.calls_in(program.sources.symbols.classes[class].file).find_map(|call| {
        let Stmt::Assign(assign) = call.statement else { return None };
        let is_it = program.function_of(call.context).class == Some(class)
            && matches!(assign.targets.as_slice(), [Expr::Attribute(target)] if target.attr.as_str() == name)
            && matches!(&*assign.value, Expr::Call(value) if std::ptr::eq(value, call.node));
        is_it.then_some((call.context, call.node))
    })
}

/// A guarded line runs once per this many steps where the script has no cadence of its own.
const CADENCE: u32 = 50;

/// Runs the statement once per `CADENCE` steps. Returns `None` where no counter is known or its text cannot be indented.
fn guard_by_cadence(program: &Program, context: ContextId, statement: &Stmt) -> Option<Edit> {
    guard_statement(program.source(context), statement, &cadence_condition(program, context)?)
}

/// `step % 50 == 0`, with the name that counts the iterations of the enclosing loop of steps.
fn cadence_condition(program: &Program, context: ContextId) -> Option<String> {
    let step_loop = program.step_loop(context)?;
    let around = program.loop_at(step_loop)?;
    let Expr::Call(call) = around.iterated? else { return None };
    let Expr::Name(function) = &*call.func else { return None };
    let counter = match (function.id.as_str(), around.target?) {
        ("range", Expr::Name(name)) => name,
        ("enumerate", Expr::Tuple(targets)) => targets.elts.first()?.as_name_expr()?,
        _ => return None,
    };
    Some(format!("{} % {CADENCE} == 0", counter.id.as_str()))
}
