//! Reads and writes rows of the registry.

use super::{RegistryError, process};
use headroom_record::registry::{Headline, RunRow, RunStart, RunStatus};
use headroom_record::timestamp::utc_iso;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::de::DeserializeOwned;
use std::time::SystemTime;

/// Restricts a list of runs; empty by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    pub command: Option<String>,
    pub status: Option<RunStatus>,
    pub size: Option<String>,
    /// The pass list, or part of its name.
    pub version: Option<String>,
    /// Only children of this run.
    pub parent: Option<i64>,
    pub limit: Option<usize>,
}

pub fn insert(connection: &Connection, start: &RunStart) -> rusqlite::Result<i64> {
    let (host, process) = process::own();
    connection.execute(
        "INSERT INTO runs (command, status, started, folder, directory, size, version, device, machine, threads,
            headroom_version, command_line, configuration, figures, host, process, parent)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, '{}', ?14, ?15, ?16)",
        params![
            start.command,
            RunStatus::Running.name(),
            start.started,
            start.folder,
            start.directory,
            start.size,
            start.version,
            start.device,
            start.machine,
            start.threads as i64,
            start.headroom_version,
            to_json(&start.command_line)?,
            start.configuration.to_string(),
            host,
            process,
            start.parent,
        ],
    )?;
    Ok(connection.last_insert_rowid())
}

pub fn end(
    connection: &mut Connection,
    id: i64,
    status: RunStatus,
    figures: &Headline,
    step_seconds: &[f64],
    error: Option<&str>,
) -> rusqlite::Result<bool> {
    let transaction = connection.transaction()?;
    let rows = transaction.execute(
        "UPDATE runs SET status = ?2, ended = ?3, figures = ?4, error = ?5 WHERE id = ?1",
        params![id, status.name(), utc_iso(SystemTime::now()), to_json(figures)?, error],
    )?;
    if rows == 0 {
        return Ok(false);
    }
    if !step_seconds.is_empty() {
        transaction.execute(
            "INSERT OR REPLACE INTO step_times (run, seconds) VALUES (?1, ?2)",
            params![id, to_json(&step_seconds)?],
        )?;
    }
    transaction.commit()?;
    Ok(true)
}

/// Marks rows as interrupted that claim to be running but are not. A read-only database stays as it is.
pub fn settle(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("SELECT id, host, process FROM runs WHERE status = 'running'")?;
    let running = statement.query_map([], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, Option<String>>(1)?, row.get::<_, Option<String>>(2)?))
    })?;
    let running: Vec<_> = running.collect::<rusqlite::Result<_>>()?;
    for (id, host, process) in running {
        if process::is_alive(host.as_deref(), process.as_deref()) == Some(false) {
            // Only if it is still marked as running: it may have ended properly since it was read.
            let _ = connection.execute(
                "UPDATE runs SET status = 'interrupted', error = 'the process went away' WHERE id = ?1 AND status = 'running'",
                [id],
            );
        }
    }
    Ok(())
}

const COLUMNS: &str = "id, name, status, ended, error, command, command_line, directory, folder, size, version, \
    configuration, device, machine, threads, headroom_version, started, parent, figures";

pub fn list(connection: &Connection, filter: &Filter) -> rusqlite::Result<Vec<Result<RunRow, RegistryError>>> {
    let mut statement = connection.prepare(&format!(
        "SELECT {COLUMNS} FROM runs
         WHERE (?1 IS NULL OR command = ?1) AND (?2 IS NULL OR status = ?2) AND (?3 IS NULL OR size = ?3)
            AND (?4 IS NULL OR instr(version, ?4) > 0) AND (?5 IS NULL OR parent = ?5)
         ORDER BY id DESC LIMIT ?6"
    ))?;
    let limit = filter.limit.map_or(-1, |limit| limit as i64);
    let status = filter.status.map(RunStatus::name);
    let found = statement.query_map(
        params![filter.command, status, filter.size, filter.version, filter.parent, limit],
        |row| {
            let id = row.get(0)?;
            Ok(read(row).map_err(|error| RegistryError::Row { id, why: error.to_string() }))
        },
    )?;
    found.collect()
}

fn read(row: &Row) -> rusqlite::Result<RunRow> {
    let status: String = row.get(2)?;
    Ok(RunRow {
        id: row.get(0)?,
        name: row.get(1)?,
        status: RunStatus::named(&status)
            .ok_or_else(|| unreadable(2, format!("there is no status `{status}`").into()))?,
        ended: row.get(3)?,
        error: row.get(4)?,
        start: RunStart {
            command: row.get(5)?,
            command_line: from_json(row, 6)?,
            directory: row.get(7)?,
            folder: row.get(8)?,
            size: row.get(9)?,
            version: row.get(10)?,
            configuration: from_json(row, 11)?,
            device: row.get(12)?,
            machine: row.get(13)?,
            threads: row.get::<_, i64>(14)?.max(0) as u64,
            headroom_version: row.get(15)?,
            started: row.get(16)?,
            parent: row.get(17)?,
        },
        figures: from_json(row, 18)?,
    })
}

pub fn step_seconds(connection: &Connection, id: i64) -> rusqlite::Result<Vec<f64>> {
    let found = connection
        .query_row("SELECT seconds FROM step_times WHERE run = ?1", [id], |row| from_json(row, 0))
        .optional()?;
    Ok(found.unwrap_or_default())
}

pub fn named(connection: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    connection.query_row("SELECT id FROM runs WHERE name = ?1", [name], |row| row.get(0)).optional()
}

pub fn name(connection: &Connection, id: i64, name: Option<&str>) -> rusqlite::Result<()> {
    connection.execute("UPDATE runs SET name = ?2 WHERE id = ?1", params![id, name]).map(|_| ())
}

pub fn set_version(connection: &Connection, id: i64, version: &str) -> rusqlite::Result<()> {
    connection.execute("UPDATE runs SET version = ?2 WHERE id = ?1", params![id, version]).map(|_| ())
}

pub fn delete(connection: &Connection, id: i64) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM runs WHERE id = ?1", [id]).map(|_| ())
}

fn to_json(value: &impl serde::Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

fn from_json<T: DeserializeOwned>(row: &Row, column: usize) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text).map_err(|error| unreadable(column, error.into()))
}

fn unreadable(column: usize, why: Box<dyn std::error::Error + Send + Sync>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, why)
}
