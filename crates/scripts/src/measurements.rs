//! Saves the measurements of every process as the hook wrote them: the step times, losses, gradients and batches behind
//! the figures and the gates.

use crate::printed::LAST_OUTPUT;
use crate::secrets::Secrets;
use crate::variant::{Variant, Way};
use headroom_record::atomic::FileError;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The measurements' folder inside the results folder.
const MEASUREMENTS: &str = "optimize-processes";

/// The output of failing processes, with secrets masked; only the user may read it.
pub const PRINTED_FILE: &str = "printed.txt";

pub struct Measurements {
    folder: PathBuf,
    printed: PathBuf,
    processes: usize,
}

impl Measurements {
    /// Opens the folder; measurements of an earlier optimization with the same results are removed.
    pub fn in_folder(results: &Path) -> Result<Measurements, FileError> {
        let folder = results.join(MEASUREMENTS);
        fs::create_dir_all(&folder).map_err(FileError::new("make the folder", &folder))?;
        clear(&folder)?;
        let printed = results.join(PRINTED_FILE);
        // Left by an earlier optimization; one that cannot be removed cannot be written either, which is told then.
        let _ = fs::remove_file(&printed);
        Ok(Measurements { folder, printed, processes: 0 })
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

    /// The output of a process with secrets masked; that of a failing one is added to the file for it, or `tell` is given
    /// the reason why not.
    pub fn printed(&self, text: &str, failed: Option<(&Variant, Way)>, tell: &dyn Fn(&str)) -> Printed {
        let text = Secrets::of_environment().masked(text);
        let file = failed.filter(|_| !text.trim().is_empty()).and_then(|(variant, way)| {
            let added = only_for_the_user(&self.printed)
                .and_then(|mut file| write!(file, "==> {} <==\n{}\n\n", label(variant, way), text.trim_end()));
            match added {
                Ok(()) => Some(self.printed.clone()),
                // The run continues.
                Err(error) => {
                    tell(&format!("the script's output was not saved: {}: {error}", self.printed.display()));
                    None
                }
            }
        });
        Printed { text, file }
    }
}

/// A failure shows this many lines of the script's output.
const MOST_LINES: usize = 20;

/// The ends of what a process printed, with secrets masked, and the file that holds them if it failed.
#[derive(Default)]
pub struct Printed {
    text: String,
    file: Option<PathBuf>,
}

impl Printed {
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The end of a sentence: where the output is, its last lines, and the help. Empty if nothing was printed.
    pub fn told(&self, help: &str) -> String {
        let lines: Vec<&str> = self.text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines[lines.len().saturating_sub(MOST_LINES)..].join("\n    ");
        let file = self.file.as_ref().map(|file| format!("; its output is in {}", file.display()));
        match last.is_empty() {
            true => String::new(),
            false => format!("{}{LAST_OUTPUT}    {last}{help}", file.unwrap_or_default()),
        }
    }
}

/// Opened to be added to, and made for this user alone. A link is not followed.
fn only_for_the_user(path: &Path) -> std::io::Result<fs::File> {
    let mut options = fs::File::options();
    options.append(true).create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    }
    options.open(path)
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
        Way::Conducted => "-conducted",
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
    fn output_of_a_failing_process_is_kept_for_the_user_alone_and_masked() {
        let place = tempfile::tempdir().unwrap();
        let measurements = Measurements::in_folder(place.path()).unwrap();
        let text = "Traceback\nAuthorization: Bearer abcd1234\n";
        let (unchanged, way) = (Variant::as_it_is(), Way::Timed);
        assert_eq!(measurements.printed(text, None, &|_| {}).file, None);
        let file = place.path().join(PRINTED_FILE);
        assert!(!file.exists(), "a process that did not fail leaves nothing");
        let told = measurements.printed(text, Some((&unchanged, way)), &|_| {}).told("");
        assert!(told.starts_with(&format!("; its output is in {}{LAST_OUTPUT}", file.display())), "{told}");
        assert!(told.ends_with("Bearer ***") && !told.contains("abcd1234"), "{told}");
        assert_eq!(crate::printed::without_output(&format!("it failed{LAST_OUTPUT}x")), "it failed");
        assert_eq!(fs::read_to_string(&file).unwrap(), "==> as-it-is <==\nTraceback\nAuthorization: Bearer ***\n\n");
        #[cfg(unix)]
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).unwrap().permissions()) & 0o777, 0o600);
        Measurements::in_folder(place.path()).unwrap();
        assert!(!file.exists(), "the next optimization begins anew");
    }

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
