//! The order in which switches race, and which of them share their rounds.

use super::Switchable;
use crate::candidates::PROMISING;
use crate::remedies::Class;
use crate::variant::compiles;

/// Expected seconds of compiling.
const COMPILING: f64 = 60.0;

/// Switches that race in the same rounds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    pub(super) switches: Vec<Switchable>,
    /// Expected seconds.
    pub(super) seconds: f64,
}

impl Group {
    fn of(switches: Vec<Switchable>, round_seconds: f64) -> Group {
        let compiling = switches.iter().filter(|one| compiles(one.remedy.name)).count() as f64 * COMPILING;
        Group { seconds: (switches.len() + 1) as f64 * round_seconds + compiling, switches }
    }

    fn saving(&self) -> f64 {
        self.switches.iter().map(|one| one.predicted.unwrap_or(0.0)).fold(0.0, f64::max)
    }

    pub(super) fn is_promising(&self) -> bool {
        self.saving() > PROMISING
    }

    fn is_compiling(&self) -> bool {
        self.switches.iter().any(|one| compiles(one.remedy.name))
    }

    fn is_of_fewer_bits(&self) -> bool {
        self.switches.iter().any(|one| one.remedy.class == Class::Precision)
    }
}

/// Promising groups come before the others: none of them is left untried while a switch without a prediction runs. Fewer
/// bits come after what keeps them, but for compiling that nothing suggests: it takes minutes, and gains more with fewer bits. Among equals, the best predicted saving over cost comes first. Switches that compile, or
/// change the number of bits, race alone; the others share their rounds. `round_seconds` are those of one variant in
/// as many rounds as the first look needs.
pub(super) fn groups(switches: Vec<Switchable>, round_seconds: f64) -> Vec<Group> {
    let is_alone = |switch: &Switchable| compiles(switch.remedy.name) || switch.remedy.class == Class::Precision;
    let (alone, together): (Vec<Switchable>, Vec<Switchable>) = switches.into_iter().partition(is_alone);
    let (promising, others): (Vec<Switchable>, Vec<Switchable>) =
        together.into_iter().partition(|one| one.predicted.is_some_and(|share| share > PROMISING));
    let mut groups: Vec<Group> = alone.into_iter().map(|one| Group::of(vec![one], round_seconds)).collect();
    groups.extend(
        [promising, others].into_iter().filter(|group| !group.is_empty()).map(|group| Group::of(group, round_seconds)),
    );
    let worth = |group: &Group| group.saving().max(0.001) / group.seconds;
    let rank = |group: &Group| match (group.is_of_fewer_bits(), group.is_promising()) {
        (true, _) => 2,
        (false, true) => 0,
        (false, false) => 1 + 2 * usize::from(group.is_compiling()),
    };
    groups.sort_by(|one, other| rank(one).cmp(&rank(other)).then(worth(other).total_cmp(&worth(one))));
    groups
}

/// Seconds that later groups need which must not be left out: promising ones, and fewer bits, for which the user asks.
pub(super) fn pending(groups: &[Group]) -> f64 {
    groups.iter().filter(|group| group.is_promising() || group.is_of_fewer_bits()).map(|group| group.seconds).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remedies::named;

    fn order(switches: &[(&str, Option<f64>)], round_seconds: f64) -> Vec<Vec<&'static str>> {
        let switch = |(name, predicted): &(&str, Option<f64>)| Switchable {
            remedy: named(name).unwrap(),
            predicted: *predicted,
            proof_seconds: 0.0,
        };
        let groups = groups(switches.iter().map(switch).collect(), round_seconds);
        groups.iter().map(|group| group.switches.iter().map(|one| one.remedy.name).collect()).collect()
    }

    #[test]
    fn promising_switches_come_first_and_fewer_bits_after_what_keeps_them() {
        let switches = [
            ("compile", Some(0.3)),
            ("bf16-autocast", Some(0.9)),
            ("tf32", Some(0.1)),
            ("gc-frozen", None),
            ("zero-grad-none", Some(0.04)),
        ];
        let wanted = [vec!["tf32"], vec!["compile"], vec!["gc-frozen", "zero-grad-none"], vec!["bf16-autocast"]];
        assert_eq!(order(&switches, 2.0), wanted);
        let unpredicted = [("compile", None), ("bf16-autocast", None), ("gc-frozen", None)];
        assert_eq!(order(&unpredicted, 2.0), [["gc-frozen"], ["bf16-autocast"], ["compile"]]);
        // Where steps are long, compiling costs little in comparison.
        assert_eq!(order(&switches, 400.0)[0], ["compile"]);
    }

    #[test]
    fn groups_without_a_prediction_leave_time_to_promising_ones_after_them() {
        let switch = |name: &str, predicted| Switchable { remedy: named(name).unwrap(), predicted, proof_seconds: 0.0 };
        let all = groups(vec![switch("gc-frozen", None), switch("bf16-autocast", Some(0.4))], 5.0);
        assert_eq!((pending(&all[1..]), pending(&all[2..])), (10.0, 0.0));
    }
}
