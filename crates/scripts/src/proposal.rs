//! The patch of the kept remedies: written, run shielded, and offered to the user.

use crate::note::Note;
use crate::outcome::Row;
use crate::patch::{Changed, Patch, patch};
use crate::search::{AS_FAST, Found};
use crate::stored_patch::{is_inside, write_changed};
use crate::variant::Variant;
use headroom_record::atomic::FileError;
use headroom_record::reading;
use headroom_record::script::PatchRecord;
use headroom_record::statistics::Interval;
use headroom_record::turns::Speedup;
use std::path::{Path, PathBuf};

pub struct Proposal {
    patch: Patch,
    /// Its speed-up over the unchanged script, and the number of its processes.
    measured: Option<(Interval, usize)>,
    applied: bool,
    note: Option<String>,
    nothing_kept: bool,
}

impl Proposal {
    /// The proposal for the kept remedies; one of their runs supplies the places.
    pub fn of(kept: &Variant, run: Option<&Note>, folder: &Path, main_script: &Path) -> Proposal {
        let nothing_kept = kept.is_empty();
        let sources = |path: &Path| reading::read_text(&folder.join(path), reading::SCRIPT).ok();
        let patch = match run {
            Some(note) if !nothing_kept => patch(&sources, note, kept, main_script),
            _ => Patch::default(),
        };
        let mut proposal = Proposal { patch, measured: None, applied: false, note: None, nothing_kept };
        proposal.leave_other_folders_alone();
        proposal
    }

