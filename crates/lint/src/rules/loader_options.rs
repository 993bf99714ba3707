//! Loaders as their rules look at them: which feed training, and with which options.

use super::*;
use loader_readers::{Phase, feeds_training, named, phase_of};

/// Loaders that feed something: a demo at the end of a file without training is left out.
pub(super) fn loaders<'p, 'a>(program: &'p Program<'a>) -> impl Iterator<Item = &'p Loader<'a>> {
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
pub(super) fn is_aside(program: &Program, loader: &Loader) -> bool {
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
pub(super) enum Workers {
    /// Not given, and no dictionary could contain it.
    Unsaid,
    /// Zero, as written or as the setting's default.
    Zero,
    Some,
    Unknown,
}

pub(super) fn workers_of(program: &Program, loader: &Loader) -> Workers {
    let Some(given) = &loader.options.workers else {
        return if loader.options.has_unknown { Workers::Unknown } else { Workers::Unsaid };
    };
    // `int(args.workers)`
    let written = match keyword_of(loader.node, "num_workers") {
        Some(Expr::Call(call)) if function_name(call) == "int" => call.arguments.args.first(),
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
pub(super) fn loader_notice(program: &Program, loader: &Loader, option: &str) -> Notice {
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
pub(super) fn keyword_edit(program: &Program, loader: &Loader, name: &str, value: &str) -> Vec<Edit> {
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
