//! Collectives over all ranks: all-reduce, reduce-scatter, all-gather.
//!
//! An all-reduce takes two rounds. In the first, every rank sends each other rank its shard of all tensors, and sums
//! the shards it receives in rank order; in the second, it sends the sum to all. Each byte travels twice, as in a ring,
//! and the rank that has not sent is known by number.

use super::error::RanksError;
use super::mpi::Request;
use super::shared::Shared;
use super::transfer::{Kind, Place, Transfer};
use super::waiting::{Line, wait};
use headroom_graph::ops::collective::shard_elements;
use headroom_graph::{Graph, Node, Op, ValueId};

/// The shards of all tensors for every rank, and those received from every rank.
#[derive(Default)]
pub struct Staging {
    out: Vec<f32>,
    into: Vec<f32>,
    requests: Vec<Request>,
}

/// Elements that the largest exchange of a plan needs beside the arena.
pub fn staging_elements(graph: &Graph) -> usize {
    let need = |node: &Node| {
        let (ranks, tensors) = match node.op {
            Op::AllReduce(op) => (op.ranks, node.inputs.len()),
            Op::ReduceScatter(op) => (op.ranks, node.inputs.len()),
            Op::AllGather(op) => (op.ranks, op.tensors),
            _ => return 0,
        };
        let shard = |id: &ValueId| shard_elements(graph.ty(*id).elements(), ranks);
        if ranks > 1 { 2 * ranks * node.inputs[..tensors].iter().map(shard).sum::<usize>() } else { 0 }
    };
    graph.nodes().iter().map(need).max().unwrap_or(0)
}

pub fn exchange(
    line: &mut Line,
    shared: &Shared,
    transfer: &Transfer,
    staging: &mut Staging,
) -> Result<(), RanksError> {
    let (rank, size) = (line.world.rank, line.world.size);
    let shards: Vec<usize> = transfer.whole().iter().map(|place| shard_elements(place.elements, size)).collect();
    let shard: usize = shards.iter().sum();
    for room in [&mut staging.out, &mut staging.into] {
        // Grows only in the first step.
        if room.len() < size * shard {
            room.resize(size * shard, 0.0);
        }
    }
    let own = rank * shard..(rank + 1) * shard;
    shared.touch(|| {
        // SAFETY: the starter of the exchange promised that its tensors live until then and nothing else writes them.
        unsafe {
            match transfer.kind {
                Kind::AllGather => take_shards(&transfer.from, &mut staging.out[own.clone()]),
                Kind::AllReduce { .. } | Kind::ReduceScatter => pack(&transfer.from, &shards, size, &mut staging.out),
            }
        }
    })?;
    if transfer.kind != Kind::AllGather {
        // Sends each rank its shard.
        round(line, staging, shard, |peer| peer)?;
        staging.into[own.clone()].copy_from_slice(&staging.out[own.clone()]);
        let scale = if transfer.kind == (Kind::AllReduce { mean: true }) { 1.0 / size as f32 } else { 1.0 };
        for (at, sum) in staging.out[own.clone()].iter_mut().enumerate() {
            let all: f32 = (1..size).fold(staging.into[at], |sum, peer| sum + staging.into[peer * shard + at]);
            *sum = all * scale;
        }
    }
    if transfer.kind != Kind::ReduceScatter {
        // Sends this rank's shard to all.
        round(line, staging, shard, |_| rank)?;
        staging.into[own.clone()].copy_from_slice(&staging.out[own.clone()]);
    }
    shared.touch(|| {
        // SAFETY: the starter of the exchange promised that its tensors live until then and nothing else uses them.
        unsafe {
            match transfer.kind {
                Kind::ReduceScatter => give_shards(&staging.out[own], &transfer.to),
                Kind::AllReduce { .. } | Kind::AllGather => unpack(&staging.into, &shards, size, &transfer.to),
            }
        }
    })
}

/// Sends every other rank the shard that `which` selects, and receives one from each.
fn round(
    line: &mut Line,
    staging: &mut Staging,
    shard: usize,
    which: impl Fn(usize) -> usize,
) -> Result<(), RanksError> {
    let part = |number: usize| number * shard..(number + 1) * shard;
    let (world, tag) = (line.world, line.tag());
    for peer in (0..world.size).filter(|peer| *peer != world.rank) {
        // SAFETY: both buffers stay in place until all requests are done: on an error they are leaked.
        unsafe {
            world.receive(peer, tag, bytes_mut(&mut staging.into[part(peer)]), &mut staging.requests)?;
            world.send(peer, tag, bytes(&staging.out[part(which(peer))]), &mut staging.requests)?;
        }
    }
    wait(line, &mut staging.requests)
}

