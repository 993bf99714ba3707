//! Faults that tests inject into a run on several ranks: one rank that is slow, hangs, has no data, or has a loss that
//! is not finite.

use crate::data::DataError;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// `RANK:STEP:KIND`, such as `1:3:data`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    pub rank: usize,
    pub step: u64,
    pub kind: FaultKind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// Every device call takes this much longer, from the start of the run.
    Slow(Duration),
    /// The step begins this much later.
    Late(Duration),
    /// A save takes at least this long.
    Save(Duration),
    Data,
    /// A weight of the rank is NaN.
    NotFinite,
}

#[derive(Clone, Debug, Error, PartialEq)]
#[error("`{0}` is not a fault: RANK:STEP:KIND, where KIND is slow=, late= or save=MILLISECONDS, data or nan")]
pub struct NotAFault(String);

impl FromStr for Fault {
    type Err = NotAFault;

    fn from_str(text: &str) -> Result<Fault, NotAFault> {
        let wrong = || NotAFault(text.into());
        let mut parts = text.splitn(3, ':');
        let mut part = || parts.next().ok_or_else(wrong);
        let (rank, step, kind) = (part()?, part()?, part()?);
        let time = |text: &str| text.parse().map(Duration::from_millis).map_err(|_| wrong());
        let kind = match kind.split_once('=') {
            Some(("slow", time_text)) => FaultKind::Slow(time(time_text)?),
            Some(("late", time_text)) => FaultKind::Late(time(time_text)?),
            Some(("save", time_text)) => FaultKind::Save(time(time_text)?),
            None if kind == "data" => FaultKind::Data,
            None if kind == "nan" => FaultKind::NotFinite,
            _ => return Err(wrong()),
        };
        Ok(Fault { rank: rank.parse().map_err(|_| wrong())?, step: step.parse().map_err(|_| wrong())?, kind })
    }
}

/// The fault of this rank, if any; none by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnFault(pub Option<Fault>);

impl OwnFault {
    fn at(&self, step: u64) -> Option<FaultKind> {
        self.0.filter(|fault| fault.step == step).map(|fault| fault.kind)
    }

    /// The fetched batch, or an error if the fault is due.
    pub(crate) fn tried<T>(&self, step: u64, fetched: Result<T, DataError>) -> Result<T, DataError> {
        match self.at(step) {
            Some(FaultKind::Data) => Err(DataError::Injected { step }),
            Some(FaultKind::Late(time)) => {
                std::thread::sleep(time);
                fetched
            }
            _ => fetched,
        }
    }

    pub(crate) fn while_saving(&self) {
        if let Some(Fault { kind: FaultKind::Save(time), .. }) = self.0 {
            std::thread::sleep(time);
        }
    }

    pub(crate) fn spoils(&self, step: u64) -> bool {
        self.at(step) == Some(FaultKind::NotFinite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_from_words() {
        let late = Fault { rank: 1, step: 3, kind: FaultKind::Late(Duration::from_millis(250)) };
        assert_eq!("1:3:late=250".parse(), Ok(late));
        assert_eq!("0:2:nan".parse(), Ok(Fault { rank: 0, step: 2, kind: FaultKind::NotFinite }));
        for wrong in ["", "1:2", "1:2:x", "a:2:data", "1:2:late=x", "1:2:slow"] {
            assert_eq!(wrong.parse::<Fault>(), Err(NotAFault(wrong.into())));
        }
    }
}
