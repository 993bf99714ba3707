//! The one block of memory that all values of a run live in.

use super::frame::Slot;
use headroom_graph::DType;
use std::io;

/// Zeroed memory straight from the system: pages are real only once touched, and huge where the system allows it, which
/// spares the address translation that large products would otherwise wait for.
pub struct Arena {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the memory belongs to the arena alone; who reads and writes it is up to the (unsafe) users of its slots.
unsafe impl Send for Arena {}

impl Arena {
    pub fn new(bytes: usize) -> io::Result<Arena> {
        let start = system::reserve(bytes.max(1))?;
        Ok(Arena { start, bytes })
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The place of a value; panics where the plan and the arena disagree.
    pub fn slot(&self, offset: usize, elements: usize, dtype: DType) -> Slot {
        assert!(offset + elements * dtype.bytes() <= self.bytes, "a value lies outside of the arena");
        // SAFETY: just checked to lie within the allocation.
        Slot::new(unsafe { self.start.add(offset) }, elements, dtype)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: reserved in `new` with the same size, and slots do not outlive their device.
        unsafe { system::release(self.start, self.bytes.max(1)) }
    }
}

#[cfg(unix)]
mod system {
    use std::{io, ptr};

    pub fn reserve(bytes: usize) -> io::Result<*mut u8> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping touches nothing that exists.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A request, not a need: without huge pages everything works, a little slower.
        // SAFETY: the range was mapped just now.
        #[cfg(target_os = "linux")]
        unsafe {
            libc::madvise(start, bytes, libc::MADV_HUGEPAGE);
        }
        Ok(start.cast())
    }

    /// # Safety
    /// `start` and `bytes` are those of an earlier [`reserve`], and nothing uses the memory any more.
    pub unsafe fn release(start: *mut u8, bytes: usize) {
        // SAFETY: as the caller promises.
        unsafe { libc::munmap(start.cast(), bytes) };
    }
}

#[cfg(not(unix))]
mod system {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::io;

    fn layout(bytes: usize) -> io::Result<Layout> {
        Layout::from_size_align(bytes, 4096).map_err(io::Error::other)
    }

    pub fn reserve(bytes: usize) -> io::Result<*mut u8> {
        // SAFETY: the size is at least one byte.
        let start = unsafe { alloc_zeroed(layout(bytes)?) };
        if start.is_null() { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(start) }
    }

    /// # Safety
    /// `start` and `bytes` are those of an earlier [`reserve`], and nothing uses the memory any more.
    pub unsafe fn release(start: *mut u8, bytes: usize) {
        if let Ok(layout) = layout(bytes) {
            // SAFETY: as the caller promises.
            unsafe { dealloc(start, layout) }
        }
    }
}
