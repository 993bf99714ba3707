//! Verdict on a gate whose interval leaves it open.

/// Exit code of a gate that is not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Undecided {
    Pass,
    Fail,
}

impl Undecided {
    /// Makes this an answer of no?
    pub fn is_failure(self) -> bool {
        self == Undecided::Fail
    }
}
