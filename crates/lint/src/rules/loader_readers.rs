//! Finds the readers of a loader: loops over it and calls it is passed to, and whether they train or evaluate.

use super::*;
use crate::effects::{Effect, Owner};
use crate::syntax::text_of;
use crate::value::LoaderId;

/// Whether a loop over the loader trains; `None` where no loop over it is visible.
pub fn feeds_training(program: &Program, loader: &Loader) -> Option<bool> {
    let mut loops = program.notes.loops.iter().filter(|around| around.loaders.contains(&loader.id)).peekable();
    loops.peek()?;
    Some(loops.any(|around| program.trains_in(around)))
}

/// The name that the loader is bound to.
pub fn named<'a>(loader: &Loader<'a>) -> &'a str {
    match loader.statement {
        Stmt::Assign(assign) => match assign.targets.as_slice() {
            [Expr::Name(name)] => name.id.as_str(),
            [Expr::Attribute(target)] => target.attr.as_str(),
            // `loaders["val"] = …`
            [Expr::Subscript(target)] => text_of(&target.slice).unwrap_or_default(),
            _ => "",
        },
        _ => "",
    }
}

/// Whether the loader is for evaluation, by its name, its dataset's name, or the function that constructs it.
pub fn evaluates(program: &Program, loader: &Loader) -> bool {
    let name = named(loader);
    let data = loader.node.arguments.find_argument_value(Role::DatasetOption.word(), 0);
    let data = data.map(names_in).unwrap_or_default();
    let by_name = match phase_of(name) {
        Some(phase) => phase == Phase::Evaluation,
        None => data.iter().find_map(|name| phase_of(name)) == Some(Phase::Evaluation),
    };
    let function = program.function_at(loader.context);
    program.functions[function].kind == FunctionKind::Evaluation
        || by_name && !is_zipped_into_steps(program, loader.id)
        // `if train: … else: …`
        || program.is_within(loader.context, |frame| frame == Frame::Guard(Guard::Evaluation))
        || is_read_by_evaluations(program, loader.id)
}

/// Whether it feeds something other than training, although no name says evaluation.
pub fn only_measures(program: &Program, loader: &Loader) -> bool {
    if phase_of(named(loader)) == Some(Phase::Training) {
        return false;
    }
    // Constructed after `model.eval()`, for an evaluation pass.
    let by_mode = program.is_evaluation(loader.context) && feeds_training(program, loader).is_none();
    by_mode || is_read_beside_training(program, loader)
}

/// `zip(train_loader, valid_loader)` in a loop of steps: both feed the step.
fn is_zipped_into_steps(program: &Program, id: LoaderId) -> bool {
    program.notes.loops.iter().any(|around| {
        around.loaders.len() > 1
            && around.loaders.contains(&id)
            && program.trains_in(around)
            && around.iterated.is_some_and(|iterated| {
                names_in(iterated).iter().any(|name| Owner::Builtin.effect(name) == Effect::Zips)
            })
    })
}

/// Whether every loop over it is visible and none trains, while another loader of the same function feeds a loop that
/// does: faces to verify with, queries and a gallery.
fn is_read_beside_training(program: &Program, loader: &Loader) -> bool {
    let mut loops = program.notes.loops.iter().filter(|around| is_over(program, around, loader.id)).peekable();
    if loops.peek().is_none() || loops.any(|around| program.trains_in(around)) {
        return false;
    }
    let leaves = |call: &Call| {
        let is_in_sight = match &call.callee {
            Callee::Function(_) | Callee::Class(_) => true,
            Callee::External(dotted) => {
                matches!(Owner::Library.effect_of_part(dotted), Effect::Builtins | Effect::First)
            }
            _ => false,
        };
        (!is_in_sight || draws(call)) && call.argument_values().any(|value| may_be(program, value, loader.id))
    };
    if program.notes.calls.iter().any(leaves) {
        return false;
    }
    let function = |loader: &Loader| program.function_at(loader.context);
    let is_beside = |other: &&Loader| other.id != loader.id && function(other) == function(loader);
    program.constructed.loaders.iter().filter(is_beside).any(|other| {
        program.notes.loops.iter().any(|around| program.trains_in(around) && is_over(program, around, other.id))
    })
}

