//! Every source rule. A new one is its file, its page and two lines here; tests find it by themselves.

mod accumulate_without_no_sync;
mod average_speed_only;
mod blocking_copy;
mod collective_for_logging;
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

use ruff_python_ast::{Expr, ExprCall, Stmt};

use super::fix::Edit;
use super::program::{Call, Callee, Loader, Program};
use super::rule::{Notice, SourceRule};
use super::value::{Home, Value};

/// In the order of their codes.
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
];

/// The rule of that code or name.
pub fn find(code_or_name: &str) -> Option<&'static SourceRule> {
    RULES.iter().find(|rule| rule.code.eq_ignore_ascii_case(code_or_name) || rule.name == code_or_name)
}

/// A piece of source that fits into a message: one line, at most sixty characters.
fn short(text: &str) -> String {
    const MOST: usize = 60;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= MOST {
        return line;
    }
    line.chars().take(MOST - 1).chain(['…']).collect()
}

/// The last word of what is called: `Linear` in `nn.Linear(…)`.
fn called_name(call: &ExprCall) -> &str {
    match &*call.func {
        Expr::Attribute(attribute) => attribute.attr.as_str(),
        Expr::Name(name) => name.id.as_str(),
        _ => "",
    }
}

/// `.to(device)` and `.cuda()` of something that is not a module.
fn moves_to_device(call: &Call) -> bool {
    let is_move = call.callee == Callee::Method && matches!(call.name, "to" | "cuda");
    let lands = matches!(&call.result, Value::Tensor(tensor) if tensor.home == Home::Device);
    let was_there = call.receiver.is_on_device();
    is_move && lands && !was_there
}

/// Loaders that feed something: a demonstration at the end of a file without training is left out.
fn loaders<'p, 'a>(program: &'p Program<'a>) -> impl Iterator<Item = &'p Loader<'a>> {
    use super::topics::Topic;
    program.made.loaders.iter().filter(|loader| {
        let file = program.file_of(loader.context);
        let is_demonstration = program.function_of(loader.context).definition.is_none()
            && !program.groups.mentions(file, Topic::Trains)
            && !program.groups.mentions(file, Topic::Trainer);
        !is_demonstration
    })
}

/// A loader that feeds training, whose option is written where it is made, or left out. An option that a user sets is
/// theirs, and an evaluation's loader runs now and then.
fn loader_notice(program: &Program, loader: &Loader, option: &str) -> Notice {
    let given = loader.node.arguments.find_keyword(option).map(|keyword| &keyword.value);
    let is_written = given.is_none_or(|value| matches!(value, Expr::NumberLiteral(_) | Expr::BooleanLiteral(_)));
    let is_shuffled = match loader.node.arguments.find_keyword("shuffle").map(|keyword| &keyword.value) {
        Some(Expr::BooleanLiteral(on)) => Some(on.value),
        _ => None,
    };
    let feeds = match feeds_training(program, loader) {
        Some(feeds) => feeds,
        None => is_shuffled.unwrap_or_else(|| named(loader).contains("train")),
    };
    if is_written && feeds && !evaluates(program, loader) { Notice::Default } else { Notice::Pedantic }
}

/// Whether a loop over the loader trains; none where no loop over it is seen.
fn feeds_training(program: &Program, loader: &Loader) -> Option<bool> {
    let is_it = |value: &Value| matches!(value, Value::Loader(Some(id)) if std::ptr::eq(program.made.loaders[*id].node, loader.node));
    let mut loops = program.notes.loops.iter().filter(|around| is_it(&around.value)).peekable();
    loops.peek()?;
    Some(loops.any(|around| program.notes.contexts.get(around.context).trains || program.is_hot(around.context)))
}

/// The name that the loader is bound to, in small letters.
fn named(loader: &Loader) -> String {
    let name = match loader.statement {
        Stmt::Assign(assign) => match assign.targets.as_slice() {
            [Expr::Name(name)] => name.id.as_str(),
            [Expr::Attribute(target)] => target.attr.as_str(),
            _ => "",
        },
        _ => "",
    };
    name.to_ascii_lowercase()
}

/// By its name, or by the function it is made in.
fn evaluates(program: &Program, loader: &Loader) -> bool {
    let lower = named(loader);
    program.is_evaluation(loader.context)
        || lower.split('_').any(|word| {
            matches!(word, "val" | "valid" | "validation" | "test" | "eval" | "dev" | "valloader" | "testloader")
        })
}

/// Adds a keyword to a loader's call, unless a followed dictionary already has it.
fn keyword_edit(loader: &Loader, edit: Edit, name: &str) -> Vec<Edit> {
    let has_dictionary = loader.node.arguments.keywords.iter().any(|keyword| keyword.arg.is_none());
    let is_written = loader.node.arguments.find_keyword(name).is_some();
    let given = match name {
        "num_workers" => loader.workers.is_some(),
        "pin_memory" => loader.pin_memory.is_some(),
        _ => loader.persistent.is_some(),
    };
    // A value that comes from a parameter or a constant is changed there, by a person.
    let is_literal = loader
        .node
        .arguments
        .find_keyword(name)
        .is_none_or(|keyword| matches!(keyword.value, Expr::NumberLiteral(_) | Expr::BooleanLiteral(_)));
    if has_dictionary && given && !is_written || !is_literal { Vec::new() } else { vec![edit] }
}

/// For every file, the first backward pass that runs at every step.
fn first_backward<'p, 'a>(program: &'p Program<'a>) -> Vec<&'p Call<'a>> {
    let mut found: Vec<&Call> = Vec::new();
    for index in &program.heat.training_calls {
        let call = &program.notes.calls[*index];
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
