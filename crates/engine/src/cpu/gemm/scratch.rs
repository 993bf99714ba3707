//! The memory that products pack their operands into: allocated once, with a size known in advance.

use std::alloc::{Layout, handle_alloc_error};
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::kernel::{DEPTH_MAX, PACKED_COLUMN_STRIDE, PACKED_ROW_STRIDE, ROWS_MAX};
use crate::cpu::arena::Arena;
use crate::cpu::pool::Padded;

/// Floats of packed right operand held at once: 4 MiB, of which one half is read while the other is packed.
const RIGHT_FLOATS: usize = 1024 * 1024;
/// Smallest part of it that a thread gets when every thread works on its own product.
const RIGHT_FLOATS_A_THREAD: usize = 64 * 1024;
/// Packed left operand per thread: 1 MiB holds a panel by rows, some panels of the full depth by columns, or the panels
/// of an item with split numbers.
pub(super) const LEFT_FLOATS: usize = 256 * 1024;
const _: () = assert!(LEFT_FLOATS >= ROWS_MAX * PACKED_ROW_STRIDE && LEFT_FLOATS >= DEPTH_MAX * PACKED_COLUMN_STRIDE);

/// Packing buffers for products on up to `threads` threads. Only one product uses them at a time, and others wait, so a
/// product that is started inside a pool's job needs its own scratch.
pub struct Scratch {
    buffers: Mutex<Buffers>,
    threads: usize,
}

impl Scratch {
    /// The memory that [`Scratch::new`] allocates.
    pub const fn bytes(threads: usize) -> usize {
        (right_floats(threads) + threads * LEFT_FLOATS) * size_of::<f32>() + threads * size_of::<Padded<AtomicUsize>>()
    }

    pub fn new(threads: usize) -> Scratch {
        let threads = threads.max(1);
        let bytes = (right_floats(threads) + threads * LEFT_FLOATS) * size_of::<f32>();
        let Ok(arena) = Arena::new(bytes) else {
            handle_alloc_error(Layout::new::<u8>());
        };
        let start = arena.start().cast::<f32>();
        let claims = (0..threads).map(|_| Padded(AtomicUsize::new(0))).collect();
        Scratch { buffers: Mutex::new(Buffers { start, threads, claims, _arena: arena }), threads }
    }

    pub(super) fn threads(&self) -> usize {
        self.threads
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Buffers> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Buffers {
    start: *mut f32,
    threads: usize,
    /// The memory that contains `start`.
    _arena: Arena,
    /// The next unclaimed item of each thread's share of a product.
    pub(super) claims: Box<[Padded<AtomicUsize>]>,
}

// SAFETY: the buffers own the memory.
unsafe impl Send for Buffers {}
// SAFETY: sharing only hands out addresses; who writes where is up to the (unsafe) users of the pointers.
unsafe impl Sync for Buffers {}

/// A piece of the buffers: `floats` values from `start`.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) start: *mut f32,
    pub(super) floats: usize,
}

// SAFETY: as for the buffers it is a piece of.
unsafe impl Send for Piece {}
// SAFETY: sharing only hands out the address; who writes where is up to the (unsafe) users of the pointer.
unsafe impl Sync for Piece {}

impl Buffers {
    /// The packed right operand of a product on all threads.
    pub(super) fn shared_right(&self) -> Piece {
        Piece { start: self.start, floats: right_floats(self.threads) }
    }

    /// The packed right operand of a product that only `worker` computes.
    pub(super) fn own_right(&self, worker: usize) -> Piece {
        let floats = right_floats(self.threads) / self.threads / 64 * 64;
        // SAFETY: `worker < threads`, so the piece ends before the left panels begin.
        Piece { start: unsafe { self.start.add(worker * floats) }, floats }
    }

    /// The packed left operand of `worker`.
    pub(super) fn left(&self, worker: usize) -> *mut f32 {
        // SAFETY: `worker < threads`, so this is within the allocation.
        unsafe { self.start.add(right_floats(self.threads) + worker * LEFT_FLOATS) }
    }
}

const fn right_floats(threads: usize) -> usize {
    max(RIGHT_FLOATS, threads * RIGHT_FLOATS_A_THREAD)
}

const fn max(left: usize, right: usize) -> usize {
    if left > right { left } else { right }
}