/// Copies the shards of all tensors, one after the other.
///
/// # Safety
/// The places can be read.
unsafe fn take_shards(from: &[Place], to: &mut [f32]) {
    let mut first = 0;
    for place in from {
        // SAFETY: as the caller promises.
        let shard = unsafe { std::slice::from_raw_parts(place.start, place.elements) };
        to[first..first + place.elements].copy_from_slice(shard);
        first += place.elements;
    }
}

/// The inverse of `take_shards`.
///
/// # Safety
/// The places can be written.
unsafe fn give_shards(from: &[f32], to: &[Place]) {
    let mut first = 0;
    for place in to {
        // SAFETY: as the caller promises.
        let shard = unsafe { std::slice::from_raw_parts_mut(place.start, place.elements) };
        shard.copy_from_slice(&from[first..first + place.elements]);
        first += place.elements;
    }
}

/// Packs every rank's shard of each tensor, grouped by rank; the last shard is padded with zeros.
///
/// # Safety
/// The places can be read.
unsafe fn pack(from: &[Place], shards: &[usize], size: usize, out: &mut [f32]) {
    let shard: usize = shards.iter().sum();
    let mut first = 0;
    for (place, own) in from.iter().zip(shards) {
        for rank in 0..size {
            let to = &mut out[rank * shard + first..][..*own];
            let start = (rank * own).min(place.elements);
            let count = (place.elements - start).min(*own);
            // SAFETY: `start + count` is at most the tensor's elements.
            to[..count].copy_from_slice(unsafe { std::slice::from_raw_parts(place.start.add(start), count) });
            to[count..].fill(0.0);
        }
        first += own;
    }
}

/// The inverse of `pack`.
///
/// # Safety
/// The places can be written.
unsafe fn unpack(all: &[f32], shards: &[usize], size: usize, to: &[Place]) {
    let shard: usize = shards.iter().sum();
    let mut first = 0;
    for (place, own) in to.iter().zip(shards) {
        for rank in 0..size {
            let start = (rank * own).min(place.elements);
            let count = (place.elements - start).min(*own);
            // SAFETY: as in `pack`.
            let piece = unsafe { std::slice::from_raw_parts_mut(place.start.add(start), count) };
            piece.copy_from_slice(&all[rank * shard + first..][..count]);
        }
        first += own;
    }
}

fn bytes(data: &[f32]) -> &[u8] {
    // SAFETY: any bytes of a float are bytes, and the length is that of the same memory.
    unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), size_of_val(data)) }
}

fn bytes_mut(data: &mut [f32]) -> &mut [u8] {
    // SAFETY: any bytes are a float, and the length is that of the same memory, borrowed alone.
    unsafe { std::slice::from_raw_parts_mut(data.as_mut_ptr().cast(), size_of_val(data)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_cut_into_equal_shards_and_put_together_again() {
        let mut tensors = [vec![1.0f32, 2.0, 3.0, 4.0, 5.0], vec![6.0], vec![7.0, 8.0, 9.0, 10.0]];
        let places: Vec<Place> =
            tensors.iter_mut().map(|data| Place { start: data.as_mut_ptr(), elements: data.len() }).collect();
        for size in [2, 3, 4] {
            let shards: Vec<usize> = places.iter().map(|place| shard_elements(place.elements, size)).collect();
            let mut all = vec![f32::NAN; size * shards.iter().sum::<usize>()];
            // SAFETY: the tensors live.
            unsafe { pack(&places, &shards, size, &mut all) };
            assert!(all.iter().all(|x| x.is_finite()), "padded with zeros");
            assert_eq!(all.iter().sum::<f32>(), 55.0);
            let mut back = [vec![0.0f32; 5], vec![0.0], vec![0.0; 4]];
            let to: Vec<Place> =
                back.iter_mut().map(|data| Place { start: data.as_mut_ptr(), elements: data.len() }).collect();
            // SAFETY: the tensors live, and each place has as many elements as its tensor.
            unsafe { unpack(&all, &shards, size, &to) };
            assert_eq!(back, tensors, "{size} ranks");
        }
    }
}
