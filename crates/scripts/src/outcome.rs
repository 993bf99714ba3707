//! A remedy to try, and the verdict on it.

use crate::remedies::Remedy;
use headroom_record::gate::Gate;
use headroom_record::turns::Speedup;
use std::time::Duration;

/// A remedy to try.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    pub remedy: &'static Remedy,
    /// Predicted saving as a share of the step; `None` if no finding suggests it.
    pub predicted: Option<f64>,
    /// Findings that it addresses.
    pub answers: Vec<String>,
}

impl Candidate {
    pub(super) fn expects(&self) -> f64 {
        self.predicted.unwrap_or(0.0)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Kept,
    /// As fast as before, with less memory.
    KeptSmaller,
    /// As fast as before, with less memory, together with these.
    KeptSmallerTogether(Vec<&'static str>),
    /// Faster together with these; it was not determined which of them is responsible.
    KeptTogether(Vec<&'static str>),
    WithinNoise,
    /// Tried in one process with these, which was not faster.
    NoGainTogether(Vec<&'static str>),
    /// May be much faster, or slower: time was short, or processes vary too much.
    Undecided(Doubt),
    Slower,
    /// A step replayed with it has other outputs, gradients or updates, and which.
    Differs(String),
    /// Faster, but its workers deliver other batches than the script reads itself, and how.
    WrongBatches(String),
    /// Faster in the search; everything kept together was not faster than the unmodified script in the final turns.
    NotProved(Speedup),
    /// Faster, but refused by a gate: its name, figure and limit.
    Refused(&'static str, f64, f64),
    /// Faster, but this one is faster in its place.
    Replaced(&'static str),
    NothingToDo(String),
    Failed(String),
    TooLong(Duration),
    NotTried(String),
}

/// Why there is no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    Noise,
    Time,
    /// Faster, but there was no time for the processes that prove its losses.
    Proof,
    /// Faster, but runs of the unmodified script differ by more than losses may move.
    Varies,
    /// Faster, but other random numbers in data loading move the losses so far that they compare nothing.
    Draws,
    /// Faster, but none of its workers' batches could be read again.
    Loading,
    /// Faster, but there was no time for turns with the unmodified script.
    Turns,
    /// A person ended the search.
    Interrupted,
}

impl Outcome {
    pub fn is_kept(&self) -> bool {
        matches!(
            self,
            Outcome::Kept | Outcome::KeptSmaller | Outcome::KeptSmallerTogether(_) | Outcome::KeptTogether(_)
        )
    }

    /// Kept because it takes less memory and is as fast.
    pub fn is_kept_for_memory(&self) -> bool {
        matches!(self, Outcome::KeptSmaller | Outcome::KeptSmallerTogether(_))
    }

    /// Whether more time or a quieter machine could settle it.
    pub fn is_open(&self) -> bool {
        let settled = matches!(self, Outcome::Undecided(Doubt::Varies | Doubt::Draws | Doubt::Loading));
        !settled && matches!(self, Outcome::Undecided(_) | Outcome::NotTried(_) | Outcome::TooLong(_))
    }

    /// Whether a process ran with it.
    pub fn has_run(&self) -> bool {
        !matches!(self, Outcome::NotTried(_))
    }

    pub fn words(&self) -> String {
        match self {
            Outcome::Kept => "kept: faster".into(),
            Outcome::KeptSmaller => "kept: as fast, in less memory".into(),
            Outcome::KeptSmallerTogether(names) => {
                format!("kept: as fast, in less memory together with {}", names.join(", "))
            }
            Outcome::KeptTogether(names) => format!("kept: faster together with {}", names.join(", ")),
            Outcome::WithinNoise => "within noise".into(),
            Outcome::NoGainTogether(names) => format!("together with {}: no gain beyond the noise", names.join(", ")),
            Outcome::Undecided(Doubt::Noise) => "not decided: processes differ by too much".into(),
            Outcome::Undecided(Doubt::Time) => "not decided: too little time was left for another process".into(),
            Outcome::Undecided(Doubt::Proof) => {
                "not decided: it is faster, and too little time was left to prove that its losses match the script's"
                    .into()
            }
            Outcome::Undecided(Doubt::Turns) => {
                "not decided: it is faster in the search, and too little time was left to prove it in turns with the unchanged \
                 script"
                    .into()
            }
            Outcome::Undecided(Doubt::Interrupted) => "not decided: the search was interrupted".into(),
            // Neither time nor a quiet machine would decide these.
            Outcome::Undecided(Doubt::Varies) => {
                "not kept: it is faster, and cannot be decided, since runs of the unchanged script differ by more than its \
                 losses may"
                    .into()
            }
            Outcome::Undecided(Doubt::Draws) => {
                "not kept: it is faster, and cannot be decided, since the random numbers that loading draws move the losses by \
                 more than a remedy may"
                    .into()
            }
            Outcome::Undecided(Doubt::Loading) => {
                "not kept: it is faster, and cannot be decided, since no batch of its workers could be read again".into()
            }
            Outcome::Replaced(by) => format!("not kept: {by}, which takes its place, is faster"),
            Outcome::Slower => "slower".into(),
            Outcome::Differs(which) => format!("not kept: a step replayed with it differs: {which}"),
            Outcome::WrongBatches(how) => format!("not kept: its batches are wrong: {how}"),
            Outcome::NotProved(Speedup { ratio, low, high, rounds }) => format!(
                "not kept: faster in the search, but not in the proof, where everything kept was {ratio:.2}× as fast as the \
                 unchanged script ({low:.2} to {high:.2}, {rounds} processes of each)"
            ),
            Outcome::Refused("losses", share, limit) => {
                format!("not kept: its losses differ by {share:.1e} relative, {limit:.1e} allowed")
            }
            Outcome::Refused("gradients", share, limit) => {
                format!("not kept: its gradients differ by {share:.1e} relative, {limit:.1e} allowed")
            }
            Outcome::Refused("memory", share, limit) => {
                format!("not kept: it takes {share:.2} times the script's own memory, {limit:.2} allowed")
            }
            Outcome::Refused(gate, figure, limit) => {
                format!("not kept: the gate `{gate}` is {figure:.0}, {limit:.0} allowed")
            }
            Outcome::NothingToDo(why) => format!("nothing to do: {why}"),
            Outcome::Failed(why) => format!("failed: {why}"),
            Outcome::TooLong(limit) => {
                format!(
                    "ended after {:.0} s: neither its share of the time nor --time-limit allows more",
                    limit.as_secs_f64()
                )
            }
            Outcome::NotTried(why) => format!("not tried: {why}"),
        }
    }
}

/// The verdict on one remedy.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub candidate: Candidate,
    pub outcome: Outcome,
    /// Relative to what was kept before it.
    pub speedup: Option<Speedup>,
    /// Share of the unmodified script's step, in addition to what was kept before it.
    pub saved: Option<f64>,
    /// Bytes without and with it.
    pub memory: Option<(u64, u64)>,
    /// Seconds until the first timed step, and seconds of compiling; neither is part of the step.
    pub warmup_seconds: Option<f64>,
    pub compile_seconds: Option<f64>,
    /// Sentences from the hook.
    pub did: Vec<String>,
    /// The checks of the variant in which it was tried, if it was fast enough for them.
    pub gates: Vec<Gate>,
}

impl Row {
    pub fn of(candidate: Candidate, outcome: Outcome) -> Row {
        Row {
            candidate,
            outcome,
            speedup: None,
            saved: None,
            memory: None,
            warmup_seconds: None,
            compile_seconds: None,
            did: vec![],
            gates: vec![],
        }
    }
}
