//! The run registry: an embedded database with one row per run, safe for concurrent writers.
//!
//! A command writes its own row through `Entry`, which never fails a run. `runs`, `regress` and the dashboard read
//! through `Registry`.

mod entry;
mod process;
mod read_only;
mod rows;
mod schema;

pub use entry::{About, Entry, PARENT_VARIABLE};
pub use headroom_record::registry::Headline;
pub use rows::Filter;

use headroom_record::registry::{RunRow, RunStart, RunStatus};
use rusqlite::{Connection, ErrorCode};
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

pub const REGISTRY_FILE: &str = "runs.sqlite";

/// How long a writer waits for others.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Error)]
pub enum RegistryError {
    #[error("there is no folder for the registry of runs\n  help: set HEADROOM_HOME or HOME")]
    NoFolder,
    #[error("cannot make the registry's folder {}: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error(
        "{} was written by a newer headroom (layout {found}, this one knows {known})\n  help: use that version, or set \
         HEADROOM_HOME to another folder", path.display()
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error(
        "{} has the layout of an older headroom ({found}, this one knows {known}), and its folder takes no changes\n  \
         help: copy it to a folder that can be written, and set HEADROOM_HOME to that", path.display()
    )]
    Older { path: PathBuf, found: i64, known: i64 },
    #[error("cannot use the registry of runs {}: {source}{}", path.display(), advice(source))]
    Database { path: PathBuf, source: rusqlite::Error },
    #[error("run {id} of the registry cannot be read: {why}\n  help: `headroom runs delete {id}` forgets it")]
    Row { id: i64, why: String },
    #[error(
        "the name `{name}` belongs to run {id}\n  help: choose another, or free it with `headroom runs name {id} --clear`"
    )]
    NameTaken { name: String, id: i64 },
    #[error("a name must not be empty, a number or `newest`, and this is `{0}`")]
    BadName(String),
    #[error("there is no run `{0}`\n  help: `headroom runs list` shows their numbers and names")]
    NoSuchRun(String),
}

pub struct Registry {
    connection: Connection,
    path: PathBuf,
}

/// Help for a database that cannot be used.
fn advice(error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            "\n  help: it is damaged: move it away, and the next run begins a new one"
        }
        Some(ErrorCode::DiskFull) => "\n  help: make room there, or set HEADROOM_HOME to another folder",
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            "\n  help: set HEADROOM_HOME to a folder that can be written"
        }
        _ => "",
    }
}

/// `HEADROOM_HOME`, else the user's data folder: unlike measured peaks, runs cannot be reproduced, so they do not
/// belong in a cache.
pub fn folder() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("HEADROOM_HOME")
        .or_else(|| set("XDG_DATA_HOME").map(|data| data.join("headroom")))
        .or_else(|| set("HOME").map(|home| home.join(".local/share/headroom")))
}

/// Refuses a name that another run has, before anything is trained. An unreadable registry refuses nothing.
pub fn check_name(name: Option<&str>) -> Result<(), RegistryError> {
    let (Some(name), Ok(registry)) = (name, Registry::open()) else { return Ok(()) };
    registry.is_free(name, None)
}

impl Registry {
    /// Opens this user's registry, created or migrated if needed.
    pub fn open() -> Result<Registry, RegistryError> {
        Registry::open_at(&folder().ok_or(RegistryError::NoFolder)?.join(REGISTRY_FILE))
    }

    pub fn open_at(path: &Path) -> Result<Registry, RegistryError> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)
                .map_err(|source| RegistryError::Folder { path: folder.to_path_buf(), source })?;
        }
        let connection = match open_to_write(path) {
            // Earlier records can still be read.
            Err(error) if read_only::is_read_only_location(&error) => read_only::open(path).unwrap_or(Err(error)),
            opened => opened,
        };
        Ok(Registry { connection: connection?, path: path.to_path_buf() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Inserts a new row for a running run; returns its id.
    pub fn begin(&self, start: &RunStart) -> Result<i64, RegistryError> {
        rows::insert(&self.connection, start).map_err(self.failed())
    }

    /// Records how a run ended, in one transaction: after a crash the row is either unchanged or complete. False if
    /// there is no such row.
    pub fn end(
        &mut self,
        id: i64,
        status: RunStatus,
        figures: &Headline,
        step_seconds: &[f64],
        error: Option<&str>,
    ) -> Result<bool, RegistryError> {
        let ended = rows::end(&mut self.connection, id, status, figures, step_seconds, error);
        ended.map_err(self.failed())
    }

    /// Lists runs, newest first. A run whose process is gone is marked as interrupted.
    pub fn list(&self, filter: &Filter) -> Result<Vec<RunRow>, RegistryError> {
        rows::settle(&self.connection).map_err(self.failed())?;
        rows::list(&self.connection, filter).map_err(self.failed())?.into_iter().collect()
    }

    /// Finds a run by number, by name, or `newest`. An unreadable row affects only itself.
    pub fn find(&self, which: &str) -> Result<RunRow, RegistryError> {
        rows::settle(&self.connection).map_err(self.failed())?;
        let mut all = rows::list(&self.connection, &Filter::default()).map_err(self.failed())?.into_iter();
        let found = match which.parse::<i64>() {
            Ok(wanted) => all.find(|run| match run {
                Ok(run) => run.id == wanted,
                Err(error) => matches!(error, RegistryError::Row { id, .. } if *id == wanted),
            }),
            Err(_) if which == "newest" => all.next(),
            Err(_) => all.find(|run| run.as_ref().is_ok_and(|run| run.name.as_deref() == Some(which))),
        };
        found.unwrap_or_else(|| Err(RegistryError::NoSuchRun(which.into())))
    }

    /// Seconds of each counted step, in order; empty if a run has none.
    pub fn step_seconds(&self, id: i64) -> Result<Vec<f64>, RegistryError> {
        rows::step_seconds(&self.connection, id).map_err(self.failed())
    }

    /// Names a run, or removes its name.
    pub fn name(&self, id: i64, name: Option<&str>) -> Result<(), RegistryError> {
        if let Some(name) = name {
            self.is_free(name, Some(id))?;
        }
        rows::name(&self.connection, id, name).map_err(self.failed())
    }

    pub fn set_version(&self, id: i64, version: &str) -> Result<(), RegistryError> {
        rows::set_version(&self.connection, id, version).map_err(self.failed())
    }

    /// Fails if the run cannot have this name.
    fn is_free(&self, name: &str, id: Option<i64>) -> Result<(), RegistryError> {
        if name.trim().is_empty() || name.parse::<i64>().is_ok() || name == "newest" {
            return Err(RegistryError::BadName(name.into()));
        }
        match rows::named(&self.connection, name).map_err(self.failed())? {
            Some(other) if Some(other) != id => Err(RegistryError::NameTaken { name: name.into(), id: other }),
            _ => Ok(()),
        }
    }

    /// Deletes only the row; the caller handles files.
    pub fn delete(&self, id: i64) -> Result<(), RegistryError> {
        rows::delete(&self.connection, id).map_err(self.failed())
    }

    fn failed(&self) -> impl Fn(rusqlite::Error) -> RegistryError + use<> {
        let path = self.path.clone();
        move |source| RegistryError::Database { path: path.clone(), source }
    }
}

fn open_to_write(path: &Path) -> Result<Connection, RegistryError> {
    let failed = |source| RegistryError::Database { path: path.to_path_buf(), source };
    let mut connection = Connection::open(path).map_err(failed)?;
    connection.busy_timeout(PATIENCE).map_err(failed)?;
    schema::prepare(&mut connection, path)?;
    Ok(connection)
}

#[cfg(test)]
mod tests;