    /// Files outside the working folder have no copy, and are never written.
    fn leave_other_folders_alone(&mut self) {
        let (inside, outside) =
            std::mem::take(&mut self.patch.files).into_iter().partition(|file| is_inside(&file.path));
        self.patch.files = inside;
        for Changed { path, .. } in outside {
            let place = path.display();
            self.patch.by_hand.push(format!("{place} is outside the working folder: run the command in its folder"));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.patch.files.is_empty()
    }

    /// The patched files, by path; `None` if the patch changes nothing.
    pub fn files(&self) -> Option<Vec<(PathBuf, String)>> {
        let files = self.patch.files.iter().map(|file| (file.path.clone(), file.after.clone()));
        (!self.is_empty()).then(|| files.collect())
    }

    /// Records how copies of the script ran with the patch applied and without remedies from outside. A patch that is not
    /// itself faster is not offered, unless it was kept for its memory.
    pub fn ran(&mut self, found: &Found) {
        let Some(patched) = &found.patched else { return };
        self.nothing_kept = found.kept.is_empty();
        let is_for_speed = |row: &Row| row.outcome.is_kept() && !row.outcome.is_kept_for_memory();
        let least = if found.rows.iter().any(is_for_speed) { 1.0 } else { AS_FAST };
        match (patched.speedup, &patched.why) {
            (_, Some(why)) => self.withdraw(format!("The patched copy was not measured: {why}")),
            (Some(speedup), None) => {
                let Speedup { ratio: value, low, high, rounds } = speedup;
                self.measured = Some((Interval { value, low, high }, patched.notes.len()));
                if low <= least {
                    self.withdraw(format!(
                        "No patch is offered: a patched copy is {value:.2}× as fast as the unchanged script ({low:.2} to \
                         {high:.2}, {rounds} processes of each), so it is not shown to be faster."
                    ));
                } else if self.nothing_kept {
                    self.patch.files.clear();
                }
            }
            (None, None) => {}
        }
    }

    fn withdraw(&mut self, why: String) {
        self.patch.files.clear();
        self.note = Some(why);
    }

    /// Applies a patch that is offered. Writes all files, or none if one has changed in the meantime.
    pub fn apply(&mut self, folder: &Path) -> Result<(), FileError> {
        if self.measured.is_none() {
            self.note.get_or_insert("The patch is not applied: it was not measured.".into());
            return Ok(());
        }
        match write_changed(folder, &self.patch.files)? {
            Some(path) => {
                self.note = Some(format!("The patch is not applied: {} has changed in the meantime.", path.display()));
            }
            None => self.applied = !self.is_empty(),
        }
        Ok(())
    }

    /// The files that the patch changes, ordered by path.
    pub fn changed(&self) -> &[Changed] {
        &self.patch.files
    }

    pub fn patch_record(&self) -> Option<PatchRecord> {
        if self.nothing_kept {
            return None;
        }
        let interval = self.measured.map(|(interval, _)| interval);
        Some(PatchRecord {
            files: self.patch.files.iter().map(|file| file.path.display().to_string()).collect(),
            by_hand: self.patch.by_hand.clone(),
            options: self.patch.options.clone(),
            speedup: interval.map(|interval| interval.value),
            ci95_low: interval.map(|interval| interval.low),
            ci95_high: interval.map(|interval| interval.high),
            rounds: self.measured.map_or(0, |(_, rounds)| rounds as u64),
            applied: self.applied,
            note: self.note.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Candidate, Outcome};
    use crate::remedies::named;
    use crate::search::{Patched, ProvedAs};
    use std::fs;

    fn proposal(paths: &[&str], measured: Option<f64>) -> Proposal {
        let changed = |path: &&str| Changed { path: path.into(), before: "a\n".into(), after: "b\n".into() };
        let patch = Patch { files: paths.iter().map(changed).collect(), ..Patch::default() };
        let interval = |value: f64| (Interval { value, low: value - 0.1, high: value + 0.1 }, 2);
        let measured = measured.map(interval);
        Proposal { patch, measured, applied: false, note: None, nothing_kept: false }
    }

    #[test]
    fn files_outside_of_the_working_folder_are_never_written() {
        let mut found = proposal(&["train.py", "/elsewhere/train.py", "../other/train.py"], None);
        found.leave_other_folders_alone();
        assert_eq!(found.patch_record().unwrap().files, ["train.py"]);
        assert_eq!(found.patch.by_hand.len(), 2);
    }

    #[test]
    fn a_patch_is_applied_whole_and_only_once_it_was_measured() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let names = ["one.py", "two.py"];
        names.iter().for_each(|name| fs::write(folder.path().join(name), "a\n").unwrap());
        let mut found = proposal(&names, None);
        found.apply(folder.path()).unwrap();
        assert!(!found.applied && found.note.unwrap().starts_with("The patch is not applied"));
        fs::write(folder.path().join("two.py"), "changed\n").unwrap();
        let mut found = proposal(&names, Some(2.0));
        found.apply(folder.path()).unwrap();
        assert_eq!((found.applied, read("one.py").as_str()), (false, "a\n"), "all or none");
        fs::write(folder.path().join("two.py"), "a\n").unwrap();
        found.apply(folder.path()).unwrap();
        assert_eq!((found.applied, read("one.py").as_str(), read("two.py").as_str()), (true, "b\n", "b\n"));
    }

    #[test]
    fn a_patch_that_is_not_itself_faster_is_not_offered() {
        let row =
            |outcome| Row::of(Candidate { remedy: named("tf32").unwrap(), predicted: None, answers: vec![] }, outcome);
        let found = |low: f64, outcome: Outcome| Found {
            kept: if outcome.is_kept() {
                Variant::as_it_is().with(named("tf32").unwrap())
            } else {
                Variant::as_it_is()
            },
            rows: vec![row(outcome)],
            speedup: Speedup { ratio: low + 0.02, low, high: low + 0.05, rounds: 4 },
            proved_as: ProvedAs::Patch,
            originals: vec![],
            finals: vec![],
            links: vec![],
            patched: Some(Patched {
                speedup: Some(Speedup { ratio: low + 0.02, low, high: low + 0.05, rounds: 4 }),
                notes: vec![],
                gates: vec![],
                why: None,
            }),
            processes: 8,
        };
        for (low, outcome, is_offered) in [
            (1.1, Outcome::Kept, true),
            (0.99, Outcome::Kept, false),
            (0.99, Outcome::KeptSmaller, true),
            (0.95, Outcome::KeptSmaller, false),
            (0.99, Outcome::WithinNoise, false),
        ] {
            let mut proposal = proposal(&["train.py"], None);
            proposal.ran(&found(low, outcome.clone()));
            assert_eq!(!proposal.changed().is_empty(), is_offered, "{low} {outcome:?}");
        }
    }
}
