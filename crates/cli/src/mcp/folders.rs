//! The folders that a client may ask about: every path is resolved, and refused if it leads elsewhere.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::serve::bytes_of_traces;

const GIB: u64 = 1 << 30;
/// The most traces of one call. A run of many ranks is a folder, which counts once.
const MOST_TRACES: usize = 64;
/// Traces in memory take about half of their text; a call may take a machine's attention, not all of its memory.
const MOST_TRACE_BYTES: u64 = 8 * GIB;

/// Full paths; relative paths start at the first.
#[derive(Clone, Debug)]
pub struct Folders(Vec<PathBuf>);

impl Folders {
    /// The given folders, or the working folder.
    pub fn new(given: &[PathBuf]) -> Result<Folders> {
        let given = if given.is_empty() { &[PathBuf::from(".")][..] } else { given };
        let whole = |folder: &PathBuf| {
            let whole = std::fs::canonicalize(folder).with_context(|| format!("cannot use {}", folder.display()))?;
            if !whole.is_dir() {
                bail!("{} is not a folder\n  help: name the folder that contains it", folder.display());
            }
            Ok(whole)
        };
        Ok(Folders(given.iter().map(whole).collect::<Result<_>>()?))
    }

    pub fn first(&self) -> &Path {
        &self.0[0]
    }

    pub fn all(&self) -> &[PathBuf] {
        &self.0
    }

    pub fn hold(&self, whole: &Path) -> bool {
        self.0.iter().any(|folder| whole.starts_with(folder))
    }

    /// Resolves a path into the form for a command that is started in the first folder. The path need not exist:
    /// reporting that is left to the command.
    pub fn place(&self, text: &str) -> Result<OsString> {
        let asked = self.first().join(text);
        let whole = match std::fs::canonicalize(&asked) {
            Ok(whole) => whole,
            Err(error) if error.kind() == ErrorKind::NotFound => self.missing(&asked, text)?,
            Err(error) => return Err(error).with_context(|| format!("cannot resolve {text}")),
        };
        if !self.hold(&whole) {
            return Err(self.refusal(text));
        }
        let near = whole.strip_prefix(self.first()).unwrap_or(&whole);
        Ok(if near.as_os_str().is_empty() { ".".into() } else { near.into() })
    }

    /// The traces of one call, which have a limit together.
    pub fn traces(&self, texts: &[String]) -> Result<Vec<OsString>> {
        ensure!(
            texts.len() <= MOST_TRACES,
            "{} traces are named, and one call reads at most {MOST_TRACES}\n  help: name fewer, or a folder with one file per rank",
            texts.len()
        );
        let places = texts.iter().map(|text| self.trace(text)).collect::<Result<Vec<_>>>()?;
        let bytes: u64 = places.iter().map(|place| bytes_of_traces(&self.first().join(place))).sum();
        ensure!(
            bytes <= MOST_TRACE_BYTES,
            "the traces have {:.1} GiB together, and one call reads at most {} GiB\n  help: name fewer; `headroom analyze` in a \
             terminal has no such limit",
            bytes as f64 / GIB as f64,
            MOST_TRACE_BYTES / GIB
        );
        Ok(places)
    }

    /// Like [`Self::place`], for a trace: the files in a folder of ranks must also be inside.
    fn trace(&self, text: &str) -> Result<OsString> {
        let place = self.place(text)?;
        let whole = self.first().join(&place);
        if !whole.is_dir() {
            if whole.exists() && !whole.is_file() {
                bail!("{text} is not a file or folder");
            }
            return Ok(place);
        }
        let entries = std::fs::read_dir(&whole).with_context(|| format!("cannot read {text}"))?;
        for entry in entries.flatten() {
            let leads_out = std::fs::canonicalize(entry.path()).is_ok_and(|leads| !self.hold(&leads));
            if leads_out {
                return Err(self.refusal(&format!("{text}/{}", entry.file_name().to_string_lossy())));
            }
        }
        Ok(place)
    }

    /// Resolves a path that does not exist through its nearest existing folder.
    fn missing(&self, asked: &Path, text: &str) -> Result<PathBuf> {
        let (mut there, mut rest) = (asked.to_path_buf(), Vec::new());
        loop {
            // A link with a missing target may lead anywhere.
            if std::fs::symlink_metadata(&there).is_ok() {
                break;
            }
            let Some(Component::Normal(name)) = there.components().next_back() else { return Err(self.refusal(text)) };
            rest.push(name.to_os_string());
            there.pop();
        }
        let Ok(there) = std::fs::canonicalize(&there) else { return Err(self.refusal(text)) };
        Ok(rest.iter().rev().fold(there, |place, name| place.join(name)))
    }

