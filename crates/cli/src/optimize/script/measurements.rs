//! Saves the measurements of every process as the hook wrote them: the step times, losses, gradients and batches behind
//! the figures and the gates.

use headroom_experiments::script::{Variant, Way};
use headroom_record::atomic::FileError;
use std::fs;
use std::path::{Path, PathBuf};

/// The measurements' folder inside the results folder.
const MEASUREMENTS: &str = "optimize-processes";

pub struct Measurements {
    folder: PathBuf,
    processes: usize,
}

impl Measurements {
    /// Opens the folder; measurements of an earlier optimization with the same results are removed.
    pub fn in_folder(results: &Path) -> Result<Measurements, FileError> {
        let folder = results.join(MEASUREMENTS);
        fs::create_dir_all(&folder).map_err(FileError::new("make the folder", &folder))?;
        clear(&folder)?;
        Ok(Measurements { folder, processes: 0 })
    }

    /// Removes the measurements if there is no result that they belong to.
    pub fn take_back(results: &Path) {
        let folder = results.join(MEASUREMENTS);
        // Best effort: files that cannot be removed stay.
        let _ = clear(&folder).map(|()| fs::remove_dir(&folder));
    }

    /// Saves the measurements of one process: a file per rank.
    pub fn keep(&mut self, notes: &Path, variant: &Variant, way: Way) -> Result<(), FileError> {
        self.processes += 1;
        let entries = fs::read_dir(notes).map_err(FileError::new("read the folder", notes))?;
        let is_measured = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("measure.") && name.ends_with(".json")
        };
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_measured).collect();
        files.sort();
        for (number, file) in files.iter().enumerate() {
            let rank = if number == 0 { String::new() } else { format!("-{number}") };
            let kept = self.folder.join(format!("{:02}-{}{rank}.json", self.processes, label(variant, way)));
            fs::copy(file, &kept).map_err(FileError::new("write", &kept))?;
        }
        Ok(())
    }
}

fn clear(folder: &Path) -> Result<(), FileError> {
    let entries = fs::read_dir(folder).map_err(FileError::new("read the folder", folder))?;
    for entry in entries.flatten().filter(|entry| is_ours(&entry.file_name().to_string_lossy())) {
        fs::remove_file(entry.path()).map_err(FileError::new("remove", &entry.path()))?;
    }
    Ok(())
}

fn is_ours(name: &str) -> bool {
    let digits = name.bytes().take_while(u8::is_ascii_digit).count();
    digits >= 2 && name[digits..].starts_with('-') && name.ends_with(".json")
}

fn label(variant: &Variant, way: Way) -> String {
    let names = variant.names();
    let variant = if names.is_empty() { "as-it-is".to_string() } else { names.join("+") };
    let way = match way {
        Way::Timed => "",
        Way::ComparableRandom => "-comparable-random",
        Way::OtherLoading(_) => "-other-loading",
        Way::Moved(..) => "-moved-by-rounding",
        Way::OtherDropout(_) => "-other-dropout",
        Way::Proof { .. } => "-read-again",
        Way::Patched => return "patched".to_string(),
    };
    format!("{variant}{way}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_leaves_its_files_and_those_of_an_earlier_run_make_way() {
        let place = tempfile::tempdir().unwrap();
        let (results, notes) = (place.path().join("results"), place.path().join("notes"));
        let kept = results.join(MEASUREMENTS);
        for folder in [&notes, &kept] {
            fs::create_dir_all(folder).unwrap();
        }
        for (file, text) in [("measure.1.json", "a"), ("measure.2.json", "b"), ("record.1.json", "c")] {
            fs::write(notes.join(file), text).unwrap();
        }
        for file in ["07-tf32.json", "mine.json"] {
            fs::write(kept.join(file), "old").unwrap();
        }
        let mut measurements = Measurements::in_folder(&results).unwrap();
        measurements.keep(&notes, &Variant::as_it_is(), Way::Timed).unwrap();
        measurements.keep(&notes, &Variant::as_it_is(), Way::Patched).unwrap();
        let mut names: Vec<String> =
            fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let expected = ["01-as-it-is-1.json", "01-as-it-is.json", "02-patched-1.json", "02-patched.json", "mine.json"];
        assert_eq!(names, expected);
        assert_eq!(fs::read_to_string(kept.join("01-as-it-is-1.json")).unwrap(), "b");
        Measurements::take_back(&results);
        assert!(kept.join("mine.json").exists() && !kept.join("02-patched.json").exists());
    }
}
