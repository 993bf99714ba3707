//! The place of one process, and how the process ended.

use crate::isolation;
use crate::measurements::Printed;
use crate::note::{Note, counting};
use headroom_record::atomic::FileError;
use headroom_record::reading;
use serde::de::DeserializeOwned;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

/// Where one process runs, and what it leaves there.
pub(crate) struct Place {
    pub(crate) isolated: isolation::Place,
    pub(super) printed: Printed,
}

impl Place {
    pub(super) fn made(isolated: isolation::Place) -> Result<Place, FileError> {
        let place = Place { isolated, printed: Printed::default() };
        fs::create_dir_all(place.notes()).map_err(FileError::new("make the folder", &place.notes()))?;
        Ok(place)
    }

    pub(super) fn notes(&self) -> PathBuf {
        self.isolated.aside().join("notes")
    }
}

/// How a process ended.
pub(crate) enum Ended {
    By(ExitStatus),
    TooLong(Duration),
    /// Ended early: at this many seconds per step, so many steps cannot be had within the limit.
    TooSlow {
        step_seconds: f64,
        steps: u32,
        limit: Duration,
    },
    Interrupted,
}

impl Ended {
    pub(crate) fn is_well(&self) -> bool {
        matches!(self, Ended::By(status) if status.success())
    }

    /// Why there is no measurement, with the last lines that were printed.
    pub(crate) fn words(&self, place: &Place) -> String {
        let how = match self {
            Ended::By(status) if status.success() => without_steps(place),
            Ended::By(status) => format!("it ended with {status}"),
            Ended::TooLong(limit) => format!(
                "it was stopped after {:.0} s, the most that it may take (--time-limit), {}",
                limit.as_secs_f64(),
                Progress::in_folder(&place.notes())
            ),
            Ended::TooSlow { step_seconds, steps, limit } => format!(
                "its steps take {step_seconds:.1} s each, so that the {steps} that are measured take {:.0} s, and --time-limit is {:.0} s",
                step_seconds * f64::from(*steps),
                limit.as_secs_f64()
            ),
            Ended::Interrupted => return "interrupted".into(),
        };
        let help = match self {
            Ended::By(status) if !status.success() => {
                let advice = place.isolated.advice(place.printed.text());
                let advice = advice.unwrap_or("the script must run without `headroom optimize` first".into());
                format!("\n  help: {advice}")
            }
            Ended::TooLong(_) | Ended::TooSlow { .. } => {
                "\n  help: raise --time-limit, or lower --steps and --warmup-steps".to_string()
            }
            _ => String::new(),
        };
        how + &place.printed.told(&help)
    }
}

/// Why a script that ended well took no step: the hook's own words, if it was there.
fn without_steps(place: &Place) -> String {
    let notes: Vec<Note> = read_all(&place.notes(), "measure.");
    match counting(notes) {
        None => "it ended without loading PyTorch, or in an interpreter that ignores PYTHONPATH".to_string(),
        Some(note) => note.obstacle().unwrap_or("it ended before its first training step".to_string()),
    }
}

/// How far a script got that was ended before it wrote a note.
#[derive(Clone, Default, serde::Deserialize)]
pub(super) struct Progress {
    steps: u32,
    seconds: f64,
}

impl Progress {
    pub(super) fn in_folder(notes: &Path) -> Progress {
        let all: Vec<Progress> = read_all(notes, "progress.");
        all.into_iter().max_by_key(|one| one.steps).unwrap_or_default()
    }

    pub(super) fn steps(&self) -> u32 {
        self.steps
    }

    /// Seconds per step since another moment, if at this pace so many steps take far longer than the limit allows. Warm-up
    /// steps may be slow, so some time has to be over, and the excess large.
    pub(super) fn too_slow(&self, since: &Progress, steps: u32, limit: Duration) -> Option<f64> {
        let limit = limit.as_secs_f64();
        let (done, took) = (self.steps.checked_sub(since.steps)?, self.seconds - since.seconds);
        if since.steps == 0 || done < SEEN_STEPS || took < SEEN_SHARE * limit {
            return None;
        }
        let pace = took / f64::from(done);
        let needed = pace * f64::from(steps.saturating_sub(self.steps));
        (needed > EXCESS * (limit - self.seconds)).then_some(pace)
    }
}

/// A pace is judged after so many steps and this share of the limit, and by this excess.
const SEEN_STEPS: u32 = 2;
const SEEN_SHARE: f64 = 0.2;
const EXCESS: f64 = 1.5;

impl std::fmt::Display for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.steps {
            0 => write!(f, "before its first training step"),
            1 => write!(f, "when it had taken its first training step after {:.0} s", self.seconds),
            steps => write!(f, "when it had taken {steps} training steps after {:.0} s", self.seconds),
        }
    }
}

pub(super) fn read_all<T: DeserializeOwned>(folder: &Path, begin: &str) -> Vec<T> {
    let Ok(entries) = fs::read_dir(folder) else { return vec![] };
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(begin) && name.ends_with(".json")
    };
    let files = entries.flatten().map(|entry| entry.path()).filter(is_one);
    files.filter_map(|file| serde_json::from_slice(&reading::read(&file, reading::RECORD).ok()?).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_that_is_too_slow_is_seen_early_and_a_slow_start_is_not() {
        let at = |steps, seconds| Progress { steps, seconds };
        let limit = Duration::from_secs(300);
        let first = at(1, 40.0);
        assert_eq!(at(5, 140.0).too_slow(&first, 25, limit), Some(25.0));
        assert_eq!(at(3, 80.0).too_slow(&first, 25, limit), None, "too early to tell");
        assert_eq!(at(9, 104.0).too_slow(&first, 25, limit), None, "8 s each: it fits");
        assert_eq!(at(5, 140.0).too_slow(&at(0, 0.0), 25, limit), None);
        // The last of them are measured although they may take a little longer.
        assert_eq!(at(20, 250.0).too_slow(&first, 25, limit), None);
    }

    #[test]
    fn a_script_that_is_too_slow_is_told_how_far_it_got() {
        let said = |steps, seconds| Progress { steps, seconds }.to_string();
        assert_eq!(said(0, 0.0), "before its first training step");
        assert_eq!(said(1, 41.6), "when it had taken its first training step after 42 s");
        assert_eq!(said(7, 290.2), "when it had taken 7 training steps after 290 s");
    }
}
