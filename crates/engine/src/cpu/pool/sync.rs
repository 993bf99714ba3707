//! The parts of the standard library that the pool's synchronisation is made of; under `--cfg loom` those of loom, which runs
//! a test under every order in which threads may take turns (`cargo xtask miri`).

#[cfg(not(loom))]
mod parts {
    pub use std::hint::spin_loop;
    pub use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    pub use std::sync::{Arc, Mutex, MutexGuard};
    pub use std::thread::{Builder, JoinHandle, park, yield_now};

    /// As loom has it: what is inside is reached by a pointer for the time of a call.
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        #[inline(always)]
        pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}

#[cfg(loom)]
mod parts {
    pub use loom::cell::UnsafeCell;
    pub use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    pub use loom::sync::{Arc, Mutex, MutexGuard};
    pub use loom::thread::{Builder, JoinHandle, park, yield_now};

    /// A turn for the others: looking again by itself changes nothing.
    pub fn spin_loop() {
        yield_now();
    }
}

pub use parts::*;
