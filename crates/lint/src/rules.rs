//! All source rules. A new one needs its file, its page and two lines here; tests find it on their own.

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
mod loader_read_twice;
mod loader_unpinned;
mod no_gradient_clipping;
mod not_channels_last;
mod not_compiled;
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

use ruff_python_ast::{Expr, ExprCall, Keyword, Operator, Stmt};
use ruff_text_size::{Ranged, TextRange};

use super::classes::{ClassKind, dotted_name, lineage};
use super::context::{ContextId, Frame, Guard, LoopKind};
use super::edits::{after_imports, guard_by_cadence, set_keyword};
use super::finding::{Cause, Confidence, Effort, Severity};
use super::fix::{Edit, Fix};
use super::interpret::{is_evaluation_name, is_model_name};
use super::program::{Call, Callee, FunctionKind, Loader, Loop, Noted, Program, Subscript};
use super::readers::{Phase, evaluates, feeds_training, is_over, may_be, named, only_measures, phase_of};
use super::reads::{Read, read_in_tool, read_of, shows};
use super::rule::{Check, Notice, SourceRule};
use super::settings::literal;
use super::symbols::{ClassId, FileId, FunctionId};
use super::syntax::{attribute_of_self, boolean, keyword_of, last_name, name_of, range_of, statements_in};
use super::topics::Topic;
use super::truth::asks_device;
use super::uses::{is_changed_in_place, uses_of};
use super::value::{Origin, Placement, Value};
use super::vocabulary::Role;
use super::{names_in, notice};

/// Ordered by code.
pub const RULES: &[SourceRule] = &[
    item_per_step::RULE,
    readback_per_step::RULE,
    tensor_to_logger::RULE,
    tensor_truth::RULE,
    explicit_sync::RULE,
    dynamic_shape::RULE,
    sync_per_parameter::RULE,
    gradscaler_sync::RULE,
    constant_rebuilt::RULE,
    cpu_then_move::RULE,
    host_data_per_step::RULE,
    empty_cache_per_step::RULE,
    graph_kept_alive::RULE,
    loader_in_process::RULE,
    loader_unpinned::RULE,
    blocking_copy::RULE,
    workers_respawned::RULE,
    loader_read_twice::RULE,
    device_in_dataset::RULE,
    full_precision::RULE,
    tf32_off::RULE,
    hand_written_attention::RULE,
    not_compiled::RULE,
    unaligned_dimension::RULE,
    conv_bias_before_norm::RULE,
    conv_autotune_off::RULE,
    not_channels_last::RULE,
    python_loop_in_forward::RULE,
    separate_projections::RULE,
    attention_weights_unread::RULE,
    zero_not_none::RULE,
    single_tensor_optimizer::RULE,
    accumulate_without_no_sync::RULE,
    data_parallel::RULE,
    find_unused_parameters::RULE,
    collective_for_logging::RULE,
    eval_builds_graph::RULE,
    debug_left_on::RULE,
    io_per_step::RULE,
    small_eval_batch::RULE,
    no_gradient_clipping::RULE,
    average_speed_only::RULE,
    constant_batch_size::RULE,
];

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

/// The last word of the called name: `Linear` in `nn.Linear(…)`.
fn called_name(call: &ExprCall) -> &str {
    last_name(&call.func).unwrap_or_default()
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

/// Loaders that feed something: a demo at the end of a file without training is left out.
fn loaders<'p, 'a>(program: &'p Program<'a>) -> impl Iterator<Item = &'p Loader<'a>> {
    program.constructed.loaders.iter().filter(|loader| {
        let file = program.file_of(loader.context);
        let is_demonstration = program.function_of(loader.context).definition.is_none()
            && !program.groups.mentions(file, Topic::Trains)
            && !program.groups.mentions(file, Topic::Trainer);
        !is_demonstration
            && !evaluates(program, loader)
            && !only_measures(program, loader)
            && !is_aside(program, loader)
    })
}

/// Whether the loader is read where it is constructed, by loops that do not train: a trial at the end of a dataset's
/// file, the mean and deviation of all samples. A loader that is passed on or returned may train elsewhere.
fn is_aside(program: &Program, loader: &Loader) -> bool {
    let function = program.function_at(loader.context);
    let file = program.file_of(loader.context);
    let mut loops = program.notes.loops.iter().filter(|around| is_over(program, around, loader.id));
    let is_script = program.function_of(loader.context).definition.is_none();
    let is_of_training =
        [Topic::Trains, Topic::Trainer].iter().any(|topic| program.groups.mentions_itself(file, *topic));
    let is_handed_on = || {
        let looks =
            |call: &Call| call.external().is_some_and(|name| name.starts_with("builtins.") || name.starts_with("tqdm"));
        let is_given = |call: &&Call| call.argument_values().any(|value| may_be(program, value, loader.id));
        program.notes.calls.iter().filter(is_given).any(|call| !looks(call))
    };
    let name = named(loader);
    // `for batch in DataLoader(…):` gives it no name at all.
    let is_local = match loader.statement {
        Stmt::Assign(assign) => assign.targets.iter().all(Expr::is_name_expr),
        Stmt::For(_) => true,
        _ => false,
    };
    // A generator passes on what it reads.
    let hands_out = || {
        let range = range_of(program.function_of(loader.context).body);
        program.source(loader.context).slice(range).contains("yield ")
    };
    let is_returned = || uses_of(program, function, name).iter().any(|one| matches!(one.statement, Stmt::Return(_)));
    let of_here = |around: &Loop| program.function_at(around.context) == function;
    match is_script {
        true => !is_of_training && !loops.any(|around| program.trains_in(around)) && !is_handed_on(),
        false => {
            let all: Vec<&Loop> = loops.collect();
            let is_read_here =
                !all.is_empty() && all.iter().all(|around| of_here(around) && !program.trains_in(around));
            is_read_here && is_local && !is_of_training && !is_handed_on() && !is_returned() && !hands_out()
        }
    }
}

/// How many workers a loader has, as far as the source shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Workers {
    /// Not given, and no dictionary could contain it.
    Unsaid,
    /// Zero, as written or as the setting's default.
    Zero,
    Some,
    Unknown,
}

