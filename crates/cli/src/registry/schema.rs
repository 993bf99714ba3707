//! The registry's schema and its migrations.

use super::RegistryError;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use std::path::Path;
use std::time::{Duration, Instant};

/// Each migration takes the schema from its index to the next; `PRAGMA user_version` counts the applied ones. Never
/// edit a released one: add another.
const MIGRATIONS: [&str; 2] = [
    "CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT UNIQUE,
        command TEXT NOT NULL,
        status TEXT NOT NULL,
        started TEXT NOT NULL,
        ended TEXT,
        error TEXT,
        folder TEXT,
        directory TEXT,
        size TEXT,
        version TEXT,
        device TEXT NOT NULL,
        machine TEXT NOT NULL,
        threads INTEGER NOT NULL,
        headroom_version TEXT NOT NULL,
        command_line TEXT NOT NULL,
        configuration TEXT NOT NULL,
        figures TEXT NOT NULL,
        host TEXT,
        process TEXT
    );",
    // Every step's time, so that two runs can be compared by interval long after their folders are gone; and the runs
    // of a study.
    "ALTER TABLE runs ADD COLUMN parent INTEGER;
    CREATE TABLE step_times (run INTEGER PRIMARY KEY REFERENCES runs(id) ON DELETE CASCADE, seconds TEXT NOT NULL);
    CREATE INDEX runs_by_parent ON runs(parent);",
];

pub const NEWEST: i64 = MIGRATIONS.len() as i64;

/// Brings an empty or older database to the newest schema, and refuses a newer one.
pub fn prepare(connection: &mut Connection, path: &Path) -> Result<(), RegistryError> {
    let failed = |source| RegistryError::Database { path: path.to_path_buf(), source };
    let check = |found: i64| match found > NEWEST {
        true => Err(RegistryError::Newer { path: path.to_path_buf(), found, known: NEWEST }),
        false => Ok(found),
    };
    // Checked before anything is changed: a newer file is left as it is.
    let found = check(version(connection).map_err(failed)?)?;
    write_ahead(connection).map_err(failed)?;
    connection.pragma_update(None, "foreign_keys", true).map_err(failed)?;
    // Every commit is on disk when it returns.
    connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
    if found == NEWEST {
        return Ok(());
    }
    // Another process may have migrated it already; the transaction excludes others.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let found = check(version(&transaction).map_err(failed)?)?;
    for migration in &MIGRATIONS[found.max(0) as usize..] {
        transaction.execute_batch(migration).map_err(failed)?;
    }
    transaction.pragma_update(None, "user_version", NEWEST).map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// Checks a database that cannot be migrated in place.
pub fn check_readable(connection: &Connection, path: &Path) -> Result<(), RegistryError> {
    let path = path.to_path_buf();
    match version(connection) {
        Ok(NEWEST) => Ok(()),
        Ok(found) if found < NEWEST => Err(RegistryError::Older { path, found, known: NEWEST }),
        Ok(found) => Err(RegistryError::Newer { path, found, known: NEWEST }),
        Err(source) => Err(RegistryError::Database { path, source }),
    }
}

/// Allows readers and a writer at the same time. Switching the mode does not wait for others by itself, so it is
/// retried. If a file system does not support it, the default journal stays and only waiting gets longer.
fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let until = Instant::now() + super::PATIENCE;
    loop {
        match connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())) {
            Err(error) if is_busy(&error) && Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            done => return done,
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// A database with an older schema, as an older headroom left it.
#[cfg(test)]
pub fn make_older(path: &Path, layout: usize) -> Connection {
    let connection = Connection::open(path).unwrap();
    for migration in &MIGRATIONS[..layout] {
        connection.execute_batch(migration).unwrap();
    }
    connection.pragma_update(None, "user_version", layout as i64).unwrap();
    connection
}
