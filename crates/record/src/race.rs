//! How a race went, for the files of experiments whose members are known by name.

use crate::turns::Rounds;
use serde::{Deserialize, Serialize};

/// Members that took turns, and what other programs took of them. Whether a turn or a round counts is decided by the
/// machine's counters, before any time is looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RaceRecord {
    pub members: Vec<String>,
    pub rounds: u64,
    /// Rounds in which a turn stayed disturbed, although it was taken again.
    pub disturbed_rounds: u64,
    /// Those of them of which nothing counts, from 0. Empty if too few rounds would be left: then all count.
    pub dropped_rounds: Vec<u64>,
    /// Turns of the other rounds that do not count; what else was measured in their rounds does.
    #[serde(default)]
    pub dropped_turns: Vec<DroppedTurn>,
    pub repeated_turns: Vec<RepeatedTurn>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DroppedTurn {
    pub round: u64,
    pub member: String,
}

/// A turn that was taken again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RepeatedTurn {
    pub round: u64,
    /// Empty in files of before, which listed the passes of a member.
    #[serde(default)]
    pub member: String,
    /// Time that other programs took, in percent of the turn.
    pub interference_percent: f64,
}

impl RaceRecord {
    /// The members' names, by their numbers in the race.
    pub fn of(rounds: &Rounds, members: Vec<String>) -> RaceRecord {
        let name = |contestant: usize| members.get(contestant).cloned().unwrap_or_default();
        let repeated = rounds.repeated().iter().map(|turn| RepeatedTurn {
            round: turn.round as u64,
            member: name(turn.contestant),
            interference_percent: 100.0 * turn.interference,
        });
        let dropped_turns = rounds.dropped_turns();
        let dropped = dropped_turns
            .iter()
            .map(|(round, contestant)| DroppedTurn { round: *round as u64, member: name(*contestant) });
        RaceRecord {
            rounds: rounds.count() as u64,
            disturbed_rounds: rounds.disturbed() as u64,
            dropped_rounds: rounds.dropped().into_iter().map(|round| round as u64).collect(),
            dropped_turns: dropped.collect(),
            repeated_turns: repeated.collect(),
            members,
        }
    }
}

/// Says that other programs were running and what was done about it; `None` if they were not.
pub fn disturbance_of(races: &[RaceRecord]) -> Option<String> {
    let sum = |of: fn(&RaceRecord) -> u64| races.iter().map(of).sum::<u64>();
    let (rounds, disturbed) = (sum(|race| race.rounds), sum(|race| race.disturbed_rounds));
    let dropped = sum(|race| race.dropped_rounds.len() as u64);
    let turns = sum(|race| race.dropped_turns.len() as u64);
    let repeated = sum(|race| race.repeated_turns.len() as u64);
    if disturbed == 0 && repeated == 0 {
        return None;
    }
    let counted = match (dropped, turns) {
        (0, 0) if disturbed > 0 => format!("Rounds disturbed all the same, which count: {disturbed} of {rounds}."),
        (dropped, 0) => format!("Rounds that do not count: {dropped} of {rounds}."),
        (0, turns) => format!("Turns that stayed disturbed and do not count: {turns}."),
        (dropped, turns) => {
            format!("Rounds that do not count: {dropped} of {rounds}; further turns that do not: {turns}.")
        }
    };
    Some(format!("Other programs were running. Turns taken again: {repeated}. {counted}"))
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
        let race = RaceRecord::of(&rounds, vec!["tiny v1".into(), "tiny v2".into()]);
        assert_eq!((race.rounds, race.disturbed_rounds, race.dropped_rounds.as_slice()), (7, 1, [2].as_slice()));
        let said = disturbance_of(&[race.clone(), RaceRecord { rounds: 5, ..RaceRecord::default() }]);
        assert_eq!(
            said.unwrap(),
            "Other programs were running. Turns taken again: 0. Rounds that do not count: 1 of 12."
        );
        let kept = RaceRecord { dropped_rounds: vec![], ..race };
        assert!(disturbance_of(&[kept]).unwrap().ends_with("Rounds disturbed all the same, which count: 1 of 7."));
        assert_eq!(disturbance_of(&[]), None);
    }

    #[test]
    fn single_turns_that_do_not_count_are_named_and_told() {
        let mut rounds = Rounds::new(1);
        let members = [rounds.join(), rounds.join(), rounds.join()];
        for round in 0..7 {
            let turn = |is_disturbed| Turn { seconds: 1.0, interference: Some(0.5), is_disturbed };
            let turns = members.map(|member| (member, turn(round == 2 && member == 1)));
            rounds.push(&turns);
        }
        let race = RaceRecord::of(&rounds, ["v1", "v2", "all"].map(String::from).to_vec());
        assert_eq!(race.dropped_turns, [DroppedTurn { round: 2, member: "v2".into() }]);
        let said = disturbance_of(std::slice::from_ref(&race)).unwrap();
        assert!(said.ends_with("Turns taken again: 0. Turns that stayed disturbed and do not count: 1."), "{said}");
        let both = RaceRecord { dropped_rounds: vec![5], ..race };
        assert!(
            disturbance_of(&[both])
                .unwrap()
                .ends_with("Rounds that do not count: 1 of 7; further turns that do not: 1.")
        );
    }
}