fn workers_of(program: &Program, loader: &Loader) -> Workers {
    let Some(given) = &loader.options.workers else {
        return if loader.options.has_unknown { Workers::Unknown } else { Workers::Unsaid };
    };
    // `int(args.workers)`
    let written = match keyword_of(loader.node, "num_workers") {
        Some(Expr::Call(call)) if called_name(call) == "int" => call.arguments.args.first(),
        other => other,
    };
    let setting = match written {
        Some(Expr::Attribute(setting)) => {
            let file = program.file_of(loader.context);
            program.sources.settings.default_of(file, setting.attr.as_str()).and_then(Value::known_integer)
        }
        _ => None,
    };
    match given.known_integer().or(setting) {
        Some(0) => Workers::Zero,
        Some(_) => Workers::Some,
        None => Workers::Unknown,
    }
}

/// The notice for a loader: default if it feeds training and its option is a literal at the call or missing. A user's
/// option is theirs to set, and an evaluation's loader runs only now and then.
fn loader_notice(program: &Program, loader: &Loader, option: &str) -> Notice {
    let is_written = keyword_of(loader.node, option).is_none_or(is_literal);
    let is_shuffled = keyword_of(loader.node, "shuffle").and_then(boolean);
    let feeds = match feeds_training(program, loader) {
        Some(feeds) => feeds,
        None => is_shuffled.unwrap_or_else(|| {
            let trains = program.groups.mentions_itself(program.file_of(loader.context), Topic::Trains);
            trains || phase_of(named(loader)) == Some(Phase::Training)
        }),
    };
    Notice::when(is_written && feeds && !evaluates(program, loader))
}

/// A value that comes from a parameter or a constant is for a person to change, there.
fn is_literal(value: &Expr) -> bool {
    matches!(value, Expr::NumberLiteral(_) | Expr::BooleanLiteral(_))
}

/// Adds a keyword to a loader's call, unless an expanded dictionary already has it or its class does not take it.
fn keyword_edit(program: &Program, loader: &Loader, name: &str, value: &str) -> Vec<Edit> {
    let has_dictionary = loader.node.arguments.keywords.iter().any(|keyword| keyword.arg.is_none());
    let written = keyword_of(loader.node, name);
    let given = match name {
        "num_workers" => loader.options.workers.is_some(),
        "pin_memory" => loader.options.pin_memory.is_some(),
        _ => loader.options.persistent.is_some(),
    };
    let is_hidden = has_dictionary && given && written.is_none();
    if is_hidden || !written.is_none_or(is_literal) || !takes_keyword(program, loader, name) {
        return Vec::new();
    }
    vec![set_keyword(program.source(loader.context), loader.node, name, value)]
}

/// Whether the loader's class has a parameter of this name or passes all keywords on.
fn takes_keyword(program: &Program, loader: &Loader, name: &str) -> bool {
    let made = program.call_at(program.file_of(loader.context), loader.node.range());
    let Some(Callee::Class(class)) = made.map(|made| &made.callee) else { return true };
    let definition = program.method(*class, "__init__").and_then(|init| program.symbol(init).definition);
    definition.is_none_or(|own| own.parameters.kwarg.is_some() || own.parameters.find(name).is_some())
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
