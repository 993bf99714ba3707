//! Verdict on a gate whose interval leaves it open.

/// Exit code of an undecided gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Undecided {
    Pass,
    Fail,
}

impl Undecided {
    /// Does this make the answer no?
    pub fn is_failure(self) -> bool {
        self == Undecided::Fail
    }
}
