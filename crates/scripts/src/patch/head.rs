//! Process settings and other lines at the top of the main script.

use super::values::value_of;
use super::{Outcome, Writer};
use crate::remedies::Remedy;
use crate::remedies::edit::{At, Edit, Given, Value};

impl Writer<'_> {
    pub(super) fn at_head(&mut self, remedy: &'static Remedy, edit: &Edit, outcome: &mut Outcome) {
        let main = self.main.clone();
        let result = match *edit {
            Edit::Setting { given, also, line, value, newer } => {
                self.setting(remedy, (given, also), (line, value), newer)
            }
            Edit::AfterImports { text, imports } => {
                self.files.change(&main, remedy).map(|file| file.after_imports(text, imports))
            }
            Edit::WhereCompilingFailed { text, imports } => {
                if self.note.compile.as_ref().is_none_or(|compile| compile.failures == 0) {
                    return;
                }
                self.files.change(&main, remedy).map(|file| file.after_imports(text, imports))
            }
            Edit::BeforeImports { line } => {
                self.files.change(&main, remedy).map(|file| file.rewrite.before_imports(&[line.to_string()]))
            }
            Edit::ByHandWhere { did, words } => {
                let told = self.note.remedies.get(remedy.name);
                if told.is_some_and(|applied| applied.did.iter().any(|sentence| sentence.starts_with(did))) {
                    self.say(format!("{}: {words}", remedy.name));
                    // Reported here: nothing else is missing.
                    outcome.written += 1;
                }
                return;
            }
            _ => return,
        };
        outcome.take(At::Module, result);
    }

    /// Changes conflicting values in all known files, and adds the line unless the main script now has one with that
    /// value.
    fn setting(
        &mut self,
        remedy: &'static Remedy,
        (given, also): (&[Given], &[Given]),
        (line, value): (&str, Value),
        newer: Option<(&str, &str)>,
    ) -> Result<(), String> {
        let value = value_of(value, self.note, 0).ok_or("its value is unknown")?;
        self.open_known();
        let is_newer = newer.is_some_and(|(name, _)| self.files.all().any(|file| file.rewrite.mentions(name)));
        let line = newer.filter(|_| is_newer).map_or(line, |(_, line)| line);
        let main = self.main.clone();
        let main_path = self.files.change(&main, remedy)?.rewrite.path().to_string();
        let mut is_said = false;
        for file in self.files.all() {
            let rewrite = &mut file.rewrite;
            let mut change = |one: &Given| match one {
                Given::Assigned(target, value) => rewrite.assign(target, value),
                Given::Called(function) => rewrite.call_with(function, &value),
            };
            let met = given.iter().filter(|one| change(one)).count();
            also.iter().for_each(|one| {
                change(one);
            });
            is_said |= met > 0 && rewrite.path() == main_path;
        }
        if !is_said {
            let line = line.replace("{value}", &value);
            self.files.change(&main, remedy)?.after_imports(&line, &["torch"]);
        }
        Ok(())
    }

    /// Opens the files that places refer to.
    fn open_known(&mut self) {
        let places = self.places;
        let made = [&places.loaders, &places.optimizers, &places.distributed, &places.arguments];
        let made = made.into_iter().flatten().filter_map(|one| one.place.as_ref());
        let modules = places.modules.iter().filter_map(|module| module.place.as_ref());
        for place in made.chain(modules).chain(&places.zeros).chain(&places.copies) {
            self.files.is_readable(&place.file);
        }
    }
}
