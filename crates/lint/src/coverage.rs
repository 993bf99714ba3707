//! Counts the code that was checked, so that a report without findings says how much was looked at.

use super::effects::{Effect, Owner};
use super::ids::FileId;
use super::program::{FunctionFacts, FunctionKind, Program};
use super::vocabulary::Role;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Loops whose iterations are training steps, and functions that unseen code calls at every step.
    pub steps: usize,
    pub forward_passes: usize,
    pub loaders: usize,
    /// Library trainers that run their own steps, by name: their loops are not in the given files.
    pub trainers: Vec<String>,
}

impl Coverage {
    pub fn add(&mut self, other: Coverage) {
        self.steps += other.steps;
        self.forward_passes += other.forward_passes;
        self.loaders += other.loaders;
        self.trainers.extend(other.trainers);
        self.trainers.sort_unstable();
        self.trainers.dedup();
    }
}

/// Counts only code in files that are asked about.
pub fn of(program: &Program, is_asked: impl Fn(FileId) -> bool) -> Coverage {
    let file_of = |function: usize| program.symbol(function).file;
    let contexts = program.notes.contexts.iter();
    let loops = contexts.filter(|context| context.is_step_loop() && is_asked(file_of(context.function)));
    let of_kind = |is_forward: bool| {
        let is_it = |(function, facts): &(usize, &FunctionFacts)| {
            let (name, file) = (program.symbol(*function).name, file_of(*function));
            let is_pass = Role::Backward.fits(name);
            let is_meant = Role::Forward.fits(name) == is_forward && !is_pass;
            facts.kind == FunctionKind::Step && is_meant && is_asked(file)
        };
        program.functions.iter().enumerate().filter(is_it).count()
    };
    let made = program.notes.calls.iter().filter(|call| is_asked(program.file_of(call.context)));
    let trainers = made
        .filter_map(|call| call.external()?.rsplit('.').next())
        .filter(|name| Owner::BaseClass.effect_of_part(name) == Effect::TrainerClass);
    Coverage {
        steps: loops.count() + of_kind(false),
        forward_passes: of_kind(true),
        loaders: program.constructed.loaders.iter().filter(|loader| is_asked(program.file_of(loader.context))).count(),
        trainers: trainers.map(str::to_string).collect(),
    }
}
