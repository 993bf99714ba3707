//! Call arguments: of the script's own calls, and of transformers' TrainingArguments where its Trainer makes the call.

use super::values::{in_command_line, value_of};
use super::{Outcome, Writer, shown, spot};
use crate::places::{ConstructedObject, Place};
use crate::remedies::Remedy;
use crate::remedies::edit::{At, Edit, Value};
use headroom_rewrite::Argument;

/// A call, by its index in the note.
struct Call<'p> {
    number: usize,
    place: Option<&'p Place>,
    /// Names that identify it where the interpreter reports only a line.
    names: Vec<&'p str>,
}

impl Writer<'_> {
    pub(super) fn at_calls(&mut self, remedy: &'static Remedy, edit: &Edit, at: At, outcome: &mut Outcome) {
        let places = self.places;
        let calls: Vec<Call> = match at {
            At::Loader => made(&places.loaders),
            At::Optimizer => made(&places.optimizers),
            At::Distributed => made(&places.distributed),
            At::ZeroGrad => called(places.zeros.iter(), &["zero_grad"]),
            At::Copy => called(places.copies.iter(), &["to", "cuda"]),
            At::Attention => called(places.modules.iter().flat_map(|module| &module.attentions), &[]),
            At::Module => vec![],
        };
        for call in calls {
            let value = match *edit {
                Edit::Argument { value, .. } | Edit::GivenArgument { value, .. } => {
                    value_of(value, self.note, call.number)
                }
                _ => Some(String::new()),
            };
            if let Some(value) = value {
                let result = self.at_call(remedy, edit, at, &call, value);
                outcome.take(at, result);
            }
        }
    }

    fn at_call(
        &mut self,
        remedy: &'static Remedy,
        edit: &Edit,
        at: At,
        call: &Call,
        value: String,
    ) -> Result<(), String> {
        let Some(place) = call.place else {
            return Err(format!("the script's own files never reach {}", thing(at)));
        };
        if !place.direct {
            return Err(format!("{1} is in a library that {0} calls", shown(place), thing(at)));
        }
        let rewrite = &mut self.files.change(&place.file, remedy)?.rewrite;
        let result = match *edit {
            Edit::Argument { name, position, .. } => {
                rewrite.set_argument(spot(place), &call.names, Argument::new(name, value, position))
            }
            Edit::GivenArgument { name, .. } => {
                rewrite.set_given_argument(spot(place), &call.names, Argument::new(name, value, None))
            }
            Edit::NoArgument { name, position, .. } => {
                rewrite.drop_argument(spot(place), &call.names, Argument::new(name, value, position))
            }
            _ => Ok(()),
        };
        result.map_err(|refusal| format!("{}: {refusal}", place.file.display()))
    }

    /// Sets the Trainer's argument instead, where a call is missing because transformers' Trainer makes it.
    pub(super) fn trainer_argument(
        &mut self,
        remedy: &'static Remedy,
        at: At,
        (name, value): (&'static str, Value),
        outcome: &mut Outcome,
    ) {
        let is_missing = outcome.missing.iter().any(|(missing, _)| *missing == at);
        let Some(made) = self.places.arguments.last().filter(|_| is_missing) else { return };
        // A Trainer has one loader and one optimizer of each kind: the first that the remedy changed stands for all.
        let count = self.note.loaders.len().max(self.note.optimizers.len()).max(1);
        let Some(value) = (0..count).find_map(|number| value_of(value, self.note, number)) else { return };
        let result = match &made.place {
            Some(place) if place.direct => self.files.change(&place.file, remedy).and_then(|file| {
                let argument = Argument::new(name, value.as_str(), None);
                let names = [made.class.as_str(), "__init__"];
                let result = file.rewrite.set_argument(spot(place), &names, argument);
                result.map_err(|refusal| format!("{}: {refusal}", place.file.display()))
            }),
            _ => {
                let option = format!("--{name} {}", in_command_line(&value));
                if !self.options.contains(&option) {
                    self.options.push(option);
                }
                self.before_training(remedy, at, &format!("args.{name} = {value}"))
            }
        };
        if result.is_ok() {
            outcome.by_framework.push(at);
        }
        outcome.take(at, result);
    }

    /// Inserts `trainer.args.name = value` before the line that trains.
    fn before_training(&mut self, remedy: &'static Remedy, at: At, setting: &str) -> Result<(), String> {
        let known = self.places.modules.iter().find_map(|module| {
            let trainer = module.frameworks.iter().find(|framework| framework.kind == "transformers")?;
            Some((module.place.as_ref()?, trainer.expression.as_str()))
        });
        // By then the Trainer has already read the arguments that concern the module itself.
        let Some((place, trainer)) = known.filter(|_| at != At::Module) else {
            return Err("the script reads it from its command line".to_string());
        };
        let file = self.files.change(&place.file, remedy)?;
        let result = file.rewrite.insert_before(spot(place), &[format!("{trainer}.{setting}")]);
        result.map_err(|refusal| format!("{}: {refusal}", place.file.display()))
    }
}

fn made(made: &[ConstructedObject]) -> Vec<Call<'_>> {
    made.iter()
        .enumerate()
        .map(|(number, one)| Call { number, place: one.place.as_ref(), names: vec![one.class.as_str(), "__init__"] })
        .collect()
}

fn called<'p>(places: impl Iterator<Item = &'p Place>, names: &[&'p str]) -> Vec<Call<'p>> {
    let call = |(number, place): (usize, &'p Place)| Call { number, place: Some(place), names: names.to_vec() };
    places.enumerate().map(call).collect()
}

fn thing(at: At) -> &'static str {
    match at {
        At::Loader => "the DataLoader",
        At::Optimizer => "the optimizer",
        At::Distributed => "DistributedDataParallel",
        At::ZeroGrad => "the call to zero_grad",
        At::Copy => "the copy",
        At::Attention => "the call to attention",
        At::Module => "the module",
    }
}
