//! A mutable slice divided into chunks.

/// A mutable slice cut into chunks that several threads take by index.
pub struct Chunks<T> {
    start: *mut T,
    len: usize,
    chunk_len: usize,
}

// SAFETY: chunks are disjoint, and `chunk` requires that each goes to one thread only.
unsafe impl<T: Send> Sync for Chunks<T> {}

impl<T> Chunks<T> {
    pub fn new(data: &mut [T], chunk_len: usize) -> Chunks<T> {
        assert!(chunk_len > 0, "a chunk has at least one element");
        Chunks { start: data.as_mut_ptr(), len: data.len(), chunk_len }
    }

    pub fn count(&self) -> usize {
        self.len.div_ceil(self.chunk_len)
    }

    /// # Safety
    /// No chunk is taken again while it is in use, `i < count()`, and the slice outlives the use.
    #[allow(clippy::mut_from_ref, reason = "the chunks are disjoint; see the safety section")]
    pub unsafe fn chunk(&self, i: usize) -> &mut [T] {
        let begin = i * self.chunk_len;
        let len = self.chunk_len.min(self.len - begin);
        // SAFETY: `begin + len` lies within the slice, and the caller keeps the chunks disjoint.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(begin), len) }
    }
}