    fn refusal(&self, text: &str) -> anyhow::Error {
        let folders: Vec<String> = self.0.iter().map(|folder| folder.display().to_string()).collect();
        anyhow::anyhow!(
            "{text} is outside the folders that this server may read: {}\n  help: start `headroom mcp FOLDER…` with other folders",
            folders.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder `inside` with `runs/a.json`, beside a folder `outside` with `secret.json`.
    fn tree() -> (tempfile::TempDir, Folders) {
        let place = tempfile::tempdir().unwrap();
        for (folder, file) in [("inside/runs", "a.json"), ("outside", "secret.json"), ("inside-not", "b.json")] {
            std::fs::create_dir_all(place.path().join(folder)).unwrap();
            std::fs::write(place.path().join(folder).join(file), "{}").unwrap();
        }
        let folders = Folders::new(&[place.path().join("inside")]).unwrap();
        (place, folders)
    }

    fn refused(placed: Result<OsString>) -> bool {
        placed.is_err_and(|error| error.to_string().contains("is outside the folders that this server may read"))
    }

    #[test]
    fn paths_inside_are_told_from_the_first_folder() {
        let (place, folders) = tree();
        let whole = place.path().join("inside/runs/a.json");
        for text in ["runs/a.json", "./runs/../runs/a.json", whole.to_str().unwrap()] {
            assert_eq!(folders.place(text).unwrap(), "runs/a.json", "{text}");
        }
        assert_eq!(folders.place(".").unwrap(), ".");
        assert_eq!(folders.place("runs/missing.json").unwrap(), "runs/missing.json");
        assert_eq!(folders.place("no/such/folder").unwrap(), "no/such/folder");
    }

    #[test]
    fn paths_outside_are_refused_whether_there_is_something_or_not() {
        let (place, folders) = tree();
        let whole = |name: &str| place.path().join(name).to_str().unwrap().to_string();
        for text in
            ["..", "../outside/secret.json", "../outside/missing", "runs/../../outside", "missing/../../outside"]
        {
            assert!(refused(folders.place(text)), "{text}");
        }
        for text in [whole("outside/secret.json"), whole("outside/missing"), whole("inside-not/b.json"), "/".into()] {
            assert!(refused(folders.place(&text)), "{text}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn links_count_by_where_they_lead() {
        use std::os::unix::fs::symlink;
        let (place, folders) = tree();
        let inside = place.path().join("inside");
        symlink("../outside/secret.json", inside.join("out.json")).unwrap();
        symlink("../outside", inside.join("out")).unwrap();
        symlink("../outside/missing.json", inside.join("nowhere.json")).unwrap();
        symlink("runs/a.json", inside.join("in.json")).unwrap();
        for text in ["out.json", "out/secret.json", "out/missing.json", "nowhere.json"] {
            assert!(refused(folders.place(text)), "{text}");
        }
        assert_eq!(folders.place("in.json").unwrap(), "runs/a.json");
        symlink("../../outside/secret.json", inside.join("runs/rank1.json")).unwrap();
        assert!(refused(folders.trace("runs")), "a folder of ranks with a file from elsewhere");
        assert_eq!(folders.trace("runs/a.json").unwrap(), "runs/a.json");
    }

    #[test]
    fn several_folders_are_all_open() {
        let (place, _) = tree();
        let folders = Folders::new(&["inside", "outside"].map(|name| place.path().join(name))).unwrap();
        let whole = std::fs::canonicalize(place.path().join("outside/secret.json")).unwrap();
        assert_eq!(folders.place("../outside/secret.json").unwrap(), whole);
        assert!(refused(folders.place("../inside-not/b.json")));
    }

    #[test]
    fn a_folder_that_is_not_one_is_an_error() {
        let (place, _) = tree();
        let file = Folders::new(&[place.path().join("outside/secret.json")]).unwrap_err();
        assert!(file.to_string().contains("is not a folder"), "{file}");
        assert!(Folders::new(&[place.path().join("missing")]).is_err());
    }
}
