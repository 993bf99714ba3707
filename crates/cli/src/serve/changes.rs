//! Changes that pages may make, if allowed.

use anyhow::{Context, Result, bail};
use headroom_report::dashboard::runs::{Kind, Status};

use super::catalog::Entry;
use super::folder;
use crate::registry::Registry;
use crate::train::folder::remove_run;

/// Deletes a run's files, its folder if nothing else is in it, and its rows in the registry.
pub fn delete(entry: &Entry) -> Result<()> {
    if entry.kind == Kind::Trace {
        bail!("{} is a trace, not a run: it is left alone", entry.name);
    }
    if folder::status(&entry.path) == Status::Running {
        bail!("{} is still running: stop it first", entry.name);
    }
    remove_run(&entry.path).with_context(|| format!("{} could not be deleted", entry.name))?;
    if !entry.registered.is_empty() {
        let registry = Registry::open()?;
        entry.registered.iter().try_for_each(|id| registry.delete(*id))?;
    }
    Ok(())
}

/// Names a run in the registry; an empty name removes the old one.
pub fn name(entry: &Entry, name: &str) -> Result<()> {
    let Some(id) = entry.registered.first() else {
        bail!("{} is not in the registry of runs, which keeps the names", entry.name);
    };
    Ok(Registry::open()?.name(*id, Some(name).filter(|name| !name.is_empty()))?)
}
