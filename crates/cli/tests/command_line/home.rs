//! A home with saved peaks of this machine.

#[path = "../common/made_up_peaks.rs"]
mod made_up_peaks;

use crate::place::Place;
use headroom_record::atomic::write_json;
use headroom_record::device::{DEVICE_FILE, DeviceRecord};
use made_up_peaks::made_up_peaks;
use std::fs;

pub fn place_with_peaks() -> Place {
    place_with(made_up_peaks())
}

/// The same for commands with `--threads`, which ask for the peaks of so many.
pub fn place_with_peaks_on(threads: u64) -> Place {
    place_with(DeviceRecord { threads, ..made_up_peaks() })
}

fn place_with(peaks: DeviceRecord) -> Place {
    let place = Place::new();
    fs::create_dir_all(place.path("home")).unwrap();
    write_json(&place.path("home").join(DEVICE_FILE), &peaks).unwrap();
    place
}
