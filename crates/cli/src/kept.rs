//! What the command keeps between runs, in the user's cache folder: the measured peaks of this machine.

use headroom_record::atomic::{FileError, write_json};
use headroom_record::device::{DEVICE_FILE, DeviceRecord};
use std::env;
use std::fs;
use std::path::PathBuf;

/// `HEADROOM_HOME`, else the system's cache folder for this user.
pub fn folder() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("HEADROOM_HOME")
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("headroom")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/headroom")))
}

pub fn device_file() -> Option<PathBuf> {
    folder().map(|folder| folder.join(DEVICE_FILE))
}

/// The kept record; none where there is none, or it is of another layout or machine.
pub fn load_device(cpu_name: &str) -> Option<DeviceRecord> {
    let record: DeviceRecord = serde_json::from_slice(&fs::read(device_file()?).ok()?).ok()?;
    (record.schema_version == headroom_record::SCHEMA_VERSION && record.name == cpu_name).then_some(record)
}

/// Where it was kept; none where there is no folder for it.
pub fn save_device(record: &DeviceRecord) -> Result<Option<PathBuf>, FileError> {
    let Some(path) = device_file() else { return Ok(None) };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(FileError::new("make the folder", folder))?;
    }
    write_json(&path, record)?;
    Ok(Some(path))
}
