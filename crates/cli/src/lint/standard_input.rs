//! Reads a script from standard input in place of the file it is named after.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use headroom_lint::{Belonging, Input, Projects};
use headroom_record::reading;
use headroom_sources::configuration::Configurations;
use headroom_sources::discovery::{self, Scripts};

const UNNAMED: &str = "stdin.py";

/// Reads the script. If its name is in an existing folder, the rest of that project is read as if the file itself had
/// been named.
pub fn read(name: Option<&Path>, configurations: &Configurations) -> Result<Scripts> {
    let name_or_usual = name.unwrap_or(Path::new(UNNAMED));
    let bytes = reading::take(std::io::stdin().lock(), discovery::most_bytes(name_or_usual))
        .context("cannot read standard input")?;
    let shown = name_or_usual.to_string_lossy().into_owned();
    if let Some(whole) = name.and_then(place_of) {
        let listing = discovery::list_named([(PathBuf::from(&shown), whole.clone())], configurations)?;
        return Ok(discovery::read_with(listing, &whole, bytes));
    }
    let belonging = Belonging { project: 0, within: shown.clone(), asked: true };
    Ok(Scripts {
        inputs: vec![Input { path: shown, bytes }],
        projects: Projects { belongings: vec![belonging] },
        from_stdin: Some(0),
        ..Scripts::default()
    })
}

/// The full path that the name stands for.
fn place_of(name: &Path) -> Option<PathBuf> {
    let folder = name.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(std::fs::canonicalize(folder).ok()?.join(name.file_name()?))
}