/// Whether all visible loops over it belong to evaluations: a feature memory, test episodes.
fn is_read_by_evaluations(program: &Program, id: LoaderId) -> bool {
    let mut loops = program.notes.loops.iter().filter(|around| is_over(program, around, id)).peekable();
    let measures = |around: &Loop| program.is_evaluation(around.context) && !program.trains_in(around);
    let trains = |call: &Call| draws(call) && is_loader(program, call, id) && !program.is_evaluation(call.context);
    loops.peek().is_some() && loops.all(measures) && !program.notes.calls.iter().any(trains)
}

/// `batches = iter(loader)`, then `next(batches)`: draws without a loop.
fn draws(call: &Call) -> bool {
    call.external().is_some_and(|dotted| Role::OfPython.fits(dotted))
        && matches!(Owner::Builtin.effect(call.name), Effect::Iterates | Effect::Element)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Training,
    Evaluation,
}

/// `trainset`, `val_loader`, `testDataLoader`: the phase that data is for, from its name.
pub fn phase_of(name: &str) -> Option<Phase> {
    let mut spread = String::with_capacity(name.len() + 4);
    // `TEST_LOADER`
    let is_loud = !name.chars().any(|letter| letter.is_ascii_lowercase());
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !is_loud {
            spread.push('_');
        }
        spread.push(letter.to_ascii_lowercase());
    }
    let is_data = Role::DataKind.fits(&spread);
    // The first word that matches decides: `val_train_loader` is the part of the training data that an evaluation sees.
    for word in spread.split('_') {
        let bare = Role::DataEnding.without_end(word);
        if Role::TrainBegin.fits(bare) {
            return Some(Phase::Training);
        }
        // Cross-validation, if the name is about data.
        if Role::EvaluationData.fits(bare) || is_data && Role::CrossValidation.fits(bare) {
            return Some(Phase::Evaluation);
        }
    }
    None
}

/// Whether a value is the loader, or stands for several that include it.
pub fn may_be(program: &Program, value: &Value, id: LoaderId) -> bool {
    let Value::Loader(Some(known)) = value else { return false };
    *known == id || program.constructed.alike.get(known).is_some_and(|all| all.contains(&id))
}

/// Whether the call's first argument is the loader, possibly passed in as a parameter.
pub fn is_loader(program: &Program, call: &Call, id: LoaderId) -> bool {
    let passed = &program.functions[program.function_at(call.context)].loaders;
    let names = call.node.arguments.args.first().map(names_in).unwrap_or_default();
    call.arguments.first().is_some_and(|value| may_be(program, value, id))
        || names.iter().any(|name| passed.get(name).is_some_and(|all| all.contains(&id)))
}

pub fn is_over(program: &Program, around: &Loop, id: LoaderId) -> bool {
    let function = program.function_at(around.context);
    let passed = &program.functions[function].loaders;
    let is_passed = || {
        let names = || around.iterated.map(names_in).unwrap_or_default();
        !passed.is_empty() && names().iter().any(|name| passed.get(name).is_some_and(|all| all.contains(&id)))
    };
    let alike = |known: &usize| program.constructed.alike.get(known).is_some_and(|all| all.contains(&id));
    if around.loaders.contains(&id) || around.loaders.iter().any(alike) {
        return true;
    }
    // An argument that is a loader only by its annotation, or not known to be one.
    let Value::Loader(Some(known)) = around.value else { return is_passed() };
    // `loader = DataLoader(…)` in two branches, only one of which runs.
    let (one, other) = (&program.constructed.loaders[known], &program.constructed.loaders[id]);
    let owner = |loader: &Loader| program.function_at(loader.context);
    let is_twin = owner(one) == owner(other) && !named(one).is_empty() && named(one) == named(other);
    known == id || is_twin || is_passed()
}
