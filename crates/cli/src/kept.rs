//! Records that the command keeps between runs in the user's cache folder: the best peaks ever measured on this machine
//! and on each GPU.

use headroom_engine::cpu::isa::Isa;
use headroom_record::atomic::{FileError, write_json};
use headroom_record::device::{DEVICE_FILE, DeviceRecord};
use headroom_record::link::{Between, LinkRecord};
use headroom_record::reading;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// `HEADROOM_HOME`, else the system's cache folder for this user.
pub fn folder() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("HEADROOM_HOME")
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("headroom")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/headroom")))
}

/// A device's name, made safe for a file name.
pub fn slug(device: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    device.chars().map(plain).collect()
}

/// The file of a GPU, by its name.
fn gpu_file(name: &str) -> Option<PathBuf> {
    Some(folder()?.join(format!("device-{}.json", slug(name))))
}

/// The saved record of a GPU; `None` if there is none, or if it has another layout or is of another part.
pub fn load_gpu(name: &str) -> Option<DeviceRecord> {
    read(&gpu_file(name)?).filter(|record| record.kind == "cuda" && record.name == name)
}

/// The file for a number of threads: one for the default number, and one for each other number.
fn device_file(threads: u64) -> Option<PathBuf> {
    let own = folder()?.join(DEVICE_FILE);
    let other = own.with_file_name(format!("device-{threads}-threads.json"));
    let usual = read(&own).is_none_or(|record| record.threads == threads);
    Some(if usual { own } else { other })
}

/// Reads a record. Records measured on a busy machine, which earlier versions saved, are ignored.
fn read(path: &Path) -> Option<DeviceRecord> {
    let record: DeviceRecord = serde_json::from_slice(&reading::read(path, reading::RECORD).ok()?).ok()?;
    is_to_keep(&record).then_some(record)
}

/// The saved record; `None` if there is none, or if it has another layout, machine, instruction set level or number of
/// threads.
pub fn load_device(cpu_name: &str, threads: usize) -> Option<DeviceRecord> {
    let record = read(&device_file(threads as u64)?)?;
    let same = record.name == cpu_name && record.instruction_set == Isa::detect().to_string();
    (same && record.threads == threads as u64).then_some(record)
}

/// Saves the better of this record and the saved one, figure by figure. Returns the record that is saved now, and its
/// path. The path is `None` if there is no cache folder, or if the record is unreliable and there is no saved one.
pub fn save_device(record: DeviceRecord) -> Result<(DeviceRecord, Option<PathBuf>), FileError> {
    let path = if record.kind == "cuda" { gpu_file(&record.name) } else { device_file(record.threads) };
    let Some(path) = path else { return Ok((record, None)) };
    let best = match (read(&path), is_to_keep(&record)) {
        // A measurement from a quiet machine is kept as it is.
        (Some(before), false) => return Ok((before, Some(path))),
        (None, false) => return Ok((record, None)),
        (Some(before), true) => record.best_of(&before),
        (None, true) => record,
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(FileError::new("make the folder", folder))?;
    }
    write_json(&path, &best)?;
    Ok((best, Some(path)))
}

/// Whether the record has this layout and is reliable.
fn is_to_keep(record: &DeviceRecord) -> bool {
    record.schema_version == headroom_record::SCHEMA_VERSION && record.doubt().is_none()
}

/// Saves a measurement of messages between ranks; returns its path if there is a cache folder.
pub fn save_link(between: Between, record: &LinkRecord) -> Result<Option<PathBuf>, FileError> {
    let Some(folder) = folder() else { return Ok(None) };
    fs::create_dir_all(&folder).map_err(FileError::new("make the folder", &folder))?;
    let path = folder.join(LinkRecord::file(between, record.ranks));
    write_json(&path, record)?;
    Ok(Some(path))
}

/// The measurement between this many ranks, else between the nearest number of ranks, which the record states.
pub fn load_link(between: Between, ranks: usize) -> Option<LinkRecord> {
    let folder = folder()?;
    let names = fs::read_dir(&folder).ok()?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let nearest = names
        .filter_map(|name| LinkRecord::ranks_of(between, &name))
        .min_by_key(|other| (other.abs_diff(ranks as u64), *other))?;
    let bytes = reading::read(&folder.join(LinkRecord::file(between, nearest)), reading::RECORD).ok()?;
    let record: LinkRecord = serde_json::from_slice(&bytes).ok()?;
    (record.schema_version == headroom_record::SCHEMA_VERSION && record.ranks == nearest).then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_a_busy_machine_is_neither_kept_nor_read() {
        let quiet = DeviceRecord {
            schema_version: headroom_record::SCHEMA_VERSION,
            timestamp: "2026-11-15T02:10:00Z".into(),
            kind: "cpu".into(),
            name: "a CPU".into(),
            threads: 2,
            instruction_set: "avx512".into(),
            memory_total_mb: 16384.0,
            gemm_flops: Vec::new(),
            memory_bandwidth_bytes: 4.8e9,
            call_seconds: 1e-6,
            replay_seconds: None,
            datasheet: None,
            other_load_percent: None,
            repeat_spread_percent: None,
            provenance: DeviceRecord::provenance(),
        };
        let folder = tempfile::tempdir().unwrap();
        for (record, is_kept) in [
            (quiet.clone(), true),
            (quiet.clone().with_other_load(3.0).with_repeat_spread(4.0), true),
            (quiet.clone().with_other_load(60.0), false),
            (quiet.with_repeat_spread(70.0), false),
        ] {
            assert_eq!(is_to_keep(&record), is_kept);
            let path = folder.path().join(DEVICE_FILE);
            write_json(&path, &record).unwrap();
            assert_eq!(read(&path).is_some(), is_kept);
        }
    }
}
