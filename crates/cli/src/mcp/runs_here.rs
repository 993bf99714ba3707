//! Restricts the registry's runs to those inside the server's folders.

use std::path::{Component, Path};

use anyhow::{Result, bail};
use serde_json::Value;

use super::folders::Folders;

/// The list without runs elsewhere, and a note with their number. A run that was requested by name and is elsewhere is
/// an error.
pub fn runs_here(document: Value, folders: &Folders) -> Result<(Value, Vec<String>)> {
    let elsewhere = "that run is outside the folders that this server may read\n  help: the list shows the runs inside";
    match document {
        Value::Array(runs) => {
            let all = runs.len();
            let here: Vec<Value> = runs.into_iter().filter(|run| is_here(run, folders)).collect();
            let left = all - here.len();
            let note = (left > 0).then(|| format!("{left} runs outside this server's folders are left out"));
            Ok((Value::Array(here), note.into_iter().collect()))
        }
        // A comparison.
        Value::Object(entries) if entries.contains_key("runs") => {
            let runs = entries["runs"].as_array().map(Vec::as_slice).unwrap_or_default();
            if !runs.iter().all(|run| is_here(run, folders)) {
                bail!("{elsewhere}");
            }
            Ok((Value::Object(entries), vec![]))
        }
        run if is_here(&run, folders) => Ok((run, vec![])),
        _ => bail!("{elsewhere}"),
    }
}

/// Whether a run is inside, by its folder or else by the folder it was started in; a deleted folder counts by its name.
fn is_here(run: &Value, folders: &Folders) -> bool {
    let Some(place) = ["folder", "directory"].iter().find_map(|key| run[key].as_str()) else { return false };
    let place = Path::new(place);
    match std::fs::canonicalize(place) {
        Ok(whole) => folders.hold(&whole),
        Err(_) => folders.hold(place) && !place.components().any(|part| part == Component::ParentDir),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn runs_elsewhere_are_left_out_of_lists_and_refused_by_name() {
        let place = tempfile::tempdir().unwrap();
        let (inside, outside) = (place.path().join("inside"), place.path().join("outside"));
        for folder in [&inside, &outside] {
            std::fs::create_dir(folder).unwrap();
        }
        let folders = Folders::new(std::slice::from_ref(&inside)).unwrap();
        let whole = folders.first();
        let row = |id: i64, folder: Option<&Path>, directory: &Path| json!({ "id": id, "folder": folder, "directory": directory });
        let here = row(1, Some(whole), &outside);
        let gone = row(2, Some(&whole.join("runs/gone")), &inside);
        let without_folder = row(3, None, whole);
        let there = row(4, Some(&outside), &inside);
        let sly = row(5, Some(&whole.join("gone/../../outside/x")), &inside);
        let list = json!([here, gone, without_folder, there, sly]);
        let (left, notes) = runs_here(list, &folders).unwrap();
        assert_eq!(left, json!([here, gone, without_folder]));
        assert_eq!(notes, ["2 runs outside this server's folders are left out"]);
        assert_eq!(runs_here(here.clone(), &folders).unwrap().0, here);
        assert!(runs_here(there.clone(), &folders).unwrap_err().to_string().contains("outside the folders"));
        assert!(runs_here(json!({ "runs": [here, gone], "step_change": null }), &folders).is_ok());
        assert!(runs_here(json!({ "runs": [here, there], "step_change": null }), &folders).is_err());
    }
}
