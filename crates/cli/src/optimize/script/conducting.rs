//! The search inside a process, as a part of the one by processes.

use super::counted;
use headroom_scripts::candidates::Candidate;
use headroom_scripts::conductor::search::{Conducted, NotConducted};
use headroom_scripts::outcome::Row;
use headroom_scripts::search::Search;

/// Tries each candidate: inside one process where the script takes orders, otherwise in processes of its own. Returns the
/// search inside the process, too.
pub(super) fn try_candidates(
    search: &mut Search,
    candidates: Vec<Candidate>,
    tell: &dyn Fn(&str),
) -> (Vec<Row>, Option<Conducted>) {
    let (mut rows, rest) = search.try_starts(candidates);
    if !search.is_conductible(&rest) {
        rows.extend(search.try_all(rest));
        return (rows, None);
    }
    let mut conducted = None;
    tell("switching remedies between the steps of one process");
    let tried = match search.conduct(&rest) {
        Some(Ok(found)) => {
            let speedup = found
                .speedup
                .map(|speedup| format!(", {:.2}× ({:.2} to {:.2}) together", speedup.ratio, speedup.low, speedup.high));
            tell(&format!(
                "{} confirmed in {} blocks of steps{}",
                counted(found.kept.len(), "remedy", "remedies"),
                found.blocks,
                speedup.unwrap_or_default()
            ));
            let tried = search.try_conducted(&found, rest);
            conducted = Some(found);
            tried
        }
        Some(Err(NotConducted(why))) => {
            let why = why.lines().next().unwrap_or_default();
            tell(&format!(
                "remedies cannot be switched between its steps ({why}): each is tried in processes of its own"
            ));
            search.try_all(rest)
        }
        None => search.try_all(rest),
    };
    rows.extend(tried);
    (rows, conducted)
}
