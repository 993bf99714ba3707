//! Writes results to standard output or a file, and changed scripts back to where they were read from.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};
use headroom_lint::Repaired;
use headroom_record::atomic::write_atomically;
use headroom_record::replace::{recover, replace_file};
use headroom_report::printable::printable;
use headroom_sources::discovery::{self, Scripts};

use crate::output::{self, note};

/// Prints the result, or writes it to the file.
pub fn result(file: Option<&Path>, text: &str) -> Result<()> {
    result_exactly(file, &printable(text))
}

/// Like [`result`], for output that another program reads byte by byte.
pub fn result_exactly(file: Option<&Path>, text: &str) -> Result<()> {
    let Some(file) = file else { return Ok(output::exactly(text)?) };
    match std::fs::metadata(file) {
        // A pipe or terminal is written directly; a user's file keeps its links, owner and mode.
        Ok(about) if !about.is_file() => {
            std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(_) => replace_file(file, text.as_bytes())?,
        Err(_) => write_atomically(file, text.as_bytes())?,
    }
    Ok(())
}

/// Writes each file to where it was read from, whatever its name; a script from standard input goes to standard output.
pub fn write(repaired: &[Repaired], scripts: &Scripts) -> Result<()> {
    let Scripts { files, inputs, from_stdin, .. } = scripts;
    if let Some(stdin) = from_stdin {
        let fixed = repaired.iter().find(|script| script.input == *stdin);
        let unchanged = std::str::from_utf8(&inputs[*stdin].bytes).context("standard input is not UTF-8");
        return Ok(output::exactly(fixed.map_or(unchanged, |script| Ok(&script.after))?)?);
    }
    let folders: BTreeSet<&Path> = repaired.iter().map(|script| folder_of(&files[script.input])).collect();
    for copy in folders.into_iter().flat_map(recover) {
        note(&format!(
            "warning: an earlier fix was interrupted; {} holds the original text\n  help: compare it with the file of that name, \
             and remove it",
            copy.display()
        ));
    }
    let mut written: Vec<(FileIdentity, &Repaired)> = vec![];
    for script in repaired {
        let path = &files[script.input];
        let identity = identity(path);
        if let Some((_, other)) = written.iter().find(|(known, _)| identity == Some(*known)) {
            if other.after == script.after {
                continue;
            }
            bail!(
                "{} and {} are names of one file, and their fixes differ: only those of the first were written\n  help: run the \
                 command again, on one of the two",
                files[other.input].display(),
                path.display()
            );
        }
        let now = discovery::content(path).with_context(|| format!("cannot read {}", path.display()))?;
        if now != inputs[script.input].bytes {
            bail!(
                "{} changed while it was being fixed, so it was left alone\n  help: run the command again",
                path.display()
            );
        }
        replace_file(path, script.after.as_bytes())?;
        // Asked again: a file with one name is a new one now.
        written.extend(self::identity(path).map(|identity| (identity, script)));
    }
    Ok(())
}

type FileIdentity = (u64, u64);

/// Tells two names of one file from two files; `None` where the system does not.
#[cfg(unix)]
fn identity(path: &Path) -> Option<FileIdentity> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|about| (about.dev(), about.ino()))
}

#[cfg(not(unix))]
fn identity(_path: &Path) -> Option<FileIdentity> {
    None
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
