//! Proves what is kept: its losses, gradients and batches against those of the variant kept before it.

use super::Search;
use crate::gates::{Proof, spread};
use crate::note::Note;
use crate::remedies::Class;
use crate::rereading::loading;
use crate::variant::{Ran, Variant, Way};
use headroom_record::gate::Answer;

/// Runs of the unmodified script with other random numbers in data loading, for a remedy that moves loading to workers.
const OTHER_LOADINGS: u32 = 2;

/// Most runs of the unmodified script perturbed by rounding, or with other dropout: a single one may be close by
/// chance.
const MOVED_RUNS: u32 = 3;
const OTHER_DROPOUTS: u32 = 2;

/// A deviation of this many times the limit is not chance: no further run is needed.
const HOPELESS: f64 = 10.0;

/// A variant, and the one it is compared with.
#[derive(Clone, Debug)]
pub struct Link {
    pub own: usize,
    pub over: usize,
    class: Class,
    /// Compiled code draws its dropout in another order: this run draws it as uncompiled code does.
    comparable: Option<Note>,
    moves_loading: bool,
    /// Whether its batches were to be read again: not if something else refuses it.
    rereads: bool,
    /// Perturbed runs, as far as they were needed.
    ways: Vec<Way>,
    /// Whether a run that the proof needs was skipped for lack of time.
    pub lacks_time: bool,
}

