//! A registry in a read-only location, read as it is.

use super::{RegistryError, schema};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::fs;
use std::path::Path;

/// Whether opening failed because of the database's location, not its contents.
pub fn is_read_only_location(error: &RegistryError) -> bool {
    let RegistryError::Database { source, .. } = error else { return false };
    matches!(
        source.sqlite_error_code(),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied)
    )
}

/// Opens the database as immutable: otherwise even a reader writes next to a database with a write-ahead log. This
/// would miss data that is only in the log, so a database with a log is not opened (`None`).
pub fn open(path: &Path) -> Option<Result<Connection, RegistryError>> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let has_log = fs::metadata(Path::new(&log)).is_ok_and(|log| log.len() > 0);
    if has_log || !path.is_file() {
        return None;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(format!("file:{}?immutable=1", escaped(path)), flags).ok()?;
    Some(schema::check_readable(&connection, path).map(|()| connection))
}

/// Percent-encodes every byte that may be special in a URI.
fn escaped(path: &Path) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte);
    let bytes = path.as_os_str().as_encoded_bytes().iter();
    bytes.map(|&byte| if keep(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::start;
    use super::super::{Filter, REGISTRY_FILE, Registry};
    use super::*;

    #[test]
    fn a_database_is_read_as_it_lies_and_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a folder? 100%#").join(REGISTRY_FILE);
        let registry = Registry::open_at(&path).unwrap();
        registry.begin(&start("tiny")).unwrap();
        assert!(open(&path).is_none(), "the log has what the database has not");
        drop(registry);
        let connection = open(&path).unwrap().unwrap();
        let registry = Registry { connection, path };
        assert_eq!(registry.list(&Filter::default()).unwrap().len(), 1);
        let refused = registry.begin(&start("tiny")).unwrap_err();
        assert!(is_read_only_location(&refused) && refused.to_string().contains("set HEADROOM_HOME"), "{refused}");
    }

    #[test]
    fn an_older_layout_that_cannot_be_migrated_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(REGISTRY_FILE);
        drop(schema::make_older(&path, 1));
        assert!(matches!(open(&path), Some(Err(RegistryError::Older { found: 1, .. }))));
    }
}
