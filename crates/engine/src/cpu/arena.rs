//! Memory mapped directly from the system: the single block that holds all values of a run, and the kernels' scratch.

use super::frame::Slot;
use headroom_graph::DType;
use std::io;
use std::ops::{Deref, DerefMut};

/// Zeroed memory mapped directly from the system. Pages are allocated only when touched, and are huge if the system
/// allows it, which saves TLB misses in large products.
pub struct Arena {
    start: *mut u8,
    bytes: usize,
    mapping: system::Mapping,
}

// SAFETY: the arena owns the memory; who reads and writes it is up to the (unsafe) users of its slots.
unsafe impl Send for Arena {}

impl Arena {
    pub fn new(bytes: usize) -> io::Result<Arena> {
        let (start, mapping) = system::reserve(bytes.max(1))?;
        Ok(Arena { start, bytes, mapping })
    }

    /// Page-aligned; aligned to a huge page if it is large enough.
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The slot of a value; panics if the plan and the arena disagree.
    pub fn slot(&self, offset: usize, elements: usize, dtype: DType) -> Slot {
        let end = elements.checked_mul(dtype.bytes()).and_then(|bytes| bytes.checked_add(offset));
        assert!(end.is_some_and(|end| end <= self.bytes), "a value lies outside of the arena");
        assert!(offset.is_multiple_of(dtype.bytes()), "a value of the arena is aligned");
        // SAFETY: just checked to lie within the allocation.
        Slot::new(unsafe { self.start.add(offset) }, elements, dtype)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: reserved in `new`, and slots do not outlive their device.
        unsafe { system::release(&self.mapping) }
    }
}

/// Floats for a kernel's own use, initially zero. Products read them by columns, one page per step: with small pages
/// that takes twice as long.
pub struct Room {
    arena: Arena,
    floats: usize,
}

impl Room {
    pub fn new(floats: usize) -> io::Result<Room> {
        let bytes = floats.checked_mul(size_of::<f32>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Room { arena: Arena::new(bytes)?, floats })
    }
}

impl Deref for Room {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: the arena is as long, zeroed, aligned to pages, and lent out through this room only.
        unsafe { std::slice::from_raw_parts(self.arena.start.cast(), self.floats) }
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: the arena is as long, zeroed, aligned to pages, and `&mut self` is the only way to it meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.arena.start.cast(), self.floats) }
    }
}

#[cfg(all(unix, not(miri)))]
mod system {
    use std::{io, ptr};

    pub struct Mapping {
        base: *mut libc::c_void,
        bytes: usize,
    }

    const HUGE_PAGE: usize = 2 << 20;

    /// Returns the start of the memory, and the mapping to release.
    pub fn reserve(bytes: usize) -> io::Result<(*mut u8, Mapping)> {
        // The system aligns huge pages to their own size; skipped addresses cost nothing.
        let slack = if bytes >= HUGE_PAGE / 2 { HUGE_PAGE } else { 0 };
        let mapped = bytes.checked_add(slack).ok_or(io::ErrorKind::OutOfMemory)?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping touches nothing that exists.
        let base = unsafe { libc::mmap(ptr::null_mut(), mapped, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let skip = if slack > 0 { (base as usize).next_multiple_of(HUGE_PAGE) - base as usize } else { 0 };
        let start = base.cast::<u8>().wrapping_add(skip);
        // Only a hint: without huge pages everything works, a little slower.
        // SAFETY: the range was mapped just now.
        #[cfg(target_os = "linux")]
        unsafe {
            libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE);
        }
        Ok((start, Mapping { base, bytes: mapped }))
    }

    /// # Safety
    /// The mapping is of an earlier [`reserve`], and nothing uses the memory any more.
    pub unsafe fn release(mapping: &Mapping) {
        // SAFETY: as the caller promises.
        unsafe { libc::munmap(mapping.base, mapping.bytes) };
    }
}

/// Also used under Miri, which has no huge pages.
#[cfg(any(not(unix), miri))]
mod system {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::io;

    fn layout(bytes: usize) -> io::Result<Layout> {
        Layout::from_size_align(bytes, 4096).map_err(io::Error::other)
    }

    pub struct Mapping {
        start: *mut u8,
        bytes: usize,
    }

    pub fn reserve(bytes: usize) -> io::Result<(*mut u8, Mapping)> {
        // SAFETY: the size is at least one byte.
        let start = unsafe { alloc_zeroed(layout(bytes)?) };
        if start.is_null() { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok((start, Mapping { start, bytes })) }
    }

    /// # Safety
    /// The mapping is of an earlier [`reserve`], and nothing uses the memory any more.
    pub unsafe fn release(mapping: &Mapping) {
        if let Ok(layout) = layout(mapping.bytes) {
            // SAFETY: as the caller promises.
            unsafe { dealloc(mapping.start, layout) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn values_that_the_arena_cannot_hold_are_refused() {
        let arena = Arena::new(64).unwrap();
        let refused = |offset: usize, elements: usize| {
            catch_unwind(AssertUnwindSafe(|| arena.slot(offset, elements, DType::F32))).is_err()
        };
        assert!(refused(0, 17) && refused(64, 1) && refused(2, 1));
        assert!(refused(0, usize::MAX / 4 + 2), "a length that wraps to a small one");
        assert!(refused(usize::MAX - 3, 2), "an end that wraps to a small one");
        assert!(!refused(0, 16) && !refused(64, 0));
    }

    #[test]
    fn what_is_written_into_a_room_stays_and_the_rest_is_zero() {
        let mut room = Room::new(5).unwrap();
        room[4] = 3.0;
        assert_eq!(room[..], [0.0, 0.0, 0.0, 0.0, 3.0]);
        assert!(Room::new(usize::MAX / 2).is_err());
    }
}
