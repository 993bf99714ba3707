//! What pages may change, when they may change anything.

use anyhow::{Context, Result, bail};
use headroom_report::dashboard::runs::{Kind, Status};

use super::catalog::Entry;
use super::folder;
use crate::train::folder::remove_run;

/// Takes a run's files away, and its folder if nothing else lies there.
pub fn delete(entry: &Entry) -> Result<()> {
    if entry.kind == Kind::Trace {
        bail!("{} is a trace, not a run: it is left alone", entry.name);
    }
    if folder::status(&entry.path) == Status::Running {
        bail!("{} still runs: stop it first", entry.name);
    }
    remove_run(&entry.path).with_context(|| format!("{} could not be deleted", entry.name))
}
