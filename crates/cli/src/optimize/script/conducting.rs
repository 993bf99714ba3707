//! The search inside a process, before the one by processes.

use super::arguments::ScriptArguments;
use super::{counted, expected};
use headroom_diagnosis::Analysis;
use headroom_scripts::candidates::candidates;
use headroom_scripts::conductor::search::{Conducted, NotConducted, Switchable, conduct};
use headroom_scripts::conductor::stage::ShieldedStage;
use headroom_scripts::note::Note;
use headroom_scripts::processes::Processes;
use headroom_scripts::variant::{Runner, Variant};

/// Time is left for this many processes as long as the recorded one, which is longer than others: two pairs that prove what
/// is kept, one more of each, and remedies that act when the script starts.
const PROCESSES_AFTER: f64 = 4.5;
/// The least and the most share of the time that is left for them.
const LEAST_AFTER: f64 = 0.35;
const MOST_AFTER: f64 = 0.6;

/// The result, or `None` if this script is searched by processes alone: it trains in several ranks, offers nothing to switch,
/// or there is too little time.
pub(super) fn conducted(
    processes: &mut Processes,
    note: &Note,
    analysis: &Analysis,
    arguments: &ScriptArguments,
    tell: &dyn Fn(&str),
) -> Option<Conducted> {
    let is_alone = note.world_size.is_none_or(|ranks| ranks <= 1);
    let (tried, _) = candidates(note.offered.as_ref()?, &expected(analysis), &arguments.wanted());
    let switchable = tried.into_iter().filter(|one| one.remedy.can_be_switched());
    let switches: Vec<Switchable> =
        switchable.map(|one| Switchable { remedy: one.remedy, predicted: one.predicted }).collect();
    if !is_alone || switches.is_empty() {
        return None;
    }
    let own = processes.longest().as_secs_f64();
    let limit = arguments.time_limit.as_secs_f64();
    let reserve = (PROCESSES_AFTER * own).clamp(LEAST_AFTER * limit, MOST_AFTER * limit);
    if processes.seconds_left() - reserve < 2.0 * own {
        return None;
    }
    tell("switching remedies between the steps of one process");
    let mut stage = ShieldedStage::new(processes, Variant::as_it_is(), reserve);
    match conduct(&mut stage, &switches, note.steps) {
        Ok(found) => {
            let speedup = found
                .speedup
                .map(|speedup| format!(", {:.2}× ({:.2} to {:.2}) together", speedup.ratio, speedup.low, speedup.high));
            tell(&format!(
                "{} confirmed in {} blocks of steps{}",
                counted(found.kept.len(), "remedy", "remedies"),
                found.blocks,
                speedup.unwrap_or_default()
            ));
            Some(found)
        }
        Err(NotConducted(why)) => {
            let why = why.lines().next().unwrap_or_default();
            tell(&format!(
                "remedies cannot be switched between its steps ({why}): each is tried in processes of its own"
            ));
            None
        }
    }
}
