//! The proof of what is kept: its losses, gradients and batches against those of what was kept before it.

use super::Search;
use crate::remedies::Class;
use crate::script::gates::Proof;
use crate::script::note::Note;
use crate::script::{Ran, Variant, Way};

/// Runs of the script as it is with other random numbers of loading, where a remedy moves loading elsewhere.
const OTHER_LOADINGS: u32 = 2;

/// A variant, and what it is held against.
#[derive(Clone, Debug)]
pub struct Link {
    pub own: usize,
    pub over: usize,
    class: Class,
    /// Compiled code draws the numbers of its dropout in another order: a run that draws them as uncompiled code does.
    pub comparable: Option<Note>,
    moves_loading: bool,
    /// Runs that were moved, as far as they were needed.
    ways: Vec<Way>,
}

impl Search<'_> {
    /// Each is held against the best so far, by the class of what is new in it. Code that was not compiled before is held against
    /// code that is not compiled.
    pub(super) fn link(&self, own: usize) -> Link {
        if let Some(link) = self.links.iter().find(|link| link.own == own) {
            return link.clone();
        }
        let (variant, best) = (&self.measured[own].variant, &self.measured[self.best].variant);
        let is_compiled_anew = variant.is_compiled() && variant.compiled_as() != best.compiled_as();
        let over = if is_compiled_anew { self.uncompiled } else { self.best };
        let before = self.measured[over].variant.names();
        let added = variant.remedies().iter().filter(|one| !before.contains(&one.name));
        let class = added.clone().map(|one| one.class).max().unwrap_or(Class::Same);
        let moves_loading = added.clone().any(|one| one.name == "loader-workers");
        let comparable = self.measured[own].comparable.clone();
        let ways = match class >= Class::Rounding {
            true => self.moved.iter().map(|(way, _)| *way).filter(|way| self.may_move(own, over, *way)).collect(),
            false => vec![],
        };
        Link { own, over, class, comparable, moves_loading, ways }
    }

    /// Is a run that was moved in this way a measure for this one?
    fn may_move(&self, own: usize, over: usize, way: Way) -> bool {
        let variant = &self.measured[own].variant;
        match way {
            Way::Moved(rounding) => rounding <= variant.rounding(),
            Way::OtherDropout => {
                variant.compiled_as() != self.measured[over].variant.compiled_as() && self.has_dropout()
            }
            _ => false,
        }
    }

    fn has_dropout(&self) -> bool {
        self.originals().iter().any(|note| note.modules.iter().any(|module| module.dropouts > 0))
    }

    /// The runs of a link as they are now.
    pub(super) fn proof(&self, link: &Link) -> Proof {
        let runs = &self.measured[link.own];
        let mut references = self.measured[link.over].notes.clone();
        let other_loadings = if link.moves_loading { self.other_loadings.clone() } else { vec![] };
        references.extend(other_loadings.iter().cloned());
        let is_wanted = |(way, _): &&(Way, Note)| link.ways.contains(way);
        Proof {
            class: link.class,
            references,
            originals: self.originals().to_vec(),
            moved: self.moved.iter().filter(is_wanted).map(|(_, note)| note.clone()).collect(),
            other_loadings,
            proofs: link.comparable.as_ref().map_or_else(|| runs.notes.clone(), |note| vec![note.clone()]),
        }
    }

    /// Runs what the proof still needs, while there is time: random numbers of dropout and of loading that can be compared; and
    /// where losses differ by more than the class allows all the same, how far the script moves them by itself.
    pub(super) fn prove(&mut self, own: usize) -> Link {
        let mut link = self.link(own);
        let variant = self.measured[own].variant.clone();
        let is_compiled_anew = variant.compiled_as() != self.measured[link.over].variant.compiled_as();
        let needs_comparable = |search: &Search, link: &Link| search.has_dropout() || !search.proof(link).holds();
        if is_compiled_anew && link.comparable.is_none() && needs_comparable(self, &link) {
            link.comparable = self.extra(own, &variant, Way::ComparableRandom);
        }
        if link.moves_loading {
            let draws = |note: &Note| note.loaders.iter().any(|loader| loader.draws_random == Some(true));
            let differs = self.proof(&link).batches().is_some_and(|gate| !gate.passed());
            if differs || self.originals().iter().any(draws) {
                for number in self.other_loadings.len() as u32 + 1..=OTHER_LOADINGS {
                    let note = self.extra(own, &Variant::as_it_is(), Way::OtherLoading(number));
                    self.other_loadings.extend(note);
                }
            }
        }
        if link.class >= Class::Rounding {
            for way in [Way::Moved(variant.rounding()), Way::OtherDropout] {
                if self.proof(&link).holds() || !self.may_move(own, link.over, way) {
                    continue;
                }
                if !self.moved.iter().any(|(known, _)| *known == way)
                    && let Some(note) = self.extra(own, &Variant::as_it_is(), way)
                {
                    // Its losses are others, its steps take as long.
                    let _ = self.measured[0].time(&note);
                    self.moved.push((way, note));
                }
                link.ways.push(way);
            }
        }
        link
    }

    /// A process for the proof of `own`; none where there is no time for it.
    fn extra(&mut self, own: usize, variant: &Variant, way: Way) -> Option<Note> {
        let within = self.allowance(own);
        let cost = match way {
            // With other settings nothing is found in the compiler's cache.
            Way::ComparableRandom => self.compiled.get(&variant.asked()).map_or(0.0, |(seconds, _)| *seconds),
            _ => self.cost(0),
        };
        if cost > within {
            return None;
        }
        match self.started(variant, way, within) {
            Ran::Measured(note) if note.obstacle().is_none() => Some(*note),
            _ => None,
        }
    }
}
