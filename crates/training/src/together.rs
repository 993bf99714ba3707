//! Ways to end that ranks must agree on: a request to stop, or bad data on one of them.
//!
//! A rank that left a step by itself would leave the others waiting. So every rank reports its state before each
//! micro-batch, and all act on the combined result.

use crate::data::DataError;
use crate::trainer::Trainer;
use headroom_engine::ranks::RanksError;
use std::sync::atomic::{AtomicBool, Ordering};

/// The action that the ranks agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Agreed {
    GoOn,
    /// A rank was asked to stop.
    Stop,
    /// A rank was asked to stop at once.
    GiveUp,
    /// A rank has no batch.
    Failed {
        rank: usize,
        why: String,
    },
}

/// The first byte of each rank's message.
const GO_ON: u8 = b'.';
const STOP: u8 = b's';
const GIVE_UP: u8 = b'g';
const FAILED: u8 = b'f';

/// Agrees with all ranks on what to do about the next micro-batch.
pub(crate) fn agree(trainer: &Trainer, stop: &AtomicBool, failed: Option<&DataError>) -> Result<Agreed, RanksError> {
    let Some(ranks) = &trainer.ranks else { return Ok(Agreed::GoOn) };
    let mine = match failed {
        Some(error) => [&[FAILED], error.to_string().as_bytes()].concat(),
        None if trainer.is_told_to_give_up() => vec![GIVE_UP],
        None if stop.load(Ordering::Relaxed) => vec![STOP],
        None => vec![GO_ON],
    };
    Ok(of_all(&ranks.gather(&mine)?))
}

/// The most severe of the ranks' messages.
fn of_all(said: &[Vec<u8>]) -> Agreed {
    let says = |letter: u8| said.iter().position(|words| words.first() == Some(&letter));
    match (says(FAILED), says(GIVE_UP), says(STOP)) {
        (Some(rank), ..) => Agreed::Failed { rank, why: String::from_utf8_lossy(&said[rank][1..]).into() },
        (_, Some(_), _) => Agreed::GiveUp,
        (.., Some(_)) => Agreed::Stop,
        _ => Agreed::GoOn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(said: &[&str]) -> Vec<Vec<u8>> {
        said.iter().map(|words| words.as_bytes().to_vec()).collect()
    }

    #[test]
    fn all_ranks_go_by_the_gravest_word() {
        assert_eq!(of_all(&words(&[".", "."])), Agreed::GoOn);
        assert_eq!(of_all(&words(&[".", "s", "."])), Agreed::Stop);
        assert_eq!(of_all(&words(&["s", "g"])), Agreed::GiveUp);
        let failed = Agreed::Failed { rank: 1, why: "no such file".into() };
        assert_eq!(of_all(&words(&["g", "fno such file"])), failed);
    }
}
