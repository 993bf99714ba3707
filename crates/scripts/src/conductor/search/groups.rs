//! The order in which switches race, and which of them share their rounds.

use super::Switchable;
use crate::candidates::{GRAPHS, MUCH_MORE, PROMISING};
use crate::remedies::Class;
use crate::variant::{compiles, is_alternative};

/// Expected seconds of compiling, before anything was compiled.
pub(super) const COMPILING: f64 = 60.0;

/// Switches that race in the same rounds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    pub(super) switches: Vec<Switchable>,
    /// Expected seconds, and those of them that go to compiling.
    pub(super) seconds: f64,
    pub(super) compiling: f64,
}

impl Group {
    fn of(switches: Vec<Switchable>, costs: &Costs) -> Group {
        let compiling = switches.iter().map(costs.compiling).sum::<f64>();
        Group { seconds: costs.round * (switches.len() + 1) as f64 + compiling, compiling, switches }
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

    /// CUDA graphs fail more often than the code that they launch, so they have to promise more.
    fn worth(&self) -> f64 {
        let doubt = if self.switches.iter().any(|one| one.remedy.name == GRAPHS) { MUCH_MORE } else { 1.0 };
        self.saving().max(0.001) / self.seconds / doubt
    }
}

/// Expected seconds.
pub(super) struct Costs<'a> {
    /// One variant in as many rounds as the first look needs.
    pub(super) round: f64,
    /// New code that a switch needs.
    pub(super) compiling: &'a dyn Fn(&Switchable) -> f64,
}

/// The order of switches. Those that need new code, or change the number of bits, race alone; the others share their rounds.
/// - Switches that take less time than compiling come before it, also without a prediction: on top of compiled code some of
///   them would compile it again.
/// - Of the rest, promising groups come before the others: none of them is left untried while a switch without a prediction
///   runs. Among equals, the best predicted saving over cost comes first.
/// - Fewer bits come after what keeps them, but for compiling that nothing suggests: it takes minutes, and gains more with
///   fewer bits.
pub(super) fn groups(switches: Vec<Switchable>, costs: &Costs) -> Vec<Group> {
    let is_alone = |one: &Switchable| (costs.compiling)(one) > 0.0 || one.remedy.class == Class::Precision;
    let (alone, together): (Vec<Switchable>, Vec<Switchable>) = switches.into_iter().partition(is_alone);
    let (promising, others): (Vec<Switchable>, Vec<Switchable>) =
        together.into_iter().partition(|one| one.predicted.is_some_and(|share| share > PROMISING));
    let mut groups: Vec<Group> = alone.into_iter().map(|one| Group::of(vec![one], costs)).collect();
    groups
        .extend([promising, others].into_iter().filter(|group| !group.is_empty()).map(|group| Group::of(group, costs)));
    let switches = groups.iter().flat_map(|group| &group.switches).filter(|one| compiles(one.remedy.name));
    let compiling = switches.map(costs.compiling).fold(f64::INFINITY, f64::min);
    let is_brief = |group: &Group| !group.is_compiling() && group.seconds < compiling;
    let rank = |group: &Group| match (group.is_of_fewer_bits(), group.is_promising()) {
        (true, _) => 4,
        (false, is_promising) if is_brief(group) => usize::from(!is_promising),
        (false, true) => 2,
        (false, false) if group.is_compiling() => 5,
        (false, false) => 3,
    };
    groups.sort_by(|one, other| rank(one).cmp(&rank(other)).then(other.worth().total_cmp(&one.worth())));
    groups
}

/// Seconds that later groups need which must not be left out: promising ones, and fewer bits, for which the user asks. Of
/// alternatives, one will do.
pub(super) fn pending(groups: &[Group]) -> f64 {
    let mut counted: Vec<&str> = vec![];
    let mut seconds = 0.0;
    for group in groups.iter().filter(|group| group.is_promising() || group.is_of_fewer_bits()) {
        let name = group.switches[0].remedy.name;
        if !counted.iter().any(|other| is_alternative(other, name)) {
            counted.push(name);
            seconds += group.seconds;
        }
    }
    seconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remedies::named;

    fn costs(round: f64) -> Costs<'static> {
        Costs { round, compiling: &|switch| if compiles(switch.remedy.name) { COMPILING } else { 0.0 } }
    }

    fn switch(name: &str, predicted: Option<f64>) -> Switchable {
        Switchable { remedy: named(name).unwrap(), predicted, proof_seconds: 0.0 }
    }

    fn order(switches: &[(&str, Option<f64>)], round_seconds: f64) -> Vec<Vec<&'static str>> {
        let switches = switches.iter().map(|(name, predicted)| switch(name, *predicted)).collect();
        let groups = groups(switches, &costs(round_seconds));
        groups.iter().map(|group| group.switches.iter().map(|one| one.remedy.name).collect()).collect()
    }

    #[test]
    fn brief_switches_come_before_compiling_and_fewer_bits_after_both() {
        let switches = [
            ("compile", Some(0.3)),
            ("bf16-autocast", Some(0.9)),
            ("tf32", Some(0.1)),
            ("gc-frozen", None),
            ("zero-grad-none", Some(0.04)),
        ];
        let wanted = [vec!["tf32"], vec!["gc-frozen", "zero-grad-none"], vec!["compile"], vec!["bf16-autocast"]];
        assert_eq!(order(&switches, 2.0), wanted);
        let unpredicted = [("compile", None), ("bf16-autocast", None), ("gc-frozen", None)];
        assert_eq!(order(&unpredicted, 2.0), [["gc-frozen"], ["bf16-autocast"], ["compile"]]);
        // Where steps are long, compiling costs little in comparison.
        let wanted = [vec!["compile"], vec!["tf32"], vec!["gc-frozen", "zero-grad-none"], vec!["bf16-autocast"]];
        assert_eq!(order(&switches, 400.0), wanted);
    }

    #[test]
    fn graphs_come_before_the_code_that_they_launch_if_they_promise_much_more() {
        let first =
            |graphs: f64| order(&[("compile", Some(0.3)), ("compile-reduce-overhead", Some(graphs))], 2.0)[0][0];
        assert_eq!((first(0.6), first(0.36), first(0.3)), ("compile-reduce-overhead", "compile", "compile"));
    }

    #[test]
    fn groups_without_a_prediction_leave_time_to_promising_ones_after_them() {
        let all = groups(vec![switch("gc-frozen", None), switch("bf16-autocast", Some(0.4))], &costs(5.0));
        assert_eq!((pending(&all[1..]), pending(&all[2..])), (10.0, 0.0));
    }
}
