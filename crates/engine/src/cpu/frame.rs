//! A kernel's view of the arena during one call: its inputs to read and its outputs to write.

use super::shared::Shared;
use crate::ranks::Place;
use headroom_graph::DType;
use std::sync::atomic::{AtomicBool, Ordering};

/// The place of one value in the arena.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    start: *mut u8,
    elements: usize,
    dtype: DType,
}

// SAFETY: a slot is only an address; every access to the memory goes through `unsafe` with its own contract.
unsafe impl Send for Slot {}
// SAFETY: sharing an address gives no access; every access goes through `unsafe` with its own contract.
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

    /// Its address and length, for the communication thread.
    pub fn floats(&self) -> Place {
        self.check::<f32>(0, self.elements);
        Place { start: self.start.cast(), elements: self.elements }
    }

    fn check<T: Element>(&self, first: usize, length: usize) {
        assert_eq!(self.dtype, T::DTYPE, "a value is accessed as what it is");
        let end = first.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.elements), "a value is accessed within its elements");
    }
}

/// A value as one call uses it.
#[derive(Debug)]
pub struct Operand {
    slot: Slot,
    access: Access,
}

#[derive(Debug)]
enum Access {
    Read,
    /// `taken` is set while the writing call holds it, so that no two mutable slices to it exist.
    Written {
        taken: AtomicBool,
    },
}

impl Operand {
    pub fn read(slot: Slot) -> Operand {
        Operand { slot, access: Access::Read }
    }

    /// An output, or an input that the op overwrites.
    pub fn written(slot: Slot) -> Operand {
        Operand { slot, access: Access::Written { taken: AtomicBool::new(false) } }
    }
}

/// One call's operands. An operand that the call writes can be taken once.
pub struct Frame<'a> {
    inputs: &'a [Operand],
    outputs: &'a [Operand],
}

impl<'a> Frame<'a> {
    /// # Safety
    /// The arena outlives the frame and the slices taken from it; no written operand overlaps any other operand;
    /// nothing outside this frame touches the operands while it exists.
    pub unsafe fn new(inputs: &'a [Operand], outputs: &'a [Operand]) -> Frame<'a> {
        for operand in inputs.iter().chain(outputs) {
            if let Access::Written { taken } = &operand.access {
                taken.store(false, Ordering::Relaxed);
            }
        }
        Frame { inputs, outputs }
    }

    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    pub fn input(&self, index: usize) -> &'a [f32] {
        read(&self.inputs[index])
    }

    pub fn ids(&self, index: usize) -> &'a [i32] {
        read(&self.inputs[index])
    }

    pub fn output(&self, index: usize) -> &'a mut [f32] {
        take(&self.outputs[index])
    }

    /// An input that the op overwrites, shared among threads that write different parts of it.
    ///
    /// # Safety
    /// No part of it is used by two threads at a time, and it is not taken otherwise.
    pub unsafe fn shared(&self, index: usize) -> Shared<'a> {
        let slot = &self.inputs[index].slot;
        assert!(matches!(self.inputs[index].access, Access::Written { .. }), "the op says that it overwrites it");
        slot.check::<f32>(0, slot.elements);
        // Not a slice of the whole: every thread calls this, and a whole slice would claim the other threads' parts.
        // SAFETY: the creator of the frame guaranteed that it overlaps nothing else; the rest is the caller's promise.
        unsafe { Shared::from_raw(slot.start.cast(), slot.elements) }
    }

    /// An input that the op overwrites.
    pub fn updated(&self, index: usize) -> &'a mut [f32] {
        take(&self.inputs[index])
    }
}

fn read<T: Element>(operand: &Operand) -> &[T] {
    assert!(matches!(operand.access, Access::Read), "an input that the op overwrites is taken, not read");
    let slot = &operand.slot;
    slot.check::<T>(0, slot.elements);
    // SAFETY: operands are accessed only through a frame, and its creator guaranteed that nothing writes what is read.
    unsafe { std::slice::from_raw_parts(slot.start.cast(), slot.elements) }
}

#[expect(clippy::mut_from_ref, reason = "the mark, not the borrow, is what makes it the only one")]
fn take(operand: &Operand) -> &mut [f32] {
    let Access::Written { taken } = &operand.access else { panic!("the op does not say that it writes this operand") };
    assert!(!taken.swap(true, Ordering::Relaxed), "an operand to write is taken once");
    let slot = &operand.slot;
    slot.check::<f32>(0, slot.elements);
    // SAFETY: the creator of the frame guaranteed that it overlaps nothing else; `taken` ensures that it is handed out
    // once.
    unsafe { std::slice::from_raw_parts_mut(slot.start.cast(), slot.elements) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn threads_write_their_parts_of_one_operand_at_the_same_time() {
        let mut memory = vec![0.0f32; 16];
        let slot = Slot::new(memory.as_mut_ptr().cast(), 16, DType::F32);
        let operands = [Operand::written(slot)];
        // SAFETY: the memory outlives the frame, and nothing else touches it meanwhile.
        let frame = unsafe { Frame::new(&operands, &[]) };
        thread::scope(|scope| {
            for worker in 0..4 {
                let frame = &frame;
                scope.spawn(move || {
                    for turn in 0..8 {
                        // SAFETY: each thread takes its own four elements.
                        let part = unsafe { frame.shared(0).slice(4 * worker, 4) };
                        part.iter_mut().for_each(|x| *x += (worker * turn) as f32);
                    }
                });
            }
        });
        assert_eq!(memory, [[0.0; 4], [28.0; 4], [56.0; 4], [84.0; 4]].concat());
    }

    #[test]
    fn inputs_are_read_and_outputs_written_through_one_frame() {
        let mut memory = [1.0f32, 2.0, 3.0, 0.0, 0.0, 0.0];
        let start = memory.as_mut_ptr();
        let slot = |first: usize| Slot::new(start.wrapping_add(first).cast(), 3, DType::F32);
        let (inputs, outputs) = ([Operand::read(slot(0))], [Operand::written(slot(3))]);
        // SAFETY: the memory outlives the frame, the two slots do not overlap.
        let frame = unsafe { Frame::new(&inputs, &outputs) };
        for (to, from) in frame.output(0).iter_mut().zip(frame.input(0)) {
            *to = 2.0 * from;
        }
        let mut read = [0.0; 2];
        // SAFETY: the memory outlives the slot, and the slices that wrote it are gone.
        unsafe { slot(3).read(1, &mut read) };
        assert_eq!(read, [4.0, 6.0]);
    }

    #[test]
    #[should_panic(expected = "is taken once")]
    fn an_output_is_not_handed_out_twice() {
        let mut memory = [0.0f32; 2];
        let outputs = [Operand::written(Slot::new(memory.as_mut_ptr().cast(), 2, DType::F32))];
        // SAFETY: the memory outlives the frame.
        let frame = unsafe { Frame::new(&[], &outputs) };
        let _first = frame.output(0);
        frame.output(0);
    }
}
