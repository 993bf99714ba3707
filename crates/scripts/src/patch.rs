//! The patch: writes the kept remedies into the script's own files, at the places that a run reported.

mod calls;
mod files;
mod head;
mod modules;
#[cfg(test)]
mod tests;
mod values;

use crate::note::Note;
use crate::places::{Place, Places};
use crate::remedies::Remedy;
use crate::remedies::edit::{At, Edit};
use crate::variant::Variant;
use files::Files;
use headroom_rewrite::Spot;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Ordered by path.
    pub files: Vec<Changed>,
    /// Remedies that could not be written, one sentence each.
    pub by_hand: Vec<String>,
    /// Command-line options that do the same as some lines of the patch, for a transformers script that reads its
    /// settings from there.
    pub options: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub path: PathBuf,
    pub before: String,
    pub after: String,
}

/// Writes the kept remedies. `note` comes from a run with them, and its values (workers, threads) are written.
/// `sources` reads a file by its path in the note: relative to the working folder if it is inside.
pub fn patch(sources: &dyn Fn(&Path) -> Option<String>, note: &Note, kept: &Variant, main_script: &Path) -> Patch {
    let nowhere = Places::default();
    let places = note.places.as_ref().unwrap_or(&nowhere);
    let mut files = Files::new(sources);
    let main = main_file(&mut files, places, main_script);
    let mut writer = Writer { note, places, main, files, by_hand: vec![], options: vec![] };
    // Compilation comes last, so that the patch reads in execution order.
    let is_last = |remedy: &&Remedy| remedy.name.starts_with("compile");
    let (last, first): (Vec<&Remedy>, Vec<&Remedy>) = kept.remedies().iter().copied().partition(is_last);
    for remedy in first.into_iter().chain(last) {
        writer.write(remedy);
    }
    writer.finish()
}

/// The main script, or the file that constructs the first optimizer if a console script or a launcher is the main one.
fn main_file(files: &mut Files, places: &Places, main_script: &Path) -> PathBuf {
    let anchors = places.modules.iter().filter_map(|module| Some(module.place.as_ref()?.file.clone()));
    let mut candidates = places.main.iter().cloned().chain([main_script.to_path_buf()]).chain(anchors);
    candidates.find(|path| files.is_readable(path)).unwrap_or_else(|| main_script.to_path_buf())
}

struct Writer<'a> {
    note: &'a Note,
    places: &'a Places,
    main: PathBuf,
    files: Files<'a>,
    by_hand: Vec<String>,
    options: Vec<String>,
}

/// Results of one remedy so far.
#[derive(Default)]
struct Outcome {
    written: usize,
    /// Places that an edit should have changed but did not, and why.
    missing: Vec<(At, String)>,
    /// Kinds of calls that a framework's arguments cover.
    by_framework: Vec<At>,
}

impl Outcome {
    fn take(&mut self, at: At, result: Result<(), String>) {
        match result {
            Ok(()) => self.written += 1,
            Err(why) => self.missing.push((at, why)),
        }
    }
}

impl Writer<'_> {
    fn write(&mut self, remedy: &'static Remedy) {
        let mut outcome = Outcome::default();
        for edit in remedy.edits {
            match *edit {
                Edit::Argument { at, .. } | Edit::GivenArgument { at, .. } | Edit::NoArgument { at, .. } => {
                    self.at_calls(remedy, edit, at, &mut outcome);
                }
                Edit::TrainerArgument { instead_of, name, value } => {
                    self.trainer_argument(remedy, instead_of, (name, value), &mut outcome);
                }
                Edit::BeforeOptimizer { .. }
                | Edit::CallBeforeOptimizer { .. }
                | Edit::PerBlock { .. }
                | Edit::PerEagerModel { .. } => self.at_modules(remedy, edit, &mut outcome),
                _ => self.at_head(remedy, edit, &mut outcome),
            }
        }
        outcome.missing.retain(|(at, _)| !outcome.by_framework.contains(at));
        if outcome.written == 0 && outcome.missing.is_empty() {
            outcome.missing.push((At::Module, "no line for it was found in the script's own files".to_string()));
        }
        let whys: BTreeSet<String> = outcome.missing.into_iter().map(|(_, why)| why).collect();
        for why in whys {
            self.say(format!("{}: {why}; {}", remedy.name, remedy.by_hand));
        }
    }

    fn say(&mut self, sentence: String) {
        if !self.by_hand.contains(&sentence) {
            self.by_hand.push(sentence);
        }
    }

    fn finish(self) -> Patch {
        let Writer { files, mut by_hand, options, .. } = self;
        let (files, broken) = files.finish();
        by_hand.extend(broken);
        Patch { files, by_hand, options }
    }
}

fn spot(place: &Place) -> Spot {
    Spot { line: place.line, end: place.end_line.zip(place.end_column) }
}

/// `train.py:12`
fn shown(place: &Place) -> String {
    format!("{}:{}", place.file.display(), place.line)
}
