//! Appends the columns of one fragment to those of another, with names and tracks renumbered.

use crate::columns::{DeviceSpans, HostSpans, MemoryEvents, NONE, TrackId};
use crate::names::NameId;

pub fn append_host(sum: &mut HostSpans, mut part: HostSpans, names: &[NameId], tracks: &[TrackId], first_stated: u32) {
    sum.name.extend(part.name.iter().map(|id| names[id.index()]));
    sum.category.append(&mut part.category);
    sum.track.extend(part.track.iter().map(|id| tracks[id.0 as usize]));
    sum.start.append(&mut part.start);
    sum.duration.append(&mut part.duration);
    sum.id.append(&mut part.id);
    sum.sequence.append(&mut part.sequence);
    sum.dims.extend(part.dims.iter().map(|id| names[id.index()]));
    sum.types.extend(part.types.iter().map(|id| names[id.index()]));
    sum.concrete.extend(part.concrete.iter().map(|id| names[id.index()]));
    sum.stated.extend(part.stated.iter().map(|&row| if row == NONE { NONE } else { first_stated + row }));
}

pub fn append_device(sum: &mut DeviceSpans, mut part: DeviceSpans, names: &[NameId], tracks: &[TrackId]) {
    sum.name.extend(part.name.iter().map(|id| names[id.index()]));
    sum.category.append(&mut part.category);
    sum.track.extend(part.track.iter().map(|id| tracks[id.0 as usize]));
    sum.start.append(&mut part.start);
    sum.duration.append(&mut part.duration);
    sum.correlation.append(&mut part.correlation);
    sum.external.append(&mut part.external);
    sum.bytes.append(&mut part.bytes);
    sum.grid.append(&mut part.grid);
    sum.block.append(&mut part.block);
    sum.occupancy.append(&mut part.occupancy);
}

pub fn append_memory(sum: &mut MemoryEvents, mut part: MemoryEvents, tracks: &[TrackId]) {
    sum.time.append(&mut part.time);
    sum.track.extend(part.track.iter().map(|id| tracks[id.0 as usize]));
    sum.address.append(&mut part.address);
    sum.bytes.append(&mut part.bytes);
    sum.allocated.append(&mut part.allocated);
    sum.reserved.append(&mut part.reserved);
    sum.device.append(&mut part.device);
}
