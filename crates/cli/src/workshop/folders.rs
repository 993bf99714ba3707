//! Folders of runs below the given one, and the records in them.

use headroom_record::reading;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The pages run their commands in one folder and call runs `runs/…` there.
const RUNS: &str = "runs";

/// The folder of a run by its name on the pages; `root` is the folder of the commands, or its `runs`.
pub fn of_page(root: &Path, folder: &str) -> Option<PathBuf> {
    let inside = folder.strip_prefix(RUNS).map_or(folder, |rest| rest.trim_start_matches('/'));
    [root.join(folder), root.join(inside)].into_iter().find(|path| path.is_dir())
}

/// Every folder that may contain a run, sorted by name.
pub fn all_below(root: &Path) -> Vec<PathBuf> {
    let runs = root.join(RUNS);
    let place = if runs.is_dir() { runs } else { root.to_path_buf() };
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

/// A record in the folder, or why it is missing.
pub fn record<Record: DeserializeOwned>(folder: &Path, file: &str) -> Result<Record, String> {
    let text = reading::read(&folder.join(file), reading::RECORD)
        .map_err(|_| format!("there is no {file}: the run did not come to its end"))?;
    serde_json::from_slice(&text).map_err(|error| format!("{file} does not read: {error}"))
}

/// The value under a dotted key, in which a number is an index into a list.
pub fn value<'record>(record: &'record Value, key: &str) -> Option<&'record Value> {
    key.split('.').try_fold(record, |value, name| match value {
        Value::Array(list) => list.get(name.parse::<usize>().ok()?),
        _ => value.get(name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_dotted_key_goes_through_objects_and_lists() {
        let record = json!({ "runs": [{ "speed": 1.5 }, { "speed": 2.5 }] });
        assert_eq!(value(&record, "runs.1.speed"), Some(&json!(2.5)));
        assert_eq!(value(&record, "runs.2.speed"), None);
        assert_eq!(value(&record, "runs.speed"), None);
    }

    #[test]
    fn a_run_is_found_from_the_folder_of_the_commands_and_from_its_runs() {
        let place = tempfile::tempdir().unwrap();
        let plain = place.path().join("runs/plain");
        fs::create_dir_all(&plain).unwrap();
        assert_eq!(of_page(place.path(), "runs/plain"), Some(plain.clone()));
        assert_eq!(of_page(&place.path().join("runs"), "runs/plain"), Some(plain.clone()));
        assert_eq!(of_page(place.path(), "runs/other"), None);
        assert_eq!(all_below(place.path()), [plain]);
    }
}
