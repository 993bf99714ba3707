//! The patch of what was kept: written, run in a copy, and handed over.

use super::processes::Processes;
use crate::optimize::patch::{Changed, Patch, patch};
use anyhow::Result;
use headroom_experiments::script::note::Note;
use headroom_experiments::script::search::Found;
use headroom_experiments::script::{Ran, Runner, Variant, Way};
use headroom_record::replace::replace_file;
use headroom_record::script::PatchRecord;
use headroom_record::statistics::{Interval, MISSED, pooled_difference};
use headroom_report::lint::difference as unified;
use std::fs;
use std::path::Path;

/// Processes of the patched script at least, for an interval.
const LEAST: usize = 2;

pub struct Proposal {
    patch: Patch,
    /// Of its speed over the script as it is, and processes of it.
    measured: Option<(Interval, usize)>,
    applied: bool,
    note: Option<String>,
    nothing_kept: bool,
}

impl Proposal {
    pub fn of(found: &Found, folder: &Path, main_script: &Path) -> Proposal {
        let nothing_kept = found.kept.is_empty();
        let sources = |path: &Path| fs::read_to_string(folder.join(path)).ok();
        let patch = match found.finals.first() {
            Some(note) if !nothing_kept => patch(&sources, note, &found.kept, main_script),
            _ => Patch::default(),
        };
        Proposal { patch, measured: None, applied: false, note: None, nothing_kept }
    }

    pub fn is_empty(&self) -> bool {
        self.patch.files.is_empty()
    }

    /// Runs copies of the script with the patch in them, and without remedies from outside.
    pub fn measure(&mut self, processes: &mut Processes, found: &Found, rounds: usize) {
        processes.change(self.patch.files.iter().map(|file| (file.path.clone(), file.after.clone())).collect());
        let mut logs = vec![];
        for _ in 0..rounds.max(LEAST) {
            if processes.seconds_left() <= 0.0 && logs.len() >= LEAST {
                break;
            }
            match processes.run(&Variant::as_it_is(), Way::Timed) {
                Ran::Measured(note) => match (note.obstacle(), note.seconds()) {
                    (None, Some(seconds)) => logs.push(seconds.ln()),
                    (why, _) => return self.failed(&why.unwrap_or_default()),
                },
                Ran::Failed(why) => return self.failed(&why),
                Ran::TooLong(_) => return self.failed("it took too long"),
            }
        }
        processes.change(vec![]);
        let own: Vec<f64> = found.originals.iter().filter_map(Note::seconds).map(f64::ln).collect();
        let Interval { value, low, high } = pooled_difference(&own, &logs, &[&own, &logs], MISSED);
        let most = |log: f64| log.exp().min(f64::MAX);
        self.measured = Some((Interval { value: value.exp(), low: low.exp(), high: most(high) }, logs.len()));
    }

    fn failed(&mut self, why: &str) {
        self.note = Some(format!("The patched copy was not measured: {why}"));
    }

    pub fn apply(&mut self, folder: &Path) -> Result<()> {
        for Changed { path, before, after } in &self.patch.files {
            let path = folder.join(path);
            if fs::read_to_string(&path).ok().as_ref() != Some(before) {
                self.note = Some(format!("{} was changed meanwhile: the patch is not applied", path.display()));
                return Ok(());
            }
            replace_file(&path, after.as_bytes())?;
        }
        self.applied = !self.is_empty();
        Ok(())
    }

    /// What a patch tool reads.
    pub fn difference(&self) -> String {
        let files = self.patch.files.iter();
        files.map(|file| unified(&file.path.display().to_string(), &file.before, &file.after)).collect()
    }

    pub fn record(&self) -> Option<PatchRecord> {
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
