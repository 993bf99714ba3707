//! How to count a gate that its interval leaves undecided.

/// Exit code of an undecided gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Undecided {
    Pass,
    Fail,
}

impl Undecided {
    /// Whether this makes the answer no.
    pub fn is_failure(self) -> bool {
        self == Undecided::Fail
    }
}