impl Search<'_> {
    /// Each variant is compared with the best so far, under the class of the remedies it adds. Newly compiled code is
    /// compared with code that is not compiled.
    pub(super) fn link(&self, own: usize) -> Link {
        if let Some(link) = self.links.iter().find(|link| link.own == own).or(self.proved.get(&own)) {
            return link.clone();
        }
        let variant = &self.measured[own].variant;
        let over = if self.is_compiled_anew(own) { self.uncompiled } else { self.best };
        let before = self.measured[over].variant.names();
        let added = variant.remedies().iter().filter(|one| !before.contains(&one.name));
        let class = added.clone().map(|one| one.class).max().unwrap_or(Class::Same);
        let moves_loading = added.clone().any(|one| one.name == "loader-workers");
        Link { own, over, class, comparable: None, moves_loading, rereads: false, ways: vec![], lacks_time: false }
    }

    fn is_compiled_anew(&self, own: usize) -> bool {
        let variant = &self.measured[own].variant;
        variant.is_compiled() && variant.compiled_as() != self.kept().compiled_as()
    }

    fn has_dropout(&self) -> bool {
        self.originals().iter().any(|note| note.modules.iter().any(|module| module.dropouts > 0))
    }

    /// Whether runs of the unmodified script differ, be it by rounding in another order.
    fn varies(&self) -> bool {
        spread(self.originals()) > 0.0
    }

    /// Whether epochs have to be cut short to see one end: the script has a loader, and its compared steps end none.
    pub(super) fn cuts_epochs(&self) -> bool {
        let has_loader = |note: &Note| note.loaders.iter().any(|loader| loader.batches > 0);
        let ends_none = |note: &Note| note.epoch_ends.iter().all(|end| *end >= note.losses.len() as u64);
        self.originals().first().is_some_and(|note| has_loader(note) && ends_none(note))
    }

    /// Whether loading in the script's own process draws random numbers.
    fn draws_loading(&self) -> bool {
        let draws = |note: &Note| note.loaders.iter().any(|loader| loader.draws_random == Some(true));
        self.originals().iter().any(draws)
    }

    /// Whether only the random numbers that loading draws make runs of the unmodified script differ.
    pub(super) fn varies_by_draws(&self, link: &Link) -> bool {
        link.moves_loading && self.draws_loading() && !self.varies()
    }

    fn knows(&self, way: Way) -> bool {
        self.moved.iter().any(|(known, _)| *known == way)
    }

    /// Runs of the unmodified script that the proof will need in any case: without time for them, a variant is not
    /// started.
    pub(super) fn proofs_before(&self, own: usize) -> Vec<Way> {
        let link = self.link(own);
        let mut ways = vec![];
        if self.is_compiled_anew(own) && self.has_dropout() && !self.knows(Way::OtherDropout(1)) {
            ways.push(Way::OtherDropout(1));
        }
        if link.moves_loading {
            let cuts_epochs = self.cuts_epochs();
            let lacks_reference = cuts_epochs && self.is_compared_across(&link) && self.across(0).is_empty();
            ways.extend(vec![Way::Proof { cuts_epochs }; 1 + usize::from(lacks_reference)]);
        }
        if link.moves_loading && self.draws_loading() {
            ways.extend((self.other_loadings.len() as u32 + 1..=OTHER_LOADINGS).map(Way::OtherLoading));
        }
        ways
    }

    /// Makes those runs that also count as timings of the unmodified script.
    pub(super) fn measure_before(&mut self, own: usize, ways: &[Way]) {
        for way in ways.iter().filter(|way| matches!(way, Way::OtherDropout(_))) {
            self.is_moved(own, *way);
        }
    }

    /// The runs of a link so far.
    pub(super) fn proof(&self, link: &Link) -> Proof {
        let runs = &self.measured[link.own];
        let mut references = self.measured[link.over].notes.clone();
        let other_loadings = if link.moves_loading { self.other_loadings.clone() } else { vec![] };
        references.extend(other_loadings.iter().cloned());
        Proof {
            class: link.class,
            references,
            originals: self.originals().to_vec(),
            moved: self.moved_by(&link.ways),
            other_loadings,
            proofs: link.comparable.as_ref().map_or_else(|| runs.notes.clone(), |note| vec![note.clone()]),
            rereads: false,
        }
    }

    /// The runs of a link so far, and the run that read its batches again.
    pub(super) fn proofs(&self, link: &Link) -> Vec<Proof> {
        let mut proofs = vec![self.proof(link)];
        if link.rereads {
            let own = self.across(link.own);
            let references = match self.is_compared_across(link) {
                true if own.iter().all(|note| self.has_whole_epochs(note)) => self.originals().to_vec(),
                true => self.across(0),
                false => vec![],
            };
            proofs.push(Proof { references, proofs: own, rereads: true, other_loadings: vec![], ..proofs[0].clone() });
        }
        proofs
    }

    /// The kept variant and the unmodified script over an epoch's end; `None` if that was not run, or has been compared.
    pub(super) fn proof_across(&self) -> Option<Proof> {
        let (references, proofs) = (self.across(0), self.across(self.best));
        let is_known = self.links.iter().any(|link| link.own == self.best && link.moves_loading && link.over == 0);
        let is_run = !references.is_empty() && !proofs.is_empty();
        (is_run && !is_known).then(|| Proof { references, proofs, ..self.proof_of_patch(self.best) })
    }

    /// Makes the runs over an epoch's end that the kept variant lacks, while there is time. Not where losses differ for
    /// other reasons: workers that draw other numbers, or compiled dropout that had to be drawn in the script's order.
    pub(super) fn prove_across(&mut self) {
        if self.is_across_comparable() {
            for which in [0, self.best] {
                self.run_proof(which, true);
            }
        }
    }

    pub(super) fn is_across_comparable(&self) -> bool {
        let draws = self.draws_loading() && self.links.iter().any(|link| link.moves_loading);
        let is_other_dropout = self.has_dropout() && self.links.iter().any(|link| link.comparable.is_some());
        self.best != 0 && self.cuts_epochs() && !draws && !is_other_dropout
    }

    /// Whether a proof of the link ends epochs where runs of the unmodified script do.
    fn has_whole_epochs(&self, note: &Note) -> bool {
        self.originals().first().is_some_and(|own| note.epoch_ends == own.epoch_ends[..] || !self.cuts_epochs())
    }

    /// Whether losses of a link that moves loading can be compared over an epoch's end: workers that draw have others.
    fn is_compared_across(&self, link: &Link) -> bool {
        self.measured[link.over].variant.is_empty() && !self.draws_loading()
    }

    /// Seconds of the runs over an epoch's end that the kept variant lacks.
    pub(super) fn across_seconds(&self) -> f64 {
        let lacking = [0, self.best].into_iter().filter(|which| self.across(*which).is_empty());
        if self.is_across_comparable() { lacking.map(|which| self.cost(which)).sum() } else { 0.0 }
    }

    fn across(&self, which: usize) -> Vec<Note> {
        self.across.iter().filter(|(known, _)| *known == which).map(|(_, note)| note.clone()).collect()
    }

    /// Whether the variant's run that reads batches again is available; makes it if not.
    fn run_proof(&mut self, which: usize, cuts_epochs: bool) -> bool {
        if self.across.iter().any(|(known, _)| *known == which) {
            return true;
        }
        let variant = self.measured[which].variant.clone();
        let Some(note) = self.extra(which, &variant, Way::Proof { cuts_epochs }) else { return false };
        self.across.push((which, note));
        true
    }

    /// Reads batches of workers again, over an epoch's end. A script that does not expect an end there is run with whole
    /// epochs.
    fn prove_batches(&mut self, link: &mut Link) {
        let cuts_epochs = self.cuts_epochs();
        let is_cut = cuts_epochs && self.run_proof(link.own, true);
        if !is_cut && !self.run_proof(link.own, false) {
            link.lacks_time = true;
            return;
        }
        // A run of the unmodified script would change nothing for batches that are wrong.
        let is_wrong = loading(&self.across(link.own)).answer == Answer::Fail;
        if is_cut && !is_wrong && self.is_compared_across(link) && !self.run_proof(0, true) {
            link.lacks_time = true;
        }
    }

    fn moved_by(&self, ways: &[Way]) -> Vec<Note> {
        self.moved.iter().filter(|(way, _)| ways.contains(way)).map(|(_, note)| note.clone()).collect()
    }

    /// The runs of the patched copy, compared with the kept variant as that was compared with the one before it.
    pub(super) fn proof_of_patch(&self, patch: usize) -> Proof {
        let best = &self.measured[self.best];
        let mut references = best.notes.clone();
        references.extend(self.links.iter().filter_map(|link| link.comparable.clone()));
        // A remedy that could not be written leaves the patch closer to the unmodified script.
        references.extend(self.originals().iter().cloned());
        let moves_loading = self.links.iter().any(|link| link.moves_loading);
        let other_loadings = if moves_loading { self.other_loadings.clone() } else { vec![] };
        references.extend(other_loadings.iter().cloned());
        let ways: Vec<Way> = self.links.iter().flat_map(|link| link.ways.clone()).collect();
        Proof {
            class: best.variant.class(),
            references,
            originals: self.originals().to_vec(),
            moved: self.moved_by(&ways),
            other_loadings,
            proofs: self.measured[patch].notes.clone(),
            rereads: false,
        }
    }

    /// Makes the runs that the proof still needs, while there is time: comparable random numbers for dropout and
    /// loading and, if losses still differ by more than the class allows, perturbed runs of the script.
    pub(super) fn prove(&mut self, own: usize) -> Link {
        let mut link = self.link(own);
        if link.moves_loading {
            self.prove_loading(&mut link);
        }
        match link.class >= Class::Rounding {
            true if self.is_compiled_anew(own) => self.prove_compiled(&mut link),
            true => self.prove_rounding(&mut link),
            // Rounding may be what makes the script's own runs differ.
            false if self.varies() => self.prove_rounding(&mut link),
            false => {}
        }
        let proof = self.proof(&link);
        if link.moves_loading && proof.holds() && proof.gates().iter().all(|gate| gate.answer != Answer::Fail) {
            link.rereads = true;
            self.prove_batches(&mut link);
        }
        link
    }

    fn prove_loading(&mut self, link: &mut Link) {
        let differs = self.proof(link).batches().is_some_and(|gate| !gate.passed());
        if !differs && !self.draws_loading() {
            return;
        }
        for number in self.other_loadings.len() as u32 + 1..=OTHER_LOADINGS {
            match self.extra(link.own, &Variant::as_it_is(), Way::OtherLoading(number)) {
                Some(note) => self.other_loadings.push(note),
                None => link.lacks_time = true,
            }
        }
    }

    /// Compiled dropout is first compared with the effect of other dropout on the script, which needs a process of the
    /// unmodified script. If that does not settle it, a run that draws as uncompiled code does is made, which compiles
    /// once more.
    fn prove_compiled(&mut self, link: &mut Link) {
        match self.has_dropout() {
            true => self.prove_moved(link, OTHER_DROPOUTS, Way::OtherDropout),
            false => self.prove_rounding(link),
        }
        if self.proof(link).holds() {
            return;
        }
        let variant = self.measured[link.own].variant.clone();
        match self.extra(link.own, &variant, Way::ComparableRandom) {
            Some(note) => {
                link.comparable = Some(note);
                link.lacks_time = false;
                link.ways.clear();
                self.prove_rounding(link);
            }
            None => link.lacks_time = true,
        }
    }

    fn prove_rounding(&mut self, link: &mut Link) {
        let rounding = self.measured[link.own].variant.rounding();
        self.prove_moved(link, MOVED_RUNS, |number| Way::Moved(rounding, number));
    }

    /// Adds one perturbed run after another, until losses and gradients are within their effect.
    fn prove_moved(&mut self, link: &mut Link, most: u32, way: impl Fn(u32) -> Way) {
        if self.proof(link).varies_unexplained() {
            return;
        }
        for way in (1..=most).map(way) {
            let excess = self.proof(link).excess();
            let is_measured =
                link.ways.iter().any(|known| std::mem::discriminant(known) == std::mem::discriminant(&way));
            if excess <= 1.0 || is_measured && excess > HOPELESS {
                return;
            }
            if !self.is_moved(link.own, way) {
                link.lacks_time = true;
                return;
            }
            if !link.ways.contains(&way) {
                link.ways.push(way);
            }
        }
    }

    /// Whether this perturbed run of the unmodified script is available; makes it if not.
    fn is_moved(&mut self, own: usize, way: Way) -> bool {
        if self.knows(way) {
            return true;
        }
        let Some(note) = self.extra(own, &Variant::as_it_is(), way) else { return false };
        // On the device, other dropout takes as long as the original, so its time counts.
        if matches!(way, Way::OtherDropout(_)) && note.measured_on.as_deref() == Some("device") {
            let _ = self.measured[0].time(&note);
        }
        self.moved.push((way, note));
        true
    }

    /// Runs a process for the proof of `own` that leaves time for the final turns; `None` if there is no time for it.
    fn extra(&mut self, own: usize, variant: &Variant, way: Way) -> Option<Note> {
        let cost = match way {
            // With other settings the compiler's cache has no entry.
            Way::ComparableRandom => self.compiled.get(&variant.code()).map_or(0.0, |known| known.first),
            _ => self.cost(0),
        };
        let first = if self.measured[own].logs.is_empty() { self.least_cost(own) } else { 0.0 };
        let within = self.runner.seconds_at_most() - first - self.final_turns(own);
        if cost > within {
            return None;
        }
        match self.started(variant, way, within) {
            // A script of one epoch ends where that is cut: what it did until then is compared.
            Ran::Measured(note) if matches!(way, Way::Proof { .. }) => {
                (note.exception.is_none() && note.error.is_none() && !note.losses.is_empty()).then_some(*note)
            }
            Ran::Measured(note) if note.obstacle().is_none() => Some(*note),
            _ => None,
        }
    }
}
