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
                Progress::of(place)
            ),
            Ended::Interrupted => return "interrupted".into(),
        };
        let help = match self {
            Ended::By(status) if !status.success() => {
                let advice = place.isolated.advice(place.printed.text());
                let advice = advice.unwrap_or("the script must run without `headroom optimize` first".into());
                format!("\n  help: {advice}")
            }
            Ended::TooLong(_) => "\n  help: raise --time-limit, or lower --steps and --warmup-steps".to_string(),
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
struct Progress {
    steps: u32,
    seconds: f64,
}

impl Progress {
    fn of(place: &Place) -> Progress {
        let all: Vec<Progress> = read_all(&place.notes(), "progress.");
        all.into_iter().max_by_key(|one| one.steps).unwrap_or_default()
    }
}

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
    fn a_script_that_is_too_slow_is_told_how_far_it_got() {
        let said = |steps, seconds| Progress { steps, seconds }.to_string();
        assert_eq!(said(0, 0.0), "before its first training step");
        assert_eq!(said(1, 41.6), "when it had taken its first training step after 42 s");
        assert_eq!(said(7, 290.2), "when it had taken 7 training steps after 290 s");
    }
}
