//! Sorts the columns of a trace by track, then by start, the longer span first, so that parents precede children.

use rayon::prelude::*;

use crate::columns::TrackId;
use crate::messages;
use crate::trace::Trace;

pub fn sort(trace: &mut Trace) {
    let host = &mut trace.host;
    let order = by_track_and_start(trace.tracks.len(), &host.track, &host.start, &host.duration);
    if let Some(order) = order {
        permute(&mut host.name, &order);
        permute(&mut host.category, &order);
        permute(&mut host.track, &order);
        permute(&mut host.start, &order);
        permute(&mut host.duration, &order);
        permute(&mut host.id, &order);
        permute(&mut host.sequence, &order);
        permute(&mut host.dims, &order);
        permute(&mut host.types, &order);
        permute(&mut host.concrete, &order);
        permute(&mut host.stated, &order);
    }
    let device = &mut trace.device;
    let order = by_track_and_start(trace.tracks.len(), &device.track, &device.start, &device.duration);
    if let Some(order) = order {
        permute(&mut device.name, &order);
        permute(&mut device.category, &order);
        permute(&mut device.track, &order);
        permute(&mut device.start, &order);
        permute(&mut device.duration, &order);
        permute(&mut device.correlation, &order);
        permute(&mut device.external, &order);
        permute(&mut device.bytes, &order);
        permute(&mut device.grid, &order);
        permute(&mut device.block, &order);
        permute(&mut device.occupancy, &order);
    }
    messages::sort(&mut trace.messages);
    trace.counters.sort_by_key(|sample| sample.time);
    let memory = &mut trace.memory;
    if !memory.time.is_sorted() {
        let mut order: Vec<u32> = (0..memory.time.len() as u32).collect();
        order.sort_by_key(|&index| memory.time[index as usize]);
        permute(&mut memory.time, &order);
        permute(&mut memory.track, &order);
        permute(&mut memory.address, &order);
        permute(&mut memory.bytes, &order);
        permute(&mut memory.allocated, &order);
        permute(&mut memory.reserved, &order);
        permute(&mut memory.device, &order);
    }
}

/// The order in which rows should stand; `None` if they already do.
fn by_track_and_start(tracks: usize, track: &[TrackId], start: &[i64], duration: &[i64]) -> Option<Vec<u32>> {
    let key = |index: usize| (start[index], std::cmp::Reverse(duration[index]));
    let in_order = |index: usize| (track[index - 1], key(index - 1)) <= (track[index], key(index));
    if (1..track.len()).all(in_order) {
        return None;
    }
    // Rows per track, in file order: long runs are already sorted, which makes the stable sort fast.
    let mut counts = vec![0usize; tracks];
    track.iter().for_each(|track| counts[track.0 as usize] += 1);
    let mut rows: Vec<Vec<u32>> = counts.into_iter().map(Vec::with_capacity).collect();
    for (index, track) in track.iter().enumerate() {
        rows[track.0 as usize].push(index as u32);
    }
    rows.par_iter_mut().for_each(|rows| rows.sort_by_key(|&index| key(index as usize)));
    Some(rows.concat())
}

fn permute<T: Copy>(column: &mut Vec<T>, order: &[u32]) {
    *column = order.iter().map(|&index| column[index as usize]).collect();
}
