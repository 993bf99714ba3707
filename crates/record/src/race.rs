//! How a race went, for the files of experiments whose members are known by name.

use crate::turns::Rounds;
use serde::{Deserialize, Serialize};

/// Members that took turns, and what other programs took of them. Whether a turn or a round counts is decided by the
/// machine's counters, before any time is looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MembersRace {
    pub members: Vec<String>,
    pub rounds: u64,
    /// Rounds in which a turn stayed disturbed, although it was taken again.
    pub disturbed_rounds: u64,
    /// Those of them that do not count, from 0. Empty if too few rounds would be left: then all count.
    pub dropped_rounds: Vec<u64>,
    pub repeated_turns: Vec<MembersTurn>,
}

/// A turn that was taken again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MembersTurn {
    pub round: u64,
    pub member: String,
    /// Time that other programs took, in percent of the turn.
    pub interference_percent: f64,
}

impl MembersRace {
    /// The members' names, by their numbers in the race.
    pub fn of(rounds: &Rounds, members: Vec<String>) -> MembersRace {
        let repeated = rounds.repeated().iter().map(|turn| MembersTurn {
            round: turn.round as u64,
            member: members.get(turn.contestant).cloned().unwrap_or_default(),
            interference_percent: 100.0 * turn.interference,
        });
        MembersRace {
            rounds: rounds.count() as u64,
            disturbed_rounds: rounds.disturbed() as u64,
            dropped_rounds: rounds.dropped().into_iter().map(|round| round as u64).collect(),
            repeated_turns: repeated.collect(),
            members,
        }
    }
}

/// Says that other programs were running and what was done about it; `None` if they were not.
pub fn disturbance(rounds: u64, disturbed: u64, dropped: usize, repeated: usize) -> Option<String> {
    if disturbed == 0 && repeated == 0 {
        return None;
    }
    let counted = match dropped {
        0 if disturbed > 0 => format!("{disturbed} of {rounds} rounds were disturbed all the same and count"),
        dropped => format!("{dropped} of {rounds} rounds do not count"),
    };
    Some(format!("Other programs were running: {repeated} turns were taken again, and {counted}."))
}

/// The same over several races.
pub fn disturbance_of(races: &[MembersRace]) -> Option<String> {
    let sum = |of: fn(&MembersRace) -> u64| races.iter().map(of).sum::<u64>();
    disturbance(
        sum(|race| race.rounds),
        sum(|race| race.disturbed_rounds),
        sum(|race| race.dropped_rounds.len() as u64) as usize,
        sum(|race| race.repeated_turns.len() as u64) as usize,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turns::Turn;

    #[test]
    fn dropped_rounds_are_named_and_the_words_say_what_counts() {
        let mut rounds = Rounds::new(1);
        let (one, other) = (rounds.join(), rounds.join());
        for round in 0..7 {
            let turn = |is_disturbed| Turn { seconds: 1.0, interference: Some(0.5), is_disturbed };
            rounds.push(&[(one, turn(false)), (other, turn(round == 2))]);
        }
        let race = MembersRace::of(&rounds, vec!["tiny v1".into(), "tiny v2".into()]);
        assert_eq!((race.rounds, race.disturbed_rounds, race.dropped_rounds.as_slice()), (7, 1, [2].as_slice()));
        let said = disturbance_of(&[race.clone(), MembersRace { rounds: 5, ..MembersRace::default() }]);
        assert_eq!(
            said.unwrap(),
            "Other programs were running: 0 turns were taken again, and 1 of 12 rounds do not count."
        );
        let kept = MembersRace { dropped_rounds: vec![], ..race };
        assert!(disturbance_of(&[kept]).unwrap().ends_with("1 of 7 rounds were disturbed all the same and count."));
        assert_eq!(disturbance_of(&[]), None);
    }
}
