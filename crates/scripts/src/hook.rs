//! The Python side: files that lie before a script's own on its path, and how they get there.

use crate::error::ScriptError;
use crate::remedies::REMEDIES;
use headroom_record::atomic::FileError;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Started by the interpreter, before the script.
const STARTER: (&str, &str) = ("sitecustomize.py", include_str!("../python/sitecustomize.py"));

/// The folder of the parts, beside the starter.
const PACKAGE: &str = "headroom_hook";

macro_rules! parts {
    ($($name:literal),* $(,)?) => {
        [$((concat!($name, ".py"), include_str!(concat!("../python/headroom_hook/", $name, ".py")))),*]
    };
}

/// Parts that are loaded when a script is measured or conducted, by file name.
const PARTS: [(&str, &str); 20] = parts!(
    "batches",
    "by_hand",
    "conductor",
    "context",
    "facts",
    "losses",
    "measure",
    "messages",
    "moments",
    "moved",
    "places",
    "prints",
    "rereading",
    "shadow",
    "shadow_compare",
    "shadow_draws",
    "shadow_update",
    "sources",
    "surroundings",
    "switches",
);

/// The fields of messages to and from a conducted script.
const MESSAGES: (&str, &str) = ("messages.json", include_str!("../python/headroom_hook/messages.json"));

/// Writes the starter, which records, with the part that finds steps without an optimizer.
pub fn install_starter(folder: &Path) -> Result<(), FileError> {
    write(folder, STARTER)?;
    install_part(folder, "by_hand.py")
}

/// Writes the part that keeps trackers offline, and the user's files from being written through links of a copy.
pub fn install_surroundings(folder: &Path) -> Result<(), FileError> {
    install_part(folder, "surroundings.py")
}

fn install_part(folder: &Path, name: &str) -> Result<(), FileError> {
    PARTS.iter().filter(|part| part.0 == name).try_for_each(|part| write(&folder.join(PACKAGE), *part))
}

/// Writes everything: the starter, all parts and the remedies.
pub fn install(folder: &Path) -> Result<(), FileError> {
    write(folder, STARTER)?;
    let package = folder.join(PACKAGE);
    PARTS.iter().chain([&MESSAGES]).try_for_each(|part| write(&package, *part))?;
    REMEDIES.iter().try_for_each(|remedy| write(&package.join("remedies"), (remedy.file, remedy.python)))
}

fn write(folder: &Path, (name, text): (&str, &str)) -> Result<(), FileError> {
    fs::create_dir_all(folder).map_err(FileError::new("make the folder", folder))?;
    let path = folder.join(name);
    fs::write(&path, text).map_err(FileError::new("write", &path))
}

/// The hook's folder first, so that the interpreter finds it; it runs the script's own `sitecustomize` afterwards.
pub fn python_path(hooks: &Path) -> Result<OsString, ScriptError> {
    let mut folders = vec![hooks.to_path_buf()];
    if let Some(existing) = std::env::var_os("PYTHONPATH").filter(|existing| !existing.is_empty()) {
        folders.extend(std::env::split_paths(&existing));
    }
    joined(folders, "the temporary folder's name is not valid in PYTHONPATH")
}

/// Folders as the value of a path variable; `what` is said if one of them cannot be in it.
pub(crate) fn joined(folders: Vec<PathBuf>, what: &'static str) -> Result<OsString, ScriptError> {
    std::env::join_paths(folders).map_err(|source| ScriptError::Path { what, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn files_in(folder: &Path) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            if entry.file_type().unwrap().is_dir() && name != "__pycache__" {
                files
                    .extend(files_in(&entry.path()).into_iter().map(|(inner, text)| (format!("{name}/{inner}"), text)));
            } else if name.ends_with(".py") || name.ends_with(".json") {
                files.insert(name, fs::read(entry.path()).unwrap());
            }
        }
        files
    }

    #[test]
    fn every_file_of_the_python_side_is_installed() {
        let folder = tempfile::tempdir().unwrap();
        install(folder.path()).unwrap();
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
        assert_eq!(files_in(folder.path()), files_in(&own));
    }
}
