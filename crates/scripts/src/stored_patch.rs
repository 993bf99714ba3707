//! A patch beside the results of its run, so that it can be applied later, and only to the sources that were measured.

use crate::patch::Changed;
use headroom_record::SCHEMA_VERSION;
use headroom_record::atomic::{FileError, write_json};
use headroom_record::reading;
use headroom_record::replace::replace_file;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io;
use std::path::{Component, Path, PathBuf};

/// The file's name in the results folder; `optimize.patch` shows people the same.
pub const PATCH_FILE: &str = "optimize-patch.json";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPatch {
    pub schema_version: u32,
    /// Its run in the registry. The next run of the same script replaces the results in the folder.
    pub run: Option<i64>,
    /// The working folder of the run.
    pub folder: PathBuf,
    pub files: Vec<StoredFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFile {
    /// In the working folder.
    pub path: PathBuf,
    /// SHA-256 of the text that was measured.
    pub before_sha256: String,
    pub after: String,
}

#[derive(Debug, thiserror::Error)]
pub enum StoredPatchError {
    #[error("{file} cannot be read\n  help: `headroom optimize` writes it anew")]
    Damaged { file: String, source: serde_json::Error },
    #[error(
        "{file} names {path}, which is outside its folder\n  help: it was not written by headroom; nothing is changed"
    )]
    Outside { file: String, path: String },
    #[error(
        "{path} has changed since the patch was measured\n  help: measure it again with `headroom optimize`, or merge {patch} \
         by hand"
    )]
    Altered { path: String, patch: String },
    #[error("{0}")]
    File(#[from] FileError),
}

/// The state of the sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sources {
    /// As they were measured: the change that the patch makes.
    AsMeasured(Vec<Changed>),
    /// The patch is in them.
    Patched,
}

impl StoredPatch {
    pub fn of(changed: &[Changed], folder: &Path, run: Option<i64>) -> StoredPatch {
        let file = |file: &Changed| StoredFile {
            path: file.path.clone(),
            before_sha256: sha256(file.before.as_bytes()),
            after: file.after.clone(),
        };
        let files = changed.iter().map(file).collect();
        StoredPatch { schema_version: SCHEMA_VERSION, run, folder: folder.to_path_buf(), files }
    }

    pub fn write(&self, results: &Path) -> Result<(), FileError> {
        write_json(&results.join(PATCH_FILE), self)
    }

    /// The patch in a results folder; `None` if there is none.
    pub fn read(results: &Path) -> Result<Option<StoredPatch>, StoredPatchError> {
        let place = results.join(PATCH_FILE);
        let file = place.display().to_string();
        let bytes = match reading::read(&place, reading::RECORD) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(FileError::new("read", &place)(error).into()),
        };
        let patch: StoredPatch = serde_json::from_slice(&bytes)
            .map_err(|source| StoredPatchError::Damaged { file: file.clone(), source })?;
        match patch.files.iter().find(|file| !is_inside(&file.path)) {
            Some(outside) => Err(StoredPatchError::Outside { file, path: outside.path.display().to_string() }),
            None => Ok(Some(patch)),
        }
    }

    /// Compares the sources with those that were measured; one that is neither they nor patched is an error.
    pub fn sources(&self, results: &Path) -> Result<Sources, StoredPatchError> {
        let mut changed = vec![];
        for file in &self.files {
            let place = self.folder.join(&file.path);
            let before = reading::read_text(&place, reading::SCRIPT).map_err(FileError::new("read", &place))?;
            if sha256(before.as_bytes()) == file.before_sha256 {
                changed.push(Changed { path: file.path.clone(), before, after: file.after.clone() });
            } else if before != file.after {
                let patch = results.join("optimize.patch").display().to_string();
                return Err(StoredPatchError::Altered { path: place.display().to_string(), patch });
            }
        }
        Ok(if changed.is_empty() { Sources::Patched } else { Sources::AsMeasured(changed) })
    }
}

/// Whether a path stays in the folder that it is joined to.
pub fn is_inside(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// Writes all files, or none: a file that is no longer as it was is returned, and after an error those before it are
/// restored.
pub fn write_changed(folder: &Path, files: &[Changed]) -> Result<Option<PathBuf>, FileError> {
    for Changed { path, before, .. } in files {
        if reading::read_text(&folder.join(path), reading::SCRIPT).ok().as_ref() != Some(before) {
            return Ok(Some(path.clone()));
        }
    }
    for (at, file) in files.iter().enumerate() {
        if let Err(error) = replace_file(&folder.join(&file.path), file.after.as_bytes()) {
            for Changed { path, before, .. } in &files[..at] {
                // The first error is the one to report.
                let _ = replace_file(&folder.join(path), before.as_bytes());
            }
            return Err(error);
        }
    }
    Ok(None)
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn changed(path: &str) -> Changed {
        Changed { path: path.into(), before: "a\n".into(), after: "b\n".into() }
    }

    #[test]
    fn a_stored_patch_knows_sources_that_are_measured_patched_or_altered() {
        let place = tempfile::tempdir().unwrap();
        let (folder, results) = (place.path().join("work"), place.path().join("results"));
        for made in [&folder, &results] {
            fs::create_dir(made).unwrap();
        }
        let text = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        text("one.py", "a\n");
        text("two.py", "a\n");
        assert_eq!(StoredPatch::read(&results).unwrap(), None);
        let both = [changed("one.py"), changed("two.py")];
        StoredPatch::of(&both, &folder, Some(3)).write(&results).unwrap();
        let stored = StoredPatch::read(&results).unwrap().unwrap();
        assert_eq!((stored.run, stored.sources(&results).unwrap()), (Some(3), Sources::AsMeasured(both.to_vec())));
        // A patch that was applied to one of them by hand goes on with the other.
        text("one.py", "b\n");
        assert_eq!(stored.sources(&results).unwrap(), Sources::AsMeasured(vec![changed("two.py")]));
        text("two.py", "b\n");
        assert_eq!(stored.sources(&results).unwrap(), Sources::Patched);
        text("two.py", "other\n");
        let error = stored.sources(&results).unwrap_err().to_string();
        assert!(error.contains("two.py has changed since") && error.contains("optimize.patch"), "{error}");
        fs::remove_file(folder.join("two.py")).unwrap();
        assert!(matches!(stored.sources(&results), Err(StoredPatchError::File(_))));
    }

    #[test]
    fn a_stored_patch_that_leaves_its_folder_or_is_cut_off_is_refused() {
        let place = tempfile::tempdir().unwrap();
        for path in ["../other.py", "/etc/passwd"] {
            StoredPatch::of(&[changed(path)], place.path(), None).write(place.path()).unwrap();
            assert!(matches!(StoredPatch::read(place.path()), Err(StoredPatchError::Outside { .. })), "{path}");
        }
        fs::write(place.path().join(PATCH_FILE), "{").unwrap();
        assert!(matches!(StoredPatch::read(place.path()), Err(StoredPatchError::Damaged { .. })));
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_the_others_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("one.py"), "a\n").unwrap();
        // A folder in its place cannot be replaced, and reads as nothing: it has changed.
        fs::create_dir(folder.path().join("two.py")).unwrap();
        let both = [changed("one.py"), changed("two.py")];
        assert_eq!(write_changed(folder.path(), &both).unwrap(), Some("two.py".into()));
        assert_eq!(fs::read_to_string(folder.path().join("one.py")).unwrap(), "a\n");
        assert_eq!(write_changed(folder.path(), &both[..1]).unwrap(), None);
        assert_eq!(fs::read_to_string(folder.path().join("one.py")).unwrap(), "b\n");
    }
}
