//! A home with saved peaks of this machine.

#[path = "../common/made_up_peaks.rs"]
mod made_up_peaks;

use crate::place::Place;
use headroom_record::atomic::write_json;
use headroom_record::device::DEVICE_FILE;
use made_up_peaks::made_up_peaks;
use std::fs;

pub fn place_with_peaks() -> Place {
    let place = Place::new();
    fs::create_dir_all(place.path("home")).unwrap();
    write_json(&place.path("home").join(DEVICE_FILE), &made_up_peaks()).unwrap();
    place
}
