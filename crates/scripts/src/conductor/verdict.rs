//! The result of a search inside processes.

use super::messages::SwitchOffer;
use crate::remedies::Remedy;
use headroom_record::turns::Speedup;

/// A remedy that could be switched, and its predicted saving.
#[derive(Clone, Debug, PartialEq)]
pub struct Switchable {
    pub remedy: &'static Remedy,
    pub predicted: Option<f64>,
    /// Seconds that its proof in fresh processes takes beyond that of any other.
    pub proof_seconds: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Kept,
    NoGain,
    /// Faster, but another one is faster in its place.
    Replaced(&'static str),
    Slower,
    /// A replayed step with it has other outputs or gradients, and which.
    Differs(String),
    Failed(String),
    /// Its blocks never counted, and why.
    Void(String),
    /// Another one was kept in its place, and saves as much as it promised.
    Superfluous(String),
    /// There was no time for it.
    Late,
    Untried(String),
}

/// The result of a search inside processes.
#[derive(Clone, Debug, PartialEq)]
pub struct Conducted {
    pub kept: Vec<&'static Remedy>,
    /// In the order of the decisions; the figures are over what was kept before.
    pub verdicts: Vec<(&'static Remedy, Verdict, Option<Speedup>)>,
    /// Everything kept over the unmodified script, and all of it that computes with as many bits as the script.
    pub speedup: Option<Speedup>,
    pub with_all_bits: Option<Speedup>,
    /// The script's offer, and the answers of replayed steps.
    pub offers: Vec<SwitchOffer>,
    pub shadows: Vec<Shadow>,
    pub rounds: Vec<LoggedRound>,
    pub blocks: u64,
    pub processes: usize,
}

/// The answer of a replayed step.
#[derive(Clone, Debug, PartialEq)]
pub struct Shadow {
    pub switch: &'static str,
    /// `same`, `differs` or `not_possible`.
    pub verdict: String,
    pub reason: Option<String>,
    pub seconds: f64,
}

/// One round of a race.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedRound {
    pub race: u64,
    /// `select` or `confirm`.
    pub stage: &'static str,
    pub round: u64,
    /// Seconds left for the search when it was complete.
    pub seconds_left: f64,
    /// The switches that were on, and seconds per step.
    pub blocks: Vec<(Vec<String>, f64)>,
}

/// Why a script cannot be searched inside a process.
#[derive(Clone, Debug, PartialEq)]
pub struct NotConducted(pub String);
