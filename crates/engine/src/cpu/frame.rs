//! What a kernel sees of the arena during one call: its inputs to read and its outputs to write.

use headroom_graph::DType;
use std::cell::Cell;

/// The place of one value in the arena.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    start: *mut u8,
    elements: usize,
    dtype: DType,
}

// SAFETY: a slot is an address; every access to what lies there goes through `unsafe` with its own promise.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

/// A Rust type that a buffer of some dtype holds.
pub trait Element: Copy {
    const DTYPE: DType;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}

impl Element for i32 {
    const DTYPE: DType = DType::I32;
}

impl Slot {
    /// The memory at `start` must be aligned for the dtype, as every buffer of a plan is.
    pub fn new(start: *mut u8, elements: usize, dtype: DType) -> Slot {
        Slot { start, elements, dtype }
    }

    /// # Safety
    /// The arena lives, and nothing else touches this value meanwhile.
    pub unsafe fn write<T: Element>(&self, first: usize, data: &[T]) {
        self.check::<T>(first, data.len());
        // SAFETY: as the caller promises; sizes were checked.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.start.cast::<T>().add(first), data.len()) }
    }

    /// # Safety
    /// The arena lives, and nothing writes this value meanwhile.
    pub unsafe fn read<T: Element>(&self, first: usize, data: &mut [T]) {
        self.check::<T>(first, data.len());
        // SAFETY: as the caller promises; sizes were checked.
        unsafe { std::ptr::copy_nonoverlapping(self.start.cast::<T>().add(first), data.as_mut_ptr(), data.len()) }
    }

    fn check<T: Element>(&self, first: usize, length: usize) {
        assert_eq!(self.dtype, T::DTYPE, "a value is accessed as what it is");
        let end = first.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.elements), "a value is accessed within its elements");
    }
}

/// One call's operands. Each output can be taken once, so that no two mutable slices to it exist.
pub struct Frame<'a> {
    inputs: &'a [Slot],
    outputs: &'a [Slot],
    updates: &'static [usize],
    /// One bit an output (low half) or updated input (high half) already handed out.
    taken: Cell<u64>,
}

impl<'a> Frame<'a> {
    /// # Safety
    /// The arena outlives the frame; no output or updated input overlaps any other operand; nothing outside of this
    /// frame touches the operands while it exists.
    pub unsafe fn new(inputs: &'a [Slot], outputs: &'a [Slot], updates: &'static [usize]) -> Frame<'a> {
        Frame { inputs, outputs, updates, taken: Cell::new(0) }
    }

    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    pub fn input(&self, index: usize) -> &'a [f32] {
        self.read(index)
    }

    pub fn ids(&self, index: usize) -> &'a [i32] {
        self.read(index)
    }

    pub fn output(&self, index: usize) -> &'a mut [f32] {
        self.take(index as u32, &self.outputs[index])
    }

    /// An input that the op overwrites.
    pub fn updated(&self, index: usize) -> &'a mut [f32] {
        assert!(self.updates.contains(&index), "the op does not say that it updates input {index}");
        self.take(32 + index as u32, &self.inputs[index])
    }

    fn read<T: Element>(&self, index: usize) -> &'a [T] {
        assert!(!self.updates.contains(&index), "input {index} is updated by the op");
        let slot = &self.inputs[index];
        slot.check::<T>(0, slot.elements);
        // SAFETY: `new` promises that nothing writes inputs that are not updated while the frame exists.
        unsafe { std::slice::from_raw_parts(slot.start.cast(), slot.elements) }
    }

    fn take(&self, bit: u32, slot: &Slot) -> &'a mut [f32] {
        let mask = 1u64 << bit;
        assert_eq!(self.taken.get() & mask, 0, "an operand to write is taken once");
        self.taken.set(self.taken.get() | mask);
        slot.check::<f32>(0, slot.elements);
        // SAFETY: `new` promises that it overlaps nothing else, and the bit just set that it is handed out once.
        unsafe { std::slice::from_raw_parts_mut(slot.start.cast(), slot.elements) }
    }
}
